//! The drill's choices: all of one seed, so that a run can be repeated.

use crate::cmd::random::bytes;
use crate::exit::Failure;

/// Random numbers of one seed (SplitMix64, by Vigna): the same seed, the same numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A number under `bound`, which is over 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// A seed that was not chosen; short enough to be typed.
pub(super) fn seed() -> Result<u64, Failure> {
    Ok(u64::from(u32::from_ne_bytes(bytes()?)))
}

/// A secret for the drill's one source.
pub(super) fn secret() -> Result<String, Failure> {
    Ok(format!("whsec_{}", data_encoding::HEXLOWER.encode(&bytes::<32>()?)))
}
