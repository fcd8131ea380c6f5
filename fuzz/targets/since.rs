//! `--since`.

use hooklatch::cli::Since;
use hooklatch::model::Timestamp;

pub(super) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(since) = text.parse::<Since>() else { return };
    for now in [0, 1_767_225_600_000, i64::MIN, i64::MAX].map(Timestamp) {
        let then = since.seen_from(now);
        match since {
            Since::Ago(_) => assert!(then <= now, "so long ago, and to come"),
            Since::At(at) => assert_eq!(then, at),
        }
    }
    if let Since::At(at) = since {
        assert_eq!(at.to_string().parse(), Ok(Since::At(at)), "printed and read");
    }
}
