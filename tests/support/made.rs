//! Compares tables in the documents with tables that are generated from the code.

use std::fs;
use std::path::Path;

/// Checks that the table in `docs/PAGE` between `<!-- NAME` and `<!-- end of NAME -->` equals `table`;
/// `UPDATE_GOLDEN=1` writes `table` there instead.
pub(crate) fn holds(page: &str, name: &str, table: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = fs::read_to_string(&page).unwrap();
    let start = text.find(&format!("<!-- {name}")).unwrap();
    let start = start + text[start..].find('\n').unwrap() + 1;
    let end = text.find(&format!("<!-- end of {name} -->")).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(page, format!("{}\n{table}\n{}", &text[..start], &text[end..])).unwrap();
        return;
    }
    assert_eq!(text[start..end].trim(), table.trim(), "run with UPDATE_GOLDEN=1");
}
