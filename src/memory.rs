//! Returns memory to the system after the start: pages of program code and free heap pages.
//!
//! The receiver and the runner call it. They run for long and mostly wait, and most of the code that
//! was mapped during the start is not used later, such as the parsers of the command line and the
//! configuration. The kernel maps a page again from the page cache when it is needed.

use std::ffi::c_void;
use std::fs;

use rustix::mm::{Advice, madvise};

/// Drops the resident pages of executable files. Costs one system call per code mapping, and later a
/// minor page fault for each page that is still needed.
pub fn give_back_code() {
    let Ok(mappings) = fs::read_to_string("/proc/self/maps") else { return };
    for (begin, bytes) in mappings.lines().filter_map(code) {
        // SAFETY: a private mapping that is not writable holds the unchanged pages of its file, so the
        // next access maps the same contents. Only a debugger's changes, such as breakpoints, are lost.
        let _kept = unsafe { madvise(begin as *mut c_void, bytes, Advice::LinuxDontNeed) };
    }
}

/// Returns the free pages of the heap, which glibc's allocator otherwise keeps.
pub fn give_back_heap() {
    // The static program has musl's allocator, which returns free pages without a call.
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim works on the allocator's lists under their locks (malloc_trim(3): MT-Safe).
    let _trimmed = unsafe { libc::malloc_trim(0) };
}

/// The address and length of a mapping of a file's code, from a line of proc_pid_maps(5); `None` for
/// any other mapping.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (begin, end) = fields.next()?.split_once('-')?;
    let (rights, path) = (fields.next()?, fields.nth(3)?);
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (begin, end) = (address(begin)?, address(end)?);
    (rights == "r-xp" && path.starts_with('/')).then_some((begin, end.checked_sub(begin)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_file_code_are_dropped() {
        let line = |rights, path| format!("1000-3000 {rights} 00001000 fe:00 42    {path}");
        let program = "/usr/bin/hooklatch";
        assert_eq!(code(&line("r-xp", program)), Some((0x1000, 0x2000)));
        let others = [("r--p", program), ("rw-p", program), ("r-xp", "[vdso]"), ("r-xp", "")];
        for (rights, path) in others {
            assert_eq!(code(&line(rights, path)), None, "{rights} {path}");
        }
        // The process survives the call, and there was code to drop.
        give_back_code();
        let found = fs::read_to_string("/proc/self/maps")
            .map(|maps| maps.lines().any(|line| code(line).is_some()));
        assert!(found.is_ok_and(|found| found));
    }
}
