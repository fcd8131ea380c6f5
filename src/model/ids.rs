//! Identities that the receiver makes: of jobs and runners.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names::RunnerName;
use super::text::{BadText, json_text};
use super::time::Timestamp;

/// A job's id, which is also its idempotency key: a UUID of version 7. Its random bits keep the ids of two
/// stores apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// An id that sorts by `now`. The bits must be random: `random::job_id` supplies them.
    pub fn from_parts(now: Timestamp, random: &[u8; 10]) -> Self {
        let ms = u64::try_from(now.0).unwrap_or(0);
        JobId(uuid::Builder::from_unix_timestamp_millis(ms, random).into_uuid())
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        JobId(Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for JobId {
    type Err = BadText;
    fn from_str(text: &str) -> Result<Self, BadText> {
        let expected = "a job id (they look like 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b)";
        Uuid::from_str(text).map(JobId).map_err(|_| BadText(text.to_owned(), expected))
    }
}

/// One process of a runner: the boot of the machine and random bits, written `BOOT/BITS`.
///
/// Every claim of a command records the incarnation it was made for, so that one runner's list never
/// decides about another's attempts. The boot is part of it because another boot proves that the
/// process is dead; the user, because only that user can see the processes that a runner left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation {
    boot: Uuid,
    bits: u128,
}

impl Incarnation {
    pub const fn from_parts(boot: Uuid, bits: u128) -> Self {
        Incarnation { boot, bits }
    }

    /// Replaces the last 32 bits by the runner's user.
    pub const fn of_user(self, user: u32) -> Self {
        let mask = u32::MAX as u128;
        Incarnation { bits: self.bits & !mask | user as u128, ..self }
    }

    pub fn boot(&self) -> Uuid {
        self.boot
    }

    /// The user of the runner and of its commands.
    pub fn user(&self) -> u32 {
        self.bits as u32
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:032x}", self.boot, self.bits)
    }
}

impl FromStr for Incarnation {
    type Err = BadText;
    fn from_str(text: &str) -> Result<Self, BadText> {
        let read = || {
            let (boot, bits) = text.split_once('/')?;
            let bits = u128::from_str_radix(bits, 16).ok().filter(|_| bits.len() == 32)?;
            Some(Incarnation { boot: boot.parse().ok()?, bits })
        };
        read().ok_or_else(|| BadText(text.to_owned(), "an incarnation of a runner"))
    }
}

json_text!(Incarnation);

/// The runner that an attempt is claimed for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Runner {
    pub name: RunnerName,
    pub incarnation: Incarnation,
}
