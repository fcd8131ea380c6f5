//! The product's pure decisions as a crate of their own: `packaging/test-mutants` puts this file in the place of
//! `src/lib.rs`, because a change here is compiled and tested in seconds, and in the whole library in a minute.
#![allow(dead_code, unused_imports)]

#[cfg(test)]
extern crate self as hooklatch;

pub mod limits;
pub mod model;

pub mod condition;
pub mod document;
pub mod measure;
pub mod pattern;
pub mod payload;
pub mod provider;
pub mod retry;
pub mod routing;
pub mod values;
pub mod verify;

mod config {
    mod condition;

    pub(crate) use condition::read_when;
}

mod store {
    mod border;
    mod codec;
    mod decide;
    mod sum;

    pub use border::*;

    #[cfg(test)]
    mod tests {
        mod kit;

        pub(crate) use kit::*;
    }
}

#[path = "../fuzz/probe/condition.rs"]
mod probe;
