//! Gives back the memory of code that has done its work.
//!
//! Receiver and runner live long and mostly wait, and most of the program that is mapped into one once
//! it serves is the command line, the configuration's parser and the like. What is needed again is
//! mapped again, from the page cache.

use std::ffi::c_void;
use std::fs;

use rustix::mm::{Advice, madvise};

/// Unmaps the pages of executable files. Costs a look at each mapping, and a soft page fault for
/// whatever is needed next.
pub fn give_back_code() {
    let Ok(mappings) = fs::read_to_string("/proc/self/maps") else { return };
    for (begin, bytes) in mappings.lines().filter_map(code) {
        // SAFETY: a private mapping that was never writable holds the pages of its file, and the next
        // access finds the same ones again. Only what a debugger wrote into them is lost.
        let _kept = unsafe { madvise(begin as *mut c_void, bytes, Advice::LinuxDontNeed) };
    }
}

/// Gives back the free pages of the heap. The allocator keeps them otherwise, however many there are.
pub fn give_back_heap() {
    // musl's allocator, which the static program has, gives free pages back by itself.
    #[cfg(target_env = "gnu")]
    // SAFETY: it only looks at the allocator's own lists, under their locks (malloc_trim(3): MT-Safe).
    let _given = unsafe { libc::malloc_trim(0) };
}

/// Where a line of proc_pid_maps(5) is a file's code: its address and length.
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
    fn only_the_code_of_files_is_given_back() {
        let line = |rights, path| format!("1000-3000 {rights} 00001000 fe:00 42    {path}");
        let program = "/usr/bin/hooklatch";
        assert_eq!(code(&line("r-xp", program)), Some((0x1000, 0x2000)));
        let others = [("r--p", program), ("rw-p", program), ("r-xp", "[vdso]"), ("r-xp", "")];
        for (rights, path) in others {
            assert_eq!(code(&line(rights, path)), None, "{rights} {path}");
        }
        // It goes on, and has found something.
        give_back_code();
        let found = fs::read_to_string("/proc/self/maps")
            .map(|maps| maps.lines().any(|line| code(line).is_some()));
        assert!(found.is_ok_and(|found| found));
    }
}
