//! The lock-free files of the product with loom's atomics and locks (`packaging/test-loom`), beside the models that
//! use them. Here is what else these files need.
#![allow(dead_code, unused_imports)]

mod measure;

mod http {
    mod budget;
    mod eviction;
    mod open;
}

mod traffic {
    mod recent;
}

mod limits {
    pub(crate) const SMALL_BODY_BYTES: u64 = 64 << 10;
    pub(crate) const CONNECTION_BYTES: u64 = 24 << 10;

    pub(crate) struct Limits {
        pub(crate) bodies_in_flight_bytes: u64,
        pub(crate) small_bodies_in_flight_bytes: u64,
    }
}

mod model {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    pub struct Name(String);

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Timestamp(pub i64);
}

/// What tokio promises of the waits that the files use, in steps that loom sees.
mod waits {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use loom::sync::Mutex;

    /// Waits without a limit: a wait that only its limit would end is a deadlock of the model.
    pub(crate) async fn timeout<F: Future>(_: Duration, wait: F) -> Result<F::Output, Infallible> {
        Ok(wait.await)
    }

    /// Another thread may run meanwhile.
    pub(crate) async fn sleep(_: Duration) {
        loom::thread::yield_now();
    }

    #[derive(Debug, Default)]
    pub(crate) struct Notify(Mutex<Waiters>);

    #[derive(Debug, Default)]
    struct Waiters {
        /// How often all were notified.
        all: usize,
        /// Whether the next one that waits is notified already.
        one: bool,
        wakers: Vec<Waker>,
    }

    impl Notify {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        /// From here on, `notify_waiters` is noticed.
        pub(crate) fn notified(&self) -> Notified<'_> {
            Notified { notify: self, all: self.0.lock().unwrap().all }
        }

        pub(crate) fn notify_waiters(&self) {
            self.wake(|waiters| waiters.all += 1);
        }

        pub(crate) fn notify_one(&self) {
            self.wake(|waiters| waiters.one = true);
        }

        fn wake(&self, notify: impl Fn(&mut Waiters)) {
            let mut waiters = self.0.lock().unwrap();
            notify(&mut waiters);
            let wakers = std::mem::take(&mut waiters.wakers);
            drop(waiters);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    #[derive(Debug)]
    pub(crate) struct Notified<'n> {
        notify: &'n Notify,
        all: usize,
    }

    impl Notified<'_> {
        pub(crate) fn enable(self: Pin<&mut Self>) {}
    }

    impl Future for Notified<'_> {
        type Output = ();

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let mut waiters = self.notify.0.lock().unwrap();
            if waiters.all != self.all || std::mem::take(&mut waiters.one) {
                return Poll::Ready(());
            }
            waiters.wakers.push(cx.waker().clone());
            Poll::Pending
        }
    }
}
