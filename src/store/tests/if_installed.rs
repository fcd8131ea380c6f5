//! `tokio` as the suite on PostgreSQL sees it. `#[tokio::test]` runs each test by the runtime of the `tokio` in scope;
//! where PostgreSQL is missing, this one notes the need instead.

pub(super) use ::tokio::*;

pub(super) mod runtime {
    use std::io;

    use crate::store::tests::server::is_installed;

    pub(crate) struct Builder(::tokio::runtime::Builder);

    impl Builder {
        pub(crate) fn new_current_thread() -> Self {
            Builder(::tokio::runtime::Builder::new_current_thread())
        }

        pub(crate) fn new_multi_thread() -> Self {
            Builder(::tokio::runtime::Builder::new_multi_thread())
        }

        pub(crate) fn enable_all(mut self) -> Self {
            self.0.enable_all();
            self
        }

        pub(crate) fn build(mut self) -> io::Result<Runtime> {
            self.0.build().map(Runtime)
        }
    }

    pub(crate) struct Runtime(::tokio::runtime::Runtime);

    impl Runtime {
        pub(crate) fn block_on(self, test: impl Future<Output = ()>) {
            if is_installed() {
                self.0.block_on(test);
            }
        }
    }
}
