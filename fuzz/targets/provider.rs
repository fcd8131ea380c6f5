//! A provider file. If the scheme can sign a request, it must also verify it.

use hooklatch::document::Problems;
use hooklatch::model::Headers;
use hooklatch::provider::Scheme;

use super::signing;

pub(super) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parse = |text: &str| {
        let problems = Problems::new();
        let scheme = Scheme::parse("own.toml", text, &problems);
        let problems = problems.into_sorted();
        assert_eq!(scheme.is_none(), !problems.is_empty(), "a scheme or problems, and never both");
        for problem in &problems {
            assert!(problem.line <= text.lines().count() + 1, "{problem}: there is no such line");
        }
        scheme
    };
    let Some(scheme) = parse(text) else { return };
    if !text.starts_with('\u{feff}') {
        assert_eq!(parse(&format!("# a comment\n{text}")).as_ref(), Some(&scheme));
        assert_eq!(parse(&format!("nobody-knows-this = 1\n{text}")), None, "an unknown key");
    }
    signing::check(&scheme, &Headers::new(), br#"{"id":"evt_1","type":"x"}"#, false);
}
