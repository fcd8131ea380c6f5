//! The bytes of answers that both sockets have in memory until their readers have taken them.
//!
//! Must stay true: an answer is paid for before the next large one is made, so that slow readers add no more than
//! [`ADMIN_ANSWERS_KIB`] and one answer that is being made.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::failure::Failure;
use crate::limits::{ADMIN_ANSWERS_KIB, ADMIN_BUDGET_WAIT};
use crate::memory;

/// A smaller answer pays nothing: there is at most one for each place of a request.
const SMALL_BYTES: u64 = 64 << 10;

/// A trim of the heap takes milliseconds, which a smaller answer is not worth.
const TRIMMED_KIB: usize = 1024;

static BUDGET: Semaphore = Semaphore::const_new(ADMIN_ANSWERS_KIB as usize);

/// The permit for a large answer that is being made.
static MAKING: Semaphore = Semaphore::const_new(1);

/// The right to make a large answer, one at a time.
pub(super) async fn make() -> Result<SemaphorePermit<'static>, Failure> {
    taken(timeout(ADMIN_BUDGET_WAIT, MAKING.acquire()).await.ok().and_then(Result::ok))
}

/// What an answer in memory has paid, until its reader has it. The heap is trimmed after one of a mebibyte.
pub(super) struct Paid(Option<SemaphorePermit<'static>>);

/// Pays for so many bytes; all that there is, for a longer answer.
pub(super) async fn pay(bytes: u64) -> Result<Paid, Failure> {
    if bytes <= SMALL_BYTES {
        return Ok(Paid(None));
    }
    let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(ADMIN_ANSWERS_KIB);
    let paid = timeout(ADMIN_BUDGET_WAIT, BUDGET.acquire_many(kib)).await;
    taken(paid.ok().and_then(Result::ok)).map(|permit| Paid(Some(permit)))
}

fn taken(permit: Option<SemaphorePermit<'static>>) -> Result<SemaphorePermit<'static>, Failure> {
    permit.ok_or_else(|| Failure::unavailable("other large answers are being read; ask again"))
}

impl Drop for Paid {
    fn drop(&mut self) {
        if self.0.take().is_some_and(|permit| permit.num_permits() >= TRIMMED_KIB) {
            memory::give_back_heap();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_large_answer_waits_for_others_and_a_small_one_for_none() {
        let all = pay(u64::MAX).await.unwrap();
        tokio::select! {
            biased;
            _ = pay(SMALL_BYTES + 1) => panic!("it has not waited"),
            () = std::future::ready(()) => {}
        }
        assert!(pay(SMALL_BYTES).await.is_ok());
        drop(all);
        assert!(pay(SMALL_BYTES + 1).await.is_ok());
    }
}
