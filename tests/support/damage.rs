//! Damages at random places of a file: a bit that is flipped, a piece of zeros, an end that is cut off.
//! `HOOKLATCH_DAMAGES=N` makes N times as many, and `HOOKLATCH_SEED` names the first; a failure names its own.

use super::random::Random;

/// A damage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Damage {
    seed: u64,
}

/// So many damages, or as many as the variables say.
pub(crate) fn damages(usual: u64) -> impl Iterator<Item = Damage> {
    let number = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    let first = number("HOOKLATCH_SEED").unwrap_or(0);
    let count = usual * number("HOOKLATCH_DAMAGES").unwrap_or(1);
    (first..first + count).map(|seed| Damage { seed })
}

impl Damage {
    /// What a file of these bytes, of which none is zero, has after it.
    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        let mut damaged = bytes.to_vec();
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => damaged.truncate(at),
            1 => {
                let end = bytes.len().min(at + 1 + random.below(64));
                damaged[at..end].fill(0);
            }
            _ => damaged[at] ^= 1 << random.below(8),
        }
        damaged
    }
}
