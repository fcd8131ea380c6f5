//! Fields of a form: url-encoded, or multipart/form-data (RFC 7578) with its parts as fields.
//!
//! Must stay true: the body's own bytes decide which, because a signature covers them and not the content type; what is
//! neither has no fields that could be looked for; and what two readers could take apart differently is not a form.

use std::borrow::Cow;

use super::unclear::{Unclear, one};
use crate::limits::FORM_PARTS_COUNT;

/// The one value of a field in a form.
pub(crate) fn field<'b>(body: &'b [u8], name: &str) -> Result<Option<Cow<'b, str>>, Unclear> {
    if is_url_encoded(body) {
        let all = form_urlencoded::parse(body).filter(|(field, _)| field == name);
        return one(all.map(|(_, value)| value));
    }
    let parts = parts(body).ok_or(Unclear::NotForm)?;
    let value = one(parts.into_iter().filter(|part| part.name == name))?;
    let text = value.map(|part| std::str::from_utf8(part.content).or(Err(Unclear::NotText)));
    Ok(text.transpose()?.map(Cow::Borrowed))
}

/// The text of a field that is all that a form has but for the field `beside`: no file, and decoded without a loss. `None`
/// for any other body.
pub(crate) fn only_field(body: &[u8], name: &str, beside: Option<&str>) -> Option<String> {
    let is_beside = |own: &str| Some(own) == beside;
    let pairs = || form_urlencoded::parse(body);
    // First: a stranger's form of many fields is not read to its end.
    if is_url_encoded(body) && pairs().filter(|(own, _)| !is_beside(own)).nth(1).is_some() {
        return None;
    }
    let text = field(body, name).ok()??.into_owned();
    let is_only = match parts(body) {
        Some(parts) => {
            let mut others = parts.iter().filter(|part| !is_beside(part.name) || part.is_file);
            others.next().is_some_and(|part| part.name == name && !part.is_file)
                && others.next().is_none()
        }
        None => {
            // Bytes outside UTF-8 are decoded to this character too.
            let unknown = |text: &str| text.matches('\u{fffd}').count();
            let decoded: usize =
                pairs().map(|(name, value)| unknown(&name) + unknown(&value)).sum();
            let written = std::str::from_utf8(body).ok()?.to_ascii_uppercase();
            let meant = written.matches("%EF%BF%BD").count() + unknown(&written);
            decoded == meant
        }
    };
    is_only.then_some(text)
}

/// The form with `***` for each value of a field; `None` if the body is not a form that has it.
pub(super) fn masked(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut masked = Vec::with_capacity(body.len());
    if is_url_encoded(body) {
        let mut found = false;
        for (nth, pair) in body.split(|&byte| byte == b'&').enumerate() {
            if nth > 0 {
                masked.push(b'&');
            }
            let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            let own = form_urlencoded::parse(&pair[..end]).any(|(own, _)| own == name);
            found |= own;
            masked.extend_from_slice(if own { &pair[..end] } else { pair });
            masked.extend_from_slice(if own { b"=***" } else { b"" });
        }
        return found.then_some(masked);
    }
    let mut at = 0;
    for part in parts(body)?.into_iter().filter(|part| part.name == name) {
        let begin = part.content.as_ptr().addr() - body.as_ptr().addr();
        masked.extend_from_slice(&body[at..begin]);
        masked.extend_from_slice(b"***");
        at = begin + part.content.len();
    }
    masked.extend_from_slice(&body[at..]);
    (at > 0).then_some(masked)
}

/// Whether a body begins as JSON does. Its bytes decide, because the signature covers them; it does not cover the
/// content type.
pub(super) fn begins_as_json(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    matches!(body.iter().find(|b| !b.is_ascii_whitespace()), Some(b'{' | b'['))
}

/// Whether a body can be a url-encoded form. An empty one has no fields; any other has a '=', and is one line of text that
/// begins neither as JSON nor as XML does.
pub(super) fn is_url_encoded(body: &[u8]) -> bool {
    let is_markup = matches!(body.trim_ascii_start().first(), Some(b'<' | b'"'));
    let is_line = || {
        let has_control = body.iter().any(u8::is_ascii_control);
        body.contains(&b'=') && !has_control && std::str::from_utf8(body).is_ok()
    };
    body.is_empty() || (!is_markup && !begins_as_json(body) && is_line())
}

