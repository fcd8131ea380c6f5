//! Decides whether a panic closes one connection or aborts the whole process.
//!
//! `cmd` installs the hook; `http`, `admin` and the dashboard wrap the code that serves one connection, in whatever task,
//! in [`contain`] or [`contained`]. Must stay true: if a thread panics that others depend on (the store's writer, the
//! dispatcher, the runner, a worker outside of the connections it serves), the process aborts; otherwise
//! it would seem to run but do no work. A panic while a contained future is dropped also aborts.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::pin::Pin;
use std::process::abort;
use std::task::{Context, Poll};

thread_local! {
    /// True while this thread runs one connection's code.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Makes every panic outside of [`contain`] and [`contained`] abort the process.
pub fn install() {
    let previous_hook = take_hook();
    set_hook(Box::new(move |panic| {
        if CONTAINED.get() {
            // The message is not logged: it may quote a request.
            let location = panic.location().map(tracing::field::display);
            tracing::error!(
                location,
                "a panic while serving a connection; only that connection is closed"
            );
        } else {
            previous_hook(panic);
            abort();
        }
    }));
}

/// Runs code of one connection. The caller must run in something that catches panics, such as a task.
pub fn contain<T>(code: impl FnOnce() -> T) -> T {
    struct Restore {
        previous: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            CONTAINED.set(self.previous);
        }
    }
    let _restore = Restore { previous: CONTAINED.replace(true) };
    code()
}

/// A future that is polled inside [`contain`].
pub struct Contained<F>(Pin<Box<F>>);

/// Like [`contain`], for a future. It must run inside a task, which catches the panic.
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

    /// The test runs its own program as a child, which panics.
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
    fn the_flag_is_restored_after_a_return_and_after_a_panic() {
        assert!(contain(|| CONTAINED.get()) && !CONTAINED.get());
        let panicked = std::panic::catch_unwind(|| contain(|| panic!("on purpose")));
        assert!(panicked.is_err() && !CONTAINED.get());
        contain(|| {
            contain(|| ());
            assert!(CONTAINED.get(), "the outer code is still contained");
        });
        assert!(!CONTAINED.get());
    }
}
