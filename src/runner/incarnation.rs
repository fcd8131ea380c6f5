//! One life of a runner: the boot it lives in and bits that no other has.
//!
//! Every claim records the incarnation it was made for, so that nobody takes one runner's silence for
//! another's word (R5). The boot stands in it because its end is a proof of death by itself (R6).

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// The kernel's name for the time since it was started (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A boot id and 128 random bits, written `BOOT/BITS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation {
    boot: Uuid,
    bits: u128,
}

impl Incarnation {
    /// A new one of this boot.
    ///
    /// # Errors
    /// Where the kernel tells neither its boot nor random bits.
    pub fn new() -> io::Result<Self> {
        let mut bits = [0; 16];
        rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty())?;
        Ok(Incarnation { boot: this_boot()?, bits: u128::from_ne_bytes(bits) })
    }

    /// The boot it lived in.
    pub fn boot(&self) -> Uuid {
        self.boot
    }
}

/// The boot that is now.
///
/// # Errors
/// Where `/proc` does not tell it.
pub fn this_boot() -> io::Result<Uuid> {
    fs::read_to_string(BOOT_ID)?.trim().parse().map_err(io::Error::other)
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:032x}", self.boot, self.bits)
    }
}

/// A text that is no incarnation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no incarnation of a runner")]
pub struct BadIncarnation(String);

impl FromStr for Incarnation {
    type Err = BadIncarnation;
    fn from_str(text: &str) -> Result<Self, BadIncarnation> {
        let read = || {
            let (boot, bits) = text.split_once('/')?;
            let bits = u128::from_str_radix(bits, 16).ok().filter(|_| bits.len() == 32)?;
            Some(Incarnation { boot: boot.parse().ok()?, bits })
        };
        read().ok_or_else(|| BadIncarnation(text.to_owned()))
    }
}

impl Serialize for Incarnation {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Incarnation {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_incarnation_reads_back_and_is_its_own() {
        let [one, other] = [(); 2].map(|()| Incarnation::new().unwrap());
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_ne!(one, other);
        assert_eq!(one.boot(), this_boot().unwrap());
        assert!("x/1".parse::<Incarnation>().is_err());
    }
}