/// A part of multipart/form-data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'b> {
    pub(super) name: &'b str,
    /// It has the name of a file.
    pub(super) is_file: bool,
    /// Its content type is `application/json`.
    pub(super) is_json: bool,
    pub(super) content: &'b [u8],
}

/// The parts. The first line is the delimiter: senders write nothing before it, and nothing behind the
/// last one.
pub(super) fn parts(body: &[u8]) -> Option<Vec<Part<'_>>> {
    let mut lines = body.split_inclusive(|&byte| byte == b'\n');
    let first = lines.next()?;
    let delimiter = first.strip_suffix(b"\r\n").filter(|line| is_delimiter(line))?;
    let mut parts = Vec::new();
    let (mut begin, mut at) = (first.len(), first.len());
    for line in lines {
        let end = at;
        at += line.len();
        // A line that only begins so is one that readers could take for a delimiter.
        let Some(rest) = line.strip_prefix(delimiter) else { continue };
        let is_last = matches!(rest, b"--" | b"--\r\n");
        if !is_last && rest != b"\r\n" || parts.len() == FORM_PARTS_COUNT {
            return None;
        }
        parts.push(part(body[begin..end].strip_suffix(b"\r\n")?)?);
        if is_last {
            return (at == body.len()).then_some(parts);
        }
        begin = at;
    }
    None
}

/// Two hyphens and a boundary of 1 to 70 characters (RFC 2046, section 5.1.1).
fn is_delimiter(line: &[u8]) -> bool {
    let boundary = line.strip_prefix(b"--").unwrap_or_default();
    (1..=70).contains(&boundary.len()) && boundary.iter().all(|byte| (b' '..=b'~').contains(byte))
}

fn part(part: &[u8]) -> Option<Part<'_>> {
    let (mut rest, mut disposition, mut is_json) = (part, None, false);
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 2..];
        if line.is_empty() {
            let (name, is_file) = disposition?;
            return Some(Part { name, is_file, is_json, content: rest });
        }
        let (header, value) = line.split_once(':')?;
        if header.eq_ignore_ascii_case("content-disposition") {
            let found = named(value)?;
            disposition.replace(found).map_or(Some(()), |_| None)?;
        }
        is_json |=
            header.eq_ignore_ascii_case("content-type") && value.trim() == "application/json";
        let is_plain = |value: &str| ["7bit", "8bit", "binary"].contains(&value);
        let encodes = header.eq_ignore_ascii_case("content-transfer-encoding");
        if encodes && !is_plain(&value.trim().to_ascii_lowercase()) {
            return None;
        }
    }
}

