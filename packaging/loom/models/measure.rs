use std::sync::Arc;

use loom::thread;

use super::*;

fn count((tally, histogram): &(Tally, Histogram)) {
    tally.one("a");
    histogram.observe(1.0);
}

#[test]
fn no_count_is_lost() {
    loom::model(|| {
        let counts = Arc::new((Tally::new(["a"]), Histogram::new(&[1.0])));
        let other = {
            let counts = Arc::clone(&counts);
            thread::spawn(move || count(&counts))
        };
        count(&counts);
        other.join().unwrap();
        assert_eq!(counts.0.get().collect::<Vec<_>>(), [("a", 2)]);
        let Distribution { buckets, sum } = counts.1.get();
        assert_eq!((buckets[1].1, sum), (2, 2.0));
    });
}

/// Each value that a fall returns is another one, so exactly one of them is the last.
#[test]
fn one_of_two_falls_reaches_zero() {
    loom::model(|| {
        let level = Arc::new(Level::default());
        level.add(2);
        let other = {
            let level = Arc::clone(&level);
            thread::spawn(move || level.subtract(1))
        };
        let mut after = [level.subtract(1), other.join().unwrap()];
        after.sort();
        assert_eq!((after, level.get()), ([0, 1], 0));
    });
}
