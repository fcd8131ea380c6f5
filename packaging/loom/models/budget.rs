use std::future::poll_fn;
use std::time::Duration;

use loom::future::block_on;
use loom::thread;

use super::*;

fn free(budget: &Budget) -> (u64, u64) {
    (budget.small.free.load(Ordering::Acquire), budget.large.free.load(Ordering::Acquire))
}

#[test]
fn two_never_take_what_is_there_once() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(3));
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.take(2))
        };
        let taken = [pool.take(2), other.join().unwrap()];
        assert_eq!((taken.iter().filter(|taken| **taken).count(), pool.used()), (1, 2));
        pool.give(2);
        assert_eq!(pool.used(), 0);
    });
}

/// Two bodies outgrow the small pool at once, and only one of them fits the large one.
#[test]
fn bodies_give_back_what_they_took() {
    loom::model(|| {
        let budget = Budget::of_pools(100, 200, 150);
        let grow = |mut permit: Permit| permit.cover(60) && permit.cover(120);
        let permit = budget.permit();
        let other = thread::spawn(move || grow(permit));
        let one = grow(budget.permit());
        assert!(other.join().unwrap() || one, "the first has room");
        assert_eq!(free(&budget), (200, 150));
    });
}

/// A wake-up that is lost would be a deadlock.
#[test]
fn a_stalled_body_leaves_and_the_next_has_its_room() {
    loom::model(|| {
        let budget = Budget::of_pools(100, 200, 800);
        let mut stalled = budget.permit();
        assert!(stalled.cover(800));
        stalled.record_progress(Instant::now() - Duration::from_secs(1), 0, 800);
        let leave = thread::spawn(move || block_on(poll_fn(|cx| stalled.poll_evicted(cx))));
        let mut next = budget.permit();
        assert!(block_on(next.declare(800)));
        leave.join().unwrap();
        drop(next);
        assert_eq!(free(&budget), (200, 800));
    });
}
