//! The ledger that a dead runner leaves for the next one.

use hooklatch::probe;

pub(super) fn check(data: &[u8]) {
    let (read, written, all) = probe::ledger(data);
    let (again, twice, _) = probe::ledger(&written);
    assert_eq!(twice, written, "written, read and written");
    if all {
        assert_eq!(again, read, "the same lines mean the same");
    } else {
        assert!(
            read.contains("incarnations: []"),
            "an unreadable line, and somebody is answered for"
        );
    }
}
