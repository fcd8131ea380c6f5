//! The signed content of a request: literals and raw parts of the request, in a fixed order.
//!
//! Provider files declare it and `verify` fills in the parts. Must stay true: two different requests
//! never give the same signed bytes. [`Template::parse`] refuses templates that cannot guarantee
//! this; [`Template::fill`] refuses requests that would make a boundary ambiguous.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use crate::payload::Pointer;

/// A raw part of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// The timestamp as text, exactly as received.
    Timestamp,
    /// The event id's header, exactly as received.
    Id,
    /// The raw body.
    Body,
    /// The request method.
    Method,
    /// The configured public URL with the request's path and query.
    Url,
    /// The path of the public URL, and its query, escaped as Contentful does it.
    Path,
    /// One header's value.
    Header(String),
    /// The headers that this header names, itself among them: `name:value`, joined by `;` and sorted.
    Named(String),
    /// The fields of a form, sorted by name and then by value, each once: name and value, nothing between them.
    Form,
    /// The URL and a form as Plivo joins them: the URL with its query sorted and decoded, and the fields of the form as
    /// in [`Part::Form`] but each as often as it is there.
    UrlForm,
    /// One field of a form, decoded.
    Field(String),
    /// The body as a string of JSON, as JavaScript writes it. Its quotes end it.
    JsonString,
    /// An item of the signature header.
    Item(String),
    /// The headers that an item of the signature header names: the names, and after a dot their values, joined by dots.
    Listed(String),
    /// The text at a place of the JSON body; empty if there is none.
    Json(Pointer),
    /// The text at a place of the JSON body where it may hold the literals around it: the one part that is found from
    /// both ends.
    Free(Pointer),
    /// The URL with the other way to write its port: the standard port if it has none, else without its port.
    OtherPort,
    /// Name and value, each on a line, of each of these members that the JSON body has, in this order.
    Lines(Vec<(String, Pointer)>),
    /// The CRC-32 of the body in decimal digits.
    Crc32,
    /// What the source has as `sender`.
    Sender,
}

/// The parts but headers, by name.
const PARTS: [(&str, Part); 12] = [
    ("timestamp", Part::Timestamp),
    ("id", Part::Id),
    ("body", Part::Body),
    ("method", Part::Method),
    ("url", Part::Url),
    ("url-other-port", Part::OtherPort),
    ("path", Part::Path),
    ("form", Part::Form),
    ("url+form", Part::UrlForm),
    ("crc32:body", Part::Crc32),
    ("json-string:body", Part::JsonString),
    ("sender", Part::Sender),
];

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, PARTS.iter().find(|(_, part)| part == self)) {
            (Part::Header(name), _) => write!(f, "{{header:{name}}}"),
            (Part::Named(name), _) => write!(f, "{{headers-in:{name}}}"),
            (Part::Listed(item), _) => write!(f, "{{headers:{item}}}"),
            (Part::Field(name), _) => write!(f, "{{form:{name}}}"),
            (Part::Item(item), _) => write!(f, "{{item:{item}}}"),
            (Part::Json(pointer), _) => write!(f, "{{json:{pointer}}}"),
            (Part::Free(pointer), _) => write!(f, "{{any-json:{pointer}}}"),
            (Part::Lines(members), _) => {
                let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
                write!(f, "{{lines:{}}}", names.join(","))
            }
            (_, Some((name, _))) => write!(f, "{{{name}}}"),
            (_, None) => Ok(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Part(Part),
}

/// A parsed template, such as `{timestamp}.{body}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

/// The error for a part that contains the literal next to it: an attacker could then move bytes
/// between parts without changing the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blurred {
    pub(crate) part: Part,
    /// The literal that the part must not contain.
    pub(crate) literal: String,
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Literal(text) => f.write_str(&text.replace('{', "{{")),
            Piece::Part(part) => write!(f, "{part}"),
        })
    }
}

