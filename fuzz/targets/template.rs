//! Templates of signed content. The first line of the input is a template. The two halves of the rest, separated
//! by a line of `=`, fill it: each has one line for every part except the body, which follows.

use hooklatch::probe;

const PARTS: [&str; 4] = ["{timestamp}", "{id}", "{method}", "{url}"];

pub(super) fn check(data: &[u8]) {
    let Some((template, rest)) = super::text_line(data) else { return };
    let fence = rest.windows(3).position(|window| window == b"\n=\n");
    let (one, other) = fence.map_or((rest, rest), |at| (&rest[..at], &rest[at + 3..]));
    let (one, other) = (values(one), values(other));
    let fill = |values: &[Vec<u8>]| probe::fill(template, |part| of(part, values));
    let (Ok(first), Ok(second)) = (fill(&one), fill(&other)) else {
        assert!(
            fill(&one).is_err() && fill(&other).is_err(),
            "a template is one for every request"
        );
        return;
    };
    // Two braces stand for one in a literal.
    let unescaped = template.replace("{{", "");
    let named = |part: &str| unescaped.contains(part);
    if !named("{body}") {
        // It signs other parts of a body, which are read from it and not filled here.
        return;
    }
    // Two requests must not give the same signed bytes. Timestamp, method and URL have grammars that the
    // verifier checks, so they are the same in both here.
    let fixed = ["{timestamp}", "{method}", "{url}"].iter().any(|part| named(part));
    let differ = ["{id}", "{body}", "{header:"].iter().any(|part| {
        let part = if *part == "{header:" { "{header:X}" } else { part };
        of(part, &one) != of(part, &other)
            && (named(part) || (part == "{header:X}" && named("{header:")))
    });
    if let (Some(first), Some(second), false) = (first, second, fixed) {
        assert!(!differ || first != second, "two requests, one signed content");
    }
}

fn values(text: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = text;
    let mut all = Vec::new();
    for _ in 0..=PARTS.len() {
        let (line, behind) = super::line(rest);
        all.push(line.to_vec());
        rest = behind;
    }
    all.push(rest.to_vec());
    all
}

/// The value of a part; all headers have the same value.
fn of(part: &str, values: &[Vec<u8>]) -> Vec<u8> {
    let at = match PARTS.iter().position(|known| *known == part) {
        Some(at) => at,
        None if part == "{body}" => PARTS.len() + 1,
        None => PARTS.len(),
    };
    values[at].clone()
}
