//! Frames between receiver and runner, in both directions.

use hooklatch::probe::{self, Read};

pub(super) fn check(data: &[u8]) {
    both_ways(data, probe::runner_reads);
    both_ways(data, probe::receiver_reads);
}

fn both_ways(data: &[u8], read: fn(&[u8], usize) -> Read) {
    let whole = read(data, usize::MAX);
    for step in [1, 3] {
        assert_eq!(read(data, step), whole, "in steps of {step}");
    }
    let Ok(Some(message)) = whole else { return };
    let again = read(&message.written, usize::MAX);
    assert_eq!(
        again.expect("what is written is read").expect("a message"),
        message,
        "twice the same"
    );
    let length =
        |at| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]) as usize;
    let end = 8 + length(0) + length(4);
    assert_eq!(message.body, data[end - length(4)..end], "the body as it is");
    // A frame that is cut at any place must not be read as a frame.
    for cut in [1, 7, 8, end - length(4) - 1, end - 1] {
        assert!(read(&data[..cut], usize::MAX).is_err(), "cut at {cut}");
    }
}
