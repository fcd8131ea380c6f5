//! The headers of a captured request as `hooklatch verify --header` takes them, and as a store keeps them.

use hooklatch::model::Headers;
use hooklatch::probe;

pub(super) fn check(data: &[u8]) {
    // The store must read back the headers that it wrote.
    let stored = Headers::from_wire(data);
    assert!(stored.to_wire().len() <= data.len() + 3 * stored.iter().count() + 3 * data.len());
    let again = Headers::from_wire(&stored.to_wire());
    assert_eq!(again, Headers::from_wire(&again.to_wire()), "a stored form that changes");

    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let captured = probe::captured_headers(&lines);
    let readable = lines.iter().all(|line| line.contains(':'));
    assert_eq!(captured.is_some(), readable, "a line is a header where it has a colon");
    let Some(headers) = captured else { return };
    assert_eq!(headers.iter().count(), lines.len());
    for ((name, value), line) in headers.iter().zip(&lines) {
        let (before, after) = line.split_once(':').unwrap_or_default();
        assert_eq!((name, value), (before.trim(), after.trim().as_bytes()));
    }
}
