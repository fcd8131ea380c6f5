//! Makes an incarnation: the present boot, random bits and the user.

use std::fs;
use std::io;

use rustix::process::geteuid;
use uuid::Uuid;

pub use crate::model::Incarnation;

/// The file with the id of the present boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A new incarnation of this boot and user.
///
/// # Errors
/// The kernel does not give its boot id or random bits.
pub fn new() -> io::Result<Incarnation> {
    let mut bits = [0; 16];
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty())?;
    let new = Incarnation::from_parts(this_boot()?, u128::from_ne_bytes(bits));
    Ok(new.of_user(geteuid().as_raw()))
}

/// The id of the present boot.
///
/// # Errors
/// `/proc` does not have it.
pub fn this_boot() -> io::Result<Uuid> {
    fs::read_to_string(BOOT_ID)?.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_incarnation_is_unique_and_parses_from_its_text() {
        let [one, other] = [(); 2].map(|()| new().unwrap());
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_ne!(one, other);
        assert_eq!((one.boot(), one.user()), (this_boot().unwrap(), geteuid().as_raw()));
        assert_eq!(one.of_user(7).user(), 7);
        assert_eq!(one.of_user(7).of_user(one.user()), one);
        assert!("x/1".parse::<Incarnation>().is_err());
    }
}
