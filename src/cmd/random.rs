//! Random bytes for secrets and ids.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::exit::{Exit, Failure};

/// Bytes of the system's generator, fit for secrets. Up to 256 come whole (getrandom(2)).
pub(super) fn bytes<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Exit::Io.failure(format!("no random numbers: {error}"))),
    }
}
