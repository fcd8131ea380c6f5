//! Frames on the admin socket, in both directions.

use hooklatch::probe::{self, Read};

/// As `limits.control_request_bytes` has it.
const LIMIT: u64 = 64 * 1024;

pub(super) fn check(data: &[u8]) {
    both_ways(data, probe::control_request);
    both_ways(data, probe::control_answer);
}

fn both_ways(data: &[u8], read: fn(&[u8], usize, u64) -> Read) {
    let whole = read(data, usize::MAX, LIMIT);
    for step in [1, 3] {
        assert_eq!(read(data, step, LIMIT), whole, "in steps of {step}");
    }
    let Ok(Some(message)) = whole else { return };
    let again =
        read(&message.written, usize::MAX, u32::MAX.into()).expect("what is written is read");
    assert_eq!(again.expect("a message").written, message.written, "written, read and written");
    let announced = u64::from(u32::from_be_bytes([data[0], data[1], data[2], data[3]]));
    assert!(announced <= LIMIT && announced <= data.len() as u64 - 4, "over a limit");
    for cut in [1, 3, data.len().min(4 + announced as usize) - 1] {
        assert!(!matches!(read(&data[..cut], usize::MAX, LIMIT), Ok(Some(_))), "cut at {cut}");
    }
}
