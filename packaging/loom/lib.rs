//! The lock-free files of the product with loom's atomics and locks (`packaging/test-loom`), and the models that use
//! them. Here is what else these files need of the product.
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

mod time {
    use std::convert::Infallible;
    use std::time::Duration;

    /// Waits without a limit: a wait that only its limit would end is a deadlock of the model.
    pub(crate) async fn timeout<F: Future>(_: Duration, wait: F) -> Result<F::Output, Infallible> {
        Ok(wait.await)
    }

    /// Another thread may run meanwhile.
    pub(crate) async fn sleep(_: Duration) {
        loom::thread::yield_now();
    }
}
