//! The only place below `cmd` and `runner` that asks the kernel for random bits, as `clock` is for the time.

use std::cell::RefCell;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::model::{JobId, Timestamp};

thread_local! {
    /// Random bits for the next ids of this thread, each used once. A call to the kernel costs more than the
    /// rest of an id, so one call fetches bits for 25.
    static UNUSED: RefCell<Vec<[u8; 10]>> = const { RefCell::new(Vec::new()) };
}

/// A new job id, which sorts by `now`.
///
/// # Panics
/// If the kernel has no random numbers.
pub fn job_id(now: Timestamp) -> JobId {
    let bits = UNUSED.with_borrow_mut(|unused| {
        unused.pop().unwrap_or_else(|| {
            let mut bytes = [[0; 10]; 25];
            fill(bytes.as_flattened_mut());
            let [first, rest @ ..] = bytes;
            unused.extend(rest);
            first
        })
    });
    JobId::from_parts(now, &bits)
}

/// 16 random bytes.
///
/// # Panics
/// If the kernel has no random numbers.
pub fn id() -> [u8; 16] {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    bytes
}

/// Fills at most 256 bytes, which the kernel returns in one piece (getrandom(2)).
fn fill(bytes: &mut [u8]) {
    if let Err(error) = getrandom(bytes, GetRandomFlags::empty()) {
        panic!("no random numbers: {error}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn job_ids_of_one_millisecond_share_their_time_and_no_random_bits() {
        let ids = || (0..1000).map(|_| job_id(Timestamp(0x0199_d0a3_5f6c))).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(ids)).collect();
        let ids: Vec<_> = threads.into_iter().flat_map(|ids| ids.join().unwrap()).collect();
        assert!(ids.iter().all(|id| id.to_string().starts_with("0199d0a3-5f6c-7")));
        // The variant takes two bits.
        let random = |id: &JobId| u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap()) << 2;
        let all: HashSet<u64> = ids.iter().map(random).collect();
        assert_eq!(all.len(), 4000);
        let ones = all.iter().fold(0, |ones, bits| ones | bits);
        assert_eq!(ones, u64::MAX << 2, "every bit is one somewhere");
    }
}
