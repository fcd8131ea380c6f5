//! What a panic ends: the connection that it happened on, or the process.
//!
//! `cmd` installs the hook; `http` contains the code that serves one connection. Must stay true: a thread
//! that others depend on (the store's writer, the dispatcher, a runner, a worker's own loop) never dies
//! alone, because a process without it only looks alive.

use std::cell::Cell;
use std::panic::set_hook;
use std::pin::Pin;
use std::process::abort;
use std::task::{Context, Poll};

thread_local! {
    /// This thread runs code of one connection, and the task around it catches a panic.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic outside of [`contain`] and [`contained`] aborts the process.
pub fn install() {
    let usual = std::panic::take_hook();
    set_hook(Box::new(move |panic| {
        if CONTAINED.get() {
            // Not its message, which may quote a request.
            let place = panic.location().map(tracing::field::display);
            tracing::error!(
                place,
                "a panic while a connection was served; only this one is closed"
            );
        } else {
            usual(panic);
            abort();
        }
    }));
}

/// Runs code of one connection. The caller's task must catch a panic.
pub fn contain<T>(code: impl FnOnce() -> T) -> T {
    struct Within(bool);
    impl Drop for Within {
        fn drop(&mut self) {
            CONTAINED.set(self.0);
        }
    }
    let _within = Within(CONTAINED.replace(true));
    code()
}

/// A future each poll of which is contained.
pub struct Contained<F>(Pin<Box<F>>);

/// The same for a future, which must be a task or a part of one.
pub fn contained<F: Future>(future: F) -> Contained<F> {
    Contained(Box::pin(future))
}

impl<F: Future> Future for Contained<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        contain(|| self.0.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::process::Signal;

    use super::*;

    /// Runs itself as a child that panics.
    #[test]
    fn a_panic_on_any_other_thread_aborts_the_process() {
        const CHILD: &str = "HOOKLATCH_TEST_PANICS";
        if std::env::var_os(CHILD).is_some() {
            install();
            let _panicked = std::thread::spawn(|| panic!("on purpose")).join();
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "panics::tests::a_panic_on_any_other_thread_aborts_the_process"]);
        let ended = child.env(CHILD, "1").output().unwrap().status;
        assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()));
    }

    #[test]
    fn containment_ends_with_the_code_also_by_a_panic() {
        assert!(contain(|| CONTAINED.get()) && !CONTAINED.get());
        let panicked = std::panic::catch_unwind(|| contain(|| panic!("on purpose")));
        assert!(panicked.is_err() && !CONTAINED.get());
        contain(|| contain(|| ()));
        assert!(!CONTAINED.get());
    }
}
