//! What must hold for every input of every parser of network or file input, one file per parser.
//!
//! Two programs use these: the fuzzer (`fuzz/main.rs`), which looks for inputs, and `tests/http/corpus.rs`,
//! which plays the committed ones again on every change. A target panics where something does not hold.

mod answers;
mod captured;
mod configuration;
mod facts;
mod ledger;
mod names;
mod pipeline;
mod provider;
mod quantities;
mod references;
mod runner;
mod signature;
mod signing;
mod since;
pub(crate) mod sizes;
mod template;

/// A target: what it is called, on the command line and as the folder of its corpus, and its check.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const ALL: &[Target] = &[
    ("answers", answers::check),
    ("captured", captured::check),
    ("configuration", configuration::check),
    ("facts", facts::check),
    ("ledger", ledger::check),
    ("names", names::check),
    ("pipeline", pipeline::check),
    ("provider", provider::check),
    ("quantities", quantities::check),
    ("references", references::check),
    ("runner", runner::check),
    ("signature", signature::check),
    ("since", since::check),
    ("template", template::check),
];

/// The first line, and what follows it: how targets that want several things are told them.
fn line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, b""),
    }
}

/// The same of a text.
fn text_line(data: &[u8]) -> Option<(&str, &[u8])> {
    let (first, rest) = line(data);
    Some((std::str::from_utf8(first).ok()?, rest))
}