impl Template {
    /// Reads a template; an `Err` says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut literal = String::new();
        while let Some(open) = rest.find('{') {
            literal.push_str(&rest[..open]);
            if rest[open + 1..].starts_with('{') {
                literal.push('{');
                rest = &rest[open + 2..];
                continue;
            }
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            let close = rest[open..].find('}').ok_or_else(|| {
                format!("'{{' at byte {} is never closed", text.len() - rest.len() + open)
            })?;
            pieces.push(Piece::Part(part(&rest[open + 1..open + close])?));
            rest = &rest[open + close + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        let template = Template(pieces);
        template.check()?;
        Ok(template)
    }

    /// Whether the body begins where the URL ends, with nothing between them.
    pub(crate) fn joins_url_and_body(&self) -> bool {
        let joined = |two: &[Piece]| {
            let [first, second] = two else { return false };
            let is_url = matches!(first, Piece::Part(Part::Url | Part::OtherPort));
            is_url && *second == Piece::Part(Part::Body)
        };
        self.0.windows(2).any(joined)
    }

    /// Whether the signature covers this part.
    pub(crate) fn has(&self, part: &Part) -> bool {
        self.parts().any(|p| p == part)
    }

    /// The names in the template's `{header:NAME}` parts.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &str> {
        self.parts().filter_map(|part| match part {
            Part::Header(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The header that names the signed headers.
    pub(crate) fn naming_header(&self) -> Option<&str> {
        self.parts().find_map(|part| match part {
            Part::Named(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The item of the signature header that is signed, or names signed headers.
    pub(crate) fn item(&self) -> Option<&str> {
        self.parts().find_map(|part| match part {
            Part::Listed(item) | Part::Item(item) => Some(item.as_str()),
            _ => None,
        })
    }

    /// Whether the item names signed headers.
    pub(crate) fn lists_headers(&self) -> bool {
        self.parts().any(|part| matches!(part, Part::Listed(_)))
    }

    /// The field of a form that is signed alone.
    pub(crate) fn field(&self) -> Option<&str> {
        self.parts().find_map(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The literals with `text` for a field.
    pub(crate) fn around(&self, text: &str) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(literal) => literal.clone(),
            Piece::Part(Part::Field(_)) => text.to_owned(),
            Piece::Part(_) => String::new(),
        };
        self.0.iter().map(piece).collect()
    }

    /// The places in the JSON body that it reads.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.parts().flat_map(|part| {
            let (one, many): (Option<&Pointer>, &[(String, Pointer)]) = match part {
                Part::Json(pointer) | Part::Free(pointer) => (Some(pointer), &[]),
                Part::Lines(members) => (None, members),
                _ => (None, &[]),
            };
            one.into_iter().chain(many.iter().map(|(_, pointer)| pointer))
        })
    }

    /// The literals and the values of the parts, in order; `value` returns the value of a part.
    ///
    /// # Errors
    /// A part before the body contains the literal that follows it, or a part after the body contains
    /// the literal before it. The body may contain anything, because a reader finds the boundaries
    /// from both ends.
    pub(crate) fn fill<'a>(
        &'a self,
        mut value: impl FnMut(&'a Part) -> Cow<'a, [u8]>,
    ) -> Result<Vec<Cow<'a, [u8]>>, Blurred> {
        let body_at = self.body_at();
        let literal = |at: Option<usize>| match at.and_then(|at| self.0.get(at)) {
            Some(Piece::Literal(literal)) => literal.as_str(),
            _ => "",
        };
        let fill = |(at, piece): (usize, &'a Piece)| match piece {
            Piece::Literal(text) => Ok(text.as_bytes().into()),
            Piece::Part(part) => {
                let bytes = value(part);
                let (fence, clear) = match at.cmp(&body_at) {
                    Ordering::Equal => return Ok(bytes),
                    // Who fills it in ensures that the body's first byte is its end.
                    _ if matches!(part, Part::Listed(_)) => return Ok(bytes),
                    _ if matches!(part, Part::Timestamp) && is_utc(&bytes) => return Ok(bytes),
                    Ordering::Less => {
                        let fence = literal(Some(at + 1));
                        (fence, ends_at_first(&bytes, fence.as_bytes()))
                    }
                    Ordering::Greater => {
                        let fence = literal(at.checked_sub(1));
                        (fence, begins_after_last(fence.as_bytes(), &bytes))
                    }
                };
                if clear {
                    Ok(bytes)
                } else {
                    Err(Blurred { part: part.clone(), literal: fence.to_owned() })
                }
            }
        };
        self.0.iter().enumerate().map(fill).collect()
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Part(part) => Some(part),
            Piece::Literal(_) => None,
        })
    }

    fn body_at(&self) -> usize {
        let is_free = |piece: &Piece| matches!(piece, Piece::Part(part) if is_free(part));
        self.0.iter().position(is_free).unwrap_or(self.0.len())
    }

    fn check(&self) -> Result<(), String> {
        let is_of_body = |part: &Part| is_free(part) || matches!(part, Part::Json(_) | Part::Crc32);
        if !self.parts().any(is_of_body) {
            let why = "a signature that leaves the body out proves nothing about it";
            return Err(format!("has no {{body}}: {why}"));
        }
        let mut free = self.parts().filter(|part| is_free(part));
        if let (Some(one), Some(other)) = (free.next(), free.next()) {
            return Err(format!(
                "has {one} and {other}, which may both hold anything: bytes could be moved from one to the other"
            ));
        }
        for (n, part) in self.parts().enumerate() {
            if self.parts().take(n).any(|earlier| earlier == part) {
                return Err(format!("has {part} more than once"));
            }
        }
        let before_body = |at: usize| {
            matches!(self.0.get(at + 1..), Some([Piece::Literal(_), Piece::Part(Part::Body), ..]))
        };
        let listed = self.0.iter().position(|piece| matches!(piece, Piece::Part(Part::Listed(_))));
        if listed.is_some_and(|at| !before_body(at)) {
            return Err(
                "has {headers:ITEM}, which must come before a literal and {body}".to_owned()
            );
        }
        if self.parts().filter(|part| matches!(part, Part::Listed(_) | Part::Item(_))).count() > 1 {
            return Err("has two items of the signature header; one can be signed".to_owned());
        }
        for pair in self.0.windows(2) {
            if let [Piece::Part(Part::Url | Part::OtherPort), Piece::Part(part)] = pair
                && is_free(part)
                && !matches!(part, Part::Body | Part::Form)
            {
                return Err(format!(
                    "has the URL and {part} with nothing between: the end of a query could be moved"
                ));
            }
            if let [Piece::Part(left), Piece::Part(right)] = pair
                && !fixed(left)
                && !fixed(right)
            {
                return Err(format!(
                    "has {left}{right} with nothing between: bytes could be moved from one to the other"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a part may hold anything. Everything else is found from the ends of the signed content.
fn is_free(part: &Part) -> bool {
    matches!(
        part,
        Part::Body
            | Part::JsonString
            | Part::Form
            | Part::UrlForm
            | Part::Field(_)
            | Part::Lines(_)
            | Part::Free(_)
    )
}

/// Whether the form of a part fixes where it ends. A timestamp must be plain digits or a date within
/// minutes of now, so a moved byte makes it invalid; the receiver has the method, the URL, the sender and the checksum
/// itself. Of two places of the body the first must be such a timestamp: no provider joins others without a literal.
fn fixed(part: &Part) -> bool {
    matches!(
        part,
        Part::Timestamp
            | Part::Method
            | Part::Url
            | Part::OtherPort
            | Part::Json(_)
            | Part::Crc32
            | Part::Sender
    )
}

fn part(name: &str) -> Result<Part, String> {
    if let Some((_, part)) = PARTS.into_iter().find(|(known, _)| *known == name) {
        return Ok(part);
    }
    match name.split_once(':') {
        Some(("header", header)) if crate::model::is_header_name(header) => {
            Ok(Part::Header(header.to_owned()))
        }
        Some(("headers-in", name)) if crate::model::is_header_name(name) => {
            Ok(Part::Named(name.to_owned()))
        }
        Some(("headers", item)) if crate::model::is_header_name(item) => {
            Ok(Part::Listed(item.to_owned()))
        }
        Some(("item", item)) if crate::model::is_header_name(item) => {
            Ok(Part::Item(item.to_owned()))
        }
        Some(("form", field)) if !field.is_empty() => Ok(Part::Field(field.to_owned())),
        Some(("json", pointer)) => Pointer::parse(pointer).map(Part::Json),
        Some(("any-json", pointer)) => Pointer::parse(pointer).map(Part::Free),
        Some(("lines", names)) => {
            let member = |name: &str| Ok((name.to_owned(), Pointer::parse(&format!("/{name}"))?));
            names.split(',').map(member).collect::<Result<_, String>>().map(Part::Lines)
        }
        _ => Err(format!(
            "has {{{name}}}, which is not one of {{timestamp}}, {{id}}, {{body}}, {{method}}, {{url}}, {{url-other-port}}, {{path}}, {{header:NAME}}, {{headers-in:NAME}}, {{headers:ITEM}}, {{item:ITEM}}, {{form}}, {{form:FIELD}}, {{url+form}}, {{json:/POINTER}}, {{any-json:/POINTER}}, {{lines:NAME,…}}, {{crc32:body}}, {{json-string:body}}, {{sender}}"
        )),
    }
}

/// Whether cutting `part` + `literal` at the first `literal` gives `part`. An empty literal always
/// passes: [`Template::check`] allows it only next to a part with a fixed form.
fn ends_at_first(part: &[u8], literal: &[u8]) -> bool {
    let joined = [part, literal].concat();
    literal.is_empty()
        || joined.windows(literal.len()).position(|w| w == literal) == Some(part.len())
}

/// Whether cutting `literal` + `part` at the last `literal` gives `part`.
fn begins_after_last(literal: &[u8], part: &[u8]) -> bool {
    let joined = [literal, part].concat();
    literal.is_empty() || joined.windows(literal.len()).rposition(|w| w == literal) == Some(0)
}

/// Whether `bytes` has the form of an RFC 3339 time in UTC. Its `Z` ends it: a part of it has no offset and is not a time,
/// and neither is a longer text, so a `.` or `:` inside moves no border.
fn is_utc(bytes: &[u8]) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let is_digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_digit);
    let Some((time, rest)) = bytes.split_at_checked(FORM.len()) else { return false };
    let has_form = time.iter().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        _ => byte == form,
    });
    let is_end = match rest {
        [b'.', first, fraction @ .., b'Z'] => first.is_ascii_digit() && is_digits(fraction),
        _ => rest == b"Z",
    };
    has_form && is_end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fill(template: &str, id: &str, time: &str, body: &str) -> Result<String, Blurred> {
        let template = Template::parse(template).unwrap();
        let pieces = template.fill(|part| {
            let text = match part {
                Part::Id => id,
                Part::Timestamp => time,
                _ => body,
            };
            Cow::Owned(text.to_owned().into_bytes())
        })?;
        Ok(String::from_utf8(pieces.concat()).unwrap())
    }

    #[test]
    fn a_time_in_utc_may_contain_its_delimiter() {
        for template in ["{id}.{timestamp}.{body}", "{id}:{timestamp}:{body}", "{body}.{timestamp}"]
        {
            for time in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z"] {
                assert!(fill(template, "a", time, "x.y").is_ok(), "{template} {time}");
            }
            for time in [
                "2026-01-01T00:00:00.5+00:00",
                "2026-01-01T00:00:00.5",
                "2026-01-01T00:00:00.Z",
                "2026-01-01T00:00:00Z.5Z:Z",
                "2026-01-01T00:00:00.5Z.Z:Z",
                "2026-01-01T00:00:00.5.5Z:Z",
            ] {
                assert!(fill(template, "a", time, "x.y").is_err(), "{template} {time}");
            }
        }
    }

    #[test]
    fn parts_and_literals_are_joined_in_template_order() {
        assert_eq!(fill("{id}.{timestamp}.{body}", "a", "1", "x.y").unwrap(), "a.1.x.y");
        assert_eq!(fill("v0:{timestamp}:{body}", "", "1", ":").unwrap(), "v0:1::");
    }

    #[test]
    fn a_part_that_contains_its_delimiter_is_refused() {
        let blurred = |part, literal: &str| Err(Blurred { part, literal: literal.to_owned() });
        let standard = "{id}.{timestamp}.{body}";
        assert_eq!(fill(standard, "a.1", "2", "x"), blurred(Part::Id, "."));
        assert_eq!(fill(standard, "a", "1.5", "x"), blurred(Part::Timestamp, "."));
        assert_eq!(fill("{body}.{timestamp}", "", "1.5", "x.y"), blurred(Part::Timestamp, "."));
        assert_eq!(fill("{body}.{timestamp}", "", "15", "x.y").unwrap(), "x.y.15");
        let free = "{id}:{any-json:/a}:{timestamp}";
        assert_eq!(fill(free, "a", "1", "x:y:z").unwrap(), "a:x:y:z:1");
        assert_eq!(fill(free, "a:b", "1", "x"), blurred(Part::Id, ":"));
        assert_eq!(fill(free, "a", "1:2", "x"), blurred(Part::Timestamp, ":"));
        // "a." and "..x" join to the same bytes as "a" and "...x".
        assert_eq!(fill("{id}..{body}", "a.", "", "x"), blurred(Part::Id, ".."));
        assert_eq!(fill("{body}..{id}", ".a", "", "x"), blurred(Part::Id, ".."));
    }

    #[test]
    fn an_ambiguous_or_malformed_template_is_refused() {
        for (text, wrong) in [
            ("", "no {body}"),
            ("{timestamp}", "no {body}"),
            ("{body}.{body}", "may both hold anything"),
            ("{any-json:/a}:{any-json:/b}", "may both hold anything"),
            ("{body}.{headers:h}", "must come before a literal and {body}"),
            ("{headers:h}.{id}.{body}", "must come before a literal and {body}"),
            ("{headers:h}.{form}", "must come before a literal and {body}"),
            ("{any-json:/a}.{form}", "may both hold anything"),
            ("{id}.{id}.{body}", "{id} more than once"),
            ("{id}{body}", "nothing between"),
            ("{header:X-A}{header:X-B}.{body}", "nothing between"),
            ("{body", "never closed"),
            ("{bdy}", "not one of"),
            ("{header:}.{body}", "not one of"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }
}
