//! Places in a request that hold a value: a header, a field of the body, or the body's digest.
//!
//! Provider files and the configuration name places as text; `verify` reads the values. Must stay
//! true: parsing accepts only places that `verify` can read.

use std::fmt;

use crate::model::is_header_name;
use crate::payload::Pointer;

/// The part of a request that holds an event's id or type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// `header:NAME`
    Header(String),
    /// `key:NAME`: a header that holds a key, quoted or bare (see [`key_text`]).
    Key(String),
    /// `json:/POINTER`
    Json(Pointer),
    /// `form:FIELD`: a field of a form-encoded body.
    Form(String),
    /// `digest`: the digest of the body without its volatile fields. For ids only.
    Digest,
    /// `new`: another id for each request, which the receiver makes. For ids only.
    New,
    /// `signed`: the digest of all that is signed. For keys of requests that a handler answers only.
    Signed,
    /// `{ join = […] }`: the values of all of these together. For ids only.
    Join(Vec<Place>),
}

impl Place {
    /// Reads a place in the form of a provider file; an `Err` says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "digest" => return Ok(Place::Digest),
            "new" => return Ok(Place::New),
            _ => {}
        }
        match text.split_once(':') {
            Some(("header", name)) if is_header_name(name) => Ok(Place::Header(name.to_owned())),
            Some(("key", name)) if is_header_name(name) => Ok(Place::Key(name.to_owned())),
            Some(("header" | "key", name)) => Err(format!("'{name}' is not a header name")),
            Some(("json", pointer)) => Pointer::parse(pointer).map(Place::Json),
            Some(("form", field)) if !field.is_empty() => Ok(Place::Form(field.to_owned())),
            _ => Err(format!(
                "must be one of header:NAME, key:NAME, json:/POINTER, form:FIELD, digest, new, not '{text}'"
            )),
        }
    }

    /// The places that this one joins, or itself.
    pub(crate) fn parts(&self) -> &[Place] {
        match self {
            Place::Join(places) => places,
            _ => std::slice::from_ref(self),
        }
    }

    /// The name of the header, if the place is a header.
    pub(crate) fn header(&self) -> Option<&str> {
        match self {
            Place::Header(name) | Place::Key(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header(name) | Place::Key(name) => write!(f, "header {name}"),
            Place::Json(pointer) => write!(f, "{pointer} in the JSON body"),
            Place::Form(field) => write!(f, "field {field} of the form"),
            Place::Digest => f.write_str("the body's digest"),
            Place::New => f.write_str("one that the receiver makes"),
            Place::Signed => f.write_str("the digest of all that is signed"),
            Place::Join(places) => {
                let texts: Vec<String> = places.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(" with "))
            }
        }
    }
}

/// The idempotency key in a header's value. draft-ietf-httpapi-idempotency-key-header writes it as a
/// quoted string (RFC 8941, section 3.3.3); Stripe's libraries and most clients write it without quotes.
/// Both forms give the same key. `None` if the value is neither.
pub(crate) fn key_text(value: &str) -> Option<String> {
    let value = value.trim_matches([' ', '\t']);
    let Some(quoted) = value.strip_prefix('"') else {
        return (!value.contains('"')).then(|| value.to_owned());
    };
    let mut text = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.as_str().is_empty().then_some(text),
            '\\' => text.push(rest.next().filter(|next| matches!(next, '"' | '\\'))?),
            plain => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_is_parsed_and_printed_in_one_form() {
        let pointer = Pointer::parse("/a~1b/~01/0/").unwrap();
        assert_eq!(pointer.steps(), ["a/b", "~1", "0", ""]);
        assert_eq!(pointer.to_string(), "/a~1b/~01/0/");
        assert_eq!(Place::parse("header:X-Id"), Ok(Place::Header("X-Id".to_owned())));
        assert_eq!(Place::parse("digest"), Ok(Place::Digest));
        assert_eq!(Place::parse("key:X-Key"), Ok(Place::Key("X-Key".to_owned())));
        assert_eq!(Place::parse("form:a b"), Ok(Place::Form("a b".to_owned())));
        for bad in [
            "",
            "header:",
            "header:a b",
            "key:",
            "key:a b",
            "form:",
            "json:id",
            "body",
            "json",
            &format!("json:{}", "/a".repeat(17)),
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_quoted_and_an_unquoted_key_are_equal() {
        for (value, key) in [
            ("a", Some("a")),
            (r#""a""#, Some("a")),
            (r#" "a"	"#, Some("a")),
            (r#""a\"b\\""#, Some(r#"a"b\"#)),
            (r"a\b", Some(r"a\b")),
            (r#""""#, Some("")),
            ("", Some("")),
            (r#"""#, None),
            (r#""a"#, None),
            (r#"a""#, None),
            (r#"a"b"#, None),
            (r#""a"b"#, None),
            (r#""a";p=1"#, None),
            (r#""a", "b""#, None),
            (r#""a\b""#, None),
            (r#""a\"#, None),
        ] {
            assert_eq!(key_text(value).as_deref(), key, "{value}");
        }
    }
}
