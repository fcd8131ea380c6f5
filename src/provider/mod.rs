//! Signing schemes as data.
#![allow(missing_docs)]
use std::time::Duration;

pub struct Scheme;

impl Scheme {
    pub fn embedded(_name: &str) -> Option<Scheme> {
        unimplemented!()
    }
    pub fn name(&self) -> &str {
        unimplemented!()
    }
    pub fn body_limit_bytes(&self) -> Option<u64> {
        unimplemented!()
    }
    pub fn deadline(&self) -> Option<Duration> {
        unimplemented!()
    }
    pub fn is_unsigned(&self) -> bool {
        unimplemented!()
    }
    pub fn signs_url(&self) -> bool {
        unimplemented!()
    }
}