/// The name in `form-data; name="a"; filename="b"`, and whether it is a file's. Libraries escape a quote in different ways,
/// so a name has none, and neither a backslash nor a percent sign.
fn named(disposition: &str) -> Option<(&str, bool)> {
    let (kind, mut rest) = disposition.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    let (mut name, mut is_file) = (None, false);
    loop {
        let (key, value) = rest.trim_start().split_once('=')?;
        let (text, behind) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        match key.trim_end().to_ascii_lowercase().as_str() {
            "name" if name.is_none() && !text.contains(['\\', '%']) => name = Some(text),
            "name" | "name*" => return None,
            "filename" | "filename*" => is_file |= !text.is_empty(),
            _ => {}
        }
        match behind.trim() {
            "" => return Some((name?, is_file)),
            more => rest = more.strip_prefix(';')?,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PLEX: &str = "--b1\r\nContent-Disposition: form-data; name=\"payload\"\r\n\
        Content-Type: application/json\r\n\r\n{\"event\":\"media.play\"}\r\n\
        --b1\r\nContent-Disposition: form-data; name=\"thumb\"; filename=\"C:\\t.jpg\"\r\n\r\n\
        a\r\n--b\r\n\r\n--b1--\r\n";

    fn text<'b>(body: &'b str, name: &str) -> Result<Option<Cow<'b, str>>, Unclear> {
        field(body.as_bytes(), name)
    }

    #[test]
    fn a_part_is_a_field() {
        assert_eq!(text(PLEX, "payload"), Ok(Some("{\"event\":\"media.play\"}".into())));
        assert_eq!(text(PLEX, "thumb"), Ok(Some("a\r\n--b\r\n".into())));
        assert_eq!(text(PLEX, "other"), Ok(None));
        let twice = PLEX.replace("thumb", "payload");
        assert_eq!(text(&twice, "payload"), Err(Unclear::Twice));
        let raw = PLEX.replace("{\"event\":\"media.play\"}", "\u{e4}").into_bytes();
        let at = raw.iter().position(|&byte| byte == 0xC3).unwrap();
        let latin = [&raw[..at], &raw[at + 1..]].concat();
        assert_eq!(field(&latin, "payload"), Err(Unclear::NotText));
        for bare in ["name=payload", "filename=\"a;name=b\"; NAME=\"payload\""] {
            assert!(text(&PLEX.replace("name=\"payload\"", bare), "payload").is_ok(), "{bare}");
        }
    }

    #[test]
    fn what_readers_could_take_apart_differently_is_not_a_form() {
        for (from, to) in [
            ("--b1--\r\n", "--b1--\r\nmore"),
            ("--b1--\r\n", ""),
            ("a\r\n--b\r\n", "a\r\n--b1x\r\n"),
            (
                "--b1\r\nContent-Disposition: form-data; name=\"payload\"",
                "--b1\nContent-Disposition: form-data; name=\"payload\"",
            ),
            ("form-data; name=\"payload\"", "form-data"),
            ("form-data; name=\"payload\"", "attachment; name=\"payload\""),
            ("name=\"payload\"", "name=\"pay\\\"load\""),
            ("name=\"payload\"", "name=\"pay%22load\""),
            ("name=\"payload\"", "name=\"payload\"; name=\"other\""),
            ("name=\"payload\"", "name*=UTF-8''payload"),
            ("Content-Type: application/json", "Content-Transfer-Encoding: base64"),
            ("Content-Type: application/json", "Content-Disposition: form-data; name=\"other\""),
        ] {
            let body = PLEX.replacen(from, to, 1);
            assert_ne!(body, PLEX, "{from}");
            assert_eq!(text(&body, "payload"), Err(Unclear::NotForm), "{from} {to}");
        }
        let part = "Content-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\n";
        let many = |count: usize| format!("--b\r\n{}", part.repeat(count));
        let ended = |count| many(count).strip_suffix("\r\n").unwrap().to_owned() + "--";
        assert_eq!(text(&ended(FORM_PARTS_COUNT), "b"), Ok(None));
        assert_eq!(text(&ended(FORM_PARTS_COUNT + 1), "b"), Err(Unclear::NotForm));
    }

    #[test]
    fn a_field_that_is_signed_alone_stands_alone() {
        let part = |disposition: &str| {
            format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n1\r\n")
        };
        let form = |parts: &str| format!("{parts}--b--\r\n");
        let own = part("name=\"a\"");
        for (body, wanted) in [
            ("a=1%2B+2", Some("1+ 2")),
            ("a=", Some("")),
            ("a=1&b=2", None),
            ("b=2&a=1", None),
            ("a=1&a=1", None),
            ("a=1& a=2", None),
            ("a=1&a[b]=2", None),
            ("b=1", None),
            ("", None),
            (r#"{"a":"1"}"#, None),
            ("a=%FF", None),
            ("a=%ef%bf%bd%EF%BF%BD\u{fffd}", Some("\u{fffd}\u{fffd}\u{fffd}")),
            ("a=%EF%BF%BD%FE", None),
            (&form(&own), Some("1")),
            (&form(&(own.clone() + &part("name=\"b\""))), None),
            (&form(&part("name=\"a\"; filename=\"f\"")), None),
        ] {
            assert_eq!(only_field(body.as_bytes(), "a", None).as_deref(), wanted, "{body}");
        }
    }

    #[test]
    fn only_a_line_of_fields_is_a_url_encoded_form() {
        for (body, wanted) in [
            ("", Ok(None)),
            ("a=1", Ok(Some("1".into()))),
            ("a=b c&d", Ok(Some("b c".into()))),
            ("b=1", Ok(None)),
            ("text", Err(Unclear::NotForm)),
            ("a=1\n", Err(Unclear::NotForm)),
            ("<a b=\"1\"/>", Err(Unclear::NotForm)),
            (" \"a=1\"", Err(Unclear::NotForm)),
            (" {\"t\":\"x&a=1&y\"}", Err(Unclear::NotForm)),
        ] {
            assert_eq!(text(body, "a"), wanted, "{body}");
        }
        assert_eq!(field(b"a=\xFF", "a"), Err(Unclear::NotForm));
    }
}
