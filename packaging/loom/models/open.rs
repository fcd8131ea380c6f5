use loom::future::block_on;
use loom::thread;

use super::*;

/// If several connections close at once, one of them sees that half of the peak is left.
#[test]
fn a_fall_to_half_of_the_peak_is_noticed() {
    loom::model(|| {
        let open = Open::new(2);
        let closing = [(); 2].map(|()| block_on(open.enter()).unwrap());
        // With others that are open, one more than half of a peak.
        open.now.add(MANY / 2 - 1);
        open.peak.store(MANY, Ordering::Relaxed);
        let [one, two] = closing;
        let other = thread::spawn(move || drop(one));
        drop(two);
        other.join().unwrap();
        block_on(open.fell.notified());
        assert_eq!(open.count(), MANY as u64 / 2 - 1);
    });
}
