//! Bounds the memory of both admin sockets: the bytes of answers until their readers have taken them, and one long request
//! at a time.
//!
//! Must stay true: slow readers add no more than [`ADMIN_ANSWERS_KIB`], the parts of [`ADMIN_BODIES`] and of the streams,
//! one large answer that is being made, a few others that wait, and small ones. Whoever has the permit of [`make`] never waits
//! for room, and whoever has paid may wait for that permit: so the two never wait for each other.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::failure::Failure;
use crate::limits::{ADMIN_ANSWERS_KIB, ADMIN_BODIES, ADMIN_BUDGET_WAIT, ADMIN_WAITING_ANSWERS};
use crate::memory;

/// An answer of at most so many bytes pays nothing: the places for requests bound how many there are.
const SMALL_BYTES: u64 = 64 << 10;

/// A trim of the heap takes milliseconds, which a smaller answer is not worth.
const TRIMMED_KIB: u64 = 1024;

static BUDGET: Semaphore = Semaphore::const_new(ADMIN_ANSWERS_KIB as usize);

/// The permit for a large answer that is being made.
static MAKING: Semaphore = Semaphore::const_new(1);

/// For those who wait for room, some with their answer in memory.
static WAITING: Semaphore = Semaphore::const_new(ADMIN_WAITING_ANSWERS);

/// For the bodies that are passed on.
static BODIES: Semaphore = Semaphore::const_new(ADMIN_BODIES);

/// The permit for a long request that is read and carried out.
static REQUESTS: Semaphore = Semaphore::const_new(1);

pub(super) type Permit = SemaphorePermit<'static>;

/// The right to make a large answer, one at a time.
pub(super) async fn make() -> Result<Permit, Failure> {
    permit(&MAKING).await
}

/// The right to pass a stored body on to its reader.
pub(super) async fn body() -> Result<Permit, Failure> {
    permit(&BODIES).await
}

/// The right to have a long request, one at a time.
pub(super) async fn request() -> Result<Permit, Failure> {
    permit(&REQUESTS).await
}

async fn permit(of: &'static Semaphore) -> Result<Permit, Failure> {
    taken(timeout(ADMIN_BUDGET_WAIT, of.acquire()).await.ok().and_then(Result::ok))
}

/// What an answer in memory has paid, until its reader has it. The heap is trimmed after a mebibyte or more.
pub(super) struct Paid(Option<Permit>);

impl Paid {
    /// Whether it is enough for so many bytes.
    pub(super) fn covers(&self, bytes: u64) -> bool {
        let paid = self.0.as_ref().map_or(0, Permit::num_permits);
        bytes <= SMALL_BYTES || paid >= kib(bytes) as usize
    }
}

/// What so many bytes cost, in KiB: at most all that there is.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(ADMIN_ANSWERS_KIB)
}

/// Pays for so many bytes, where there is room now.
pub(super) fn pay_now(bytes: u64) -> Option<Paid> {
    if bytes <= SMALL_BYTES {
        return Some(Paid(None));
    }
    BUDGET.try_acquire_many(kib(bytes)).ok().map(|permit| Paid(Some(permit)))
}

/// Pays for so many bytes. Waits for room, and fails after [`ADMIN_BUDGET_WAIT`], or at once where too many wait.
pub(super) async fn pay(bytes: u64) -> Result<Paid, Failure> {
    if let Some(paid) = pay_now(bytes) {
        return Ok(paid);
    }
    let _waiting = taken(WAITING.try_acquire().ok())?;
    let paid = timeout(ADMIN_BUDGET_WAIT, BUDGET.acquire_many(kib(bytes))).await;
    taken(paid.ok().and_then(Result::ok)).map(|permit| Paid(Some(permit)))
}

fn taken(permit: Option<Permit>) -> Result<Permit, Failure> {
    permit.ok_or_else(|| {
        Failure::unavailable("other large answers or requests are under way; ask again")
    })
}

/// Gives the memory of an answer of so many KiB back, where that is worth its time.
pub(super) fn trim(kib: u64) {
    if kib >= TRIMMED_KIB {
        memory::give_back_heap();
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        let paid = self.0.take().map_or(0, |permit| permit.num_permits());
        trim(paid as u64);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// In one test, because all answers of a process share the budget.
    #[tokio::test]
    async fn a_large_answer_waits_for_others_and_a_small_one_for_none() {
        let all = pay(u64::MAX).await.unwrap();
        assert!(all.covers(u64::MAX) && pay_now(SMALL_BYTES + 1).is_none());
        {
            let waiting = pay(SMALL_BYTES + 1);
            tokio::pin!(waiting);
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("it has not waited"),
                () = std::future::ready(()) => {}
            }
            // So many may wait, and a further one is refused at once.
            let others = WAITING.try_acquire_many(ADMIN_WAITING_ANSWERS as u32 - 1).unwrap();
            let refused = pay(SMALL_BYTES + 1).await.err().unwrap();
            assert!(refused.message.contains("ask again"), "{refused}");
            drop(others);
            let small = pay(SMALL_BYTES).await.unwrap();
            assert!(small.covers(SMALL_BYTES) && !small.covers(SMALL_BYTES + 1));
        }
        // Who has left waits no more, and what was paid is there again.
        drop(all);
        assert_eq!(BUDGET.available_permits(), ADMIN_ANSWERS_KIB as usize);
        assert_eq!(WAITING.available_permits(), ADMIN_WAITING_ANSWERS);
        assert!(pay(SMALL_BYTES + 1).await.is_ok());
    }
}
