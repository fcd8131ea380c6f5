use std::sync::Arc;

use loom::thread;

use super::*;

const DAY: Timestamp = Timestamp((SLOT_MILLIS * SLOTS as u64) as i64);

fn two(at: [Timestamp; 2], check: fn(&RecentCounts<1>)) {
    loom::model(move || {
        let counts = Arc::new(RecentCounts::<1>::default());
        let other = {
            let counts = Arc::clone(&counts);
            thread::spawn(move || counts.one(0, at[0]))
        };
        counts.one(0, at[1]);
        other.join().unwrap();
        check(&counts);
    });
}

#[test]
fn no_count_of_a_slot_is_lost() {
    two([DAY, DAY], |counts| assert_eq!(counts.0[0][0].load(Ordering::Relaxed) & 0xff, 2));
}

/// Two slots of one place: the count of the one never gets into the other.
#[test]
fn a_count_stays_in_its_slot() {
    two([Timestamp(0), DAY], |counts| {
        let cell = counts.0[0][0].load(Ordering::Relaxed);
        assert!([1, 96 << 32 | 1].contains(&cell), "{cell:#x}");
    });
}
