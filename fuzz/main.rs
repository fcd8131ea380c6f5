//! The fuzzer: runs inputs through the target that `HOOKLATCH_FUZZ` names. `fuzz/run` builds and starts it.

#![no_main]

mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    static CHECK: OnceLock<fn(&[u8])> = OnceLock::new();
    CHECK.get_or_init(chosen)(data);
});

fn chosen() -> fn(&[u8]) {
    let wanted = std::env::var("HOOKLATCH_FUZZ").unwrap_or_default();
    let found = targets::ALL.iter().find(|(name, _)| *name == wanted);
    found.map_or_else(|| panic!("HOOKLATCH_FUZZ names no target"), |(_, check)| *check)
}
