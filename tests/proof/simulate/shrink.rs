//! Shortens what fails: leaves out halves of its steps, then quarters, at last single steps, as long as it fails in the
//! same way.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Nothing is printed of what fails on this thread.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// The line of the first panic of this thread's run.
    static FAILED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

pub(crate) fn is_quiet() -> bool {
    QUIET.get()
}

/// Runs `run`, which may fail. An `Err` is the line of its first panic.
pub(crate) fn catch<T>(is_quiet: bool, run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let line = panic.location().map(ToString::to_string);
            FAILED_AT.with_borrow_mut(|first| *first = first.take().or(line));
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    FAILED_AT.set(None);
    QUIET.set(is_quiet);
    let done = panic::catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    done.map_err(|_| FAILED_AT.take().unwrap_or_default())
}

/// The shortest part of `steps` that is found for which `fails` is true, as it is for all of them. Asks at most `runs`
/// times; after fewer, no step can be left out.
pub(crate) fn shrink(
    mut steps: Vec<usize>,
    mut runs: usize,
    mut fails: impl FnMut(&[usize]) -> bool,
) -> Vec<usize> {
    let mut size = steps.len().div_ceil(2);
    while !steps.is_empty() {
        let (mut at, before) = (0, steps.len());
        while at < steps.len() {
            let Some(left) = runs.checked_sub(1) else { return steps };
            runs = left;
            let mut rest = steps.clone();
            rest.drain(at..steps.len().min(at + size));
            if fails(&rest) {
                steps = rest;
            } else {
                at += size;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if steps.len() == before {
            break;
        }
    }
    steps
}

#[test]
fn what_is_left_fails_and_nothing_more_can_be_left_out() {
    let fails = |steps: &[usize]| {
        let has = |step| steps.contains(&step);
        has(3) && has(97) && (has(40) || has(41))
    };
    assert_eq!(shrink((1..=150).collect(), 500, fails), [3_usize, 41, 97]);
    assert!(shrink((1..=150).collect(), 500, |_| true).is_empty());
    assert_eq!(shrink((1..=150).collect(), 500, |steps| steps.len() == 150).len(), 150);
    let mut asked = 0;
    let some = shrink((1..=150).collect(), 20, |steps| {
        asked += 1;
        fails(steps)
    });
    assert_eq!((asked, some.len() < 150 && fails(&some)), (20, true));
}
