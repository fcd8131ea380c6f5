//! Where in a request a value is found: a header, a place in the JSON body, or the body's digest.

use std::fmt;

/// A JSON pointer (RFC 6901), split into its decoded steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

/// Most steps of a pointer: providers' have up to 4, and the parser descends once per step.
const POINTER_STEPS_MAX: usize = 16;

impl Pointer {
    /// Reads `/a/b~1c/0`; an `Err` says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(steps) = text.strip_prefix('/') else {
            return Err(format!("'{text}' is no JSON pointer: it starts with '/', as in /data/id"));
        };
        let steps: Vec<String> =
            steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        if steps.len() > POINTER_STEPS_MAX {
            return Err(format!(
                "'{text}' has {} steps; {POINTER_STEPS_MAX} is the limit",
                steps.len()
            ));
        }
        Ok(Pointer(steps))
    }

    /// The steps from the root.
    pub(crate) fn steps(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            write!(f, "/{}", step.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

/// Where an event's id or type is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// `header:NAME`
    Header(String),
    /// `json:/POINTER`
    Json(Pointer),
    /// `digest`: of the body without its volatile fields. Ids only.
    Digest,
}

impl Place {
    /// Reads a place as it is written in a provider file; an `Err` says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "digest" {
            return Ok(Place::Digest);
        }
        match text.split_once(':') {
            Some(("header", name)) if is_header_name(name) => Ok(Place::Header(name.to_owned())),
            Some(("header", name)) => Err(format!("'{name}' is no header name")),
            Some(("json", pointer)) => Pointer::parse(pointer).map(Place::Json),
            _ => Err(format!("'{text}' is none of header:NAME, json:/POINTER, digest")),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header(name) => write!(f, "header {name}"),
            Place::Json(pointer) => write!(f, "{pointer} in the JSON body"),
            Place::Digest => f.write_str("the body's digest"),
        }
    }
}

/// Whether a text is an HTTP field name (a `token` of RFC 9110, section 5.6.2).
pub(crate) fn is_header_name(text: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn places_read_and_print() {
        let pointer = Pointer::parse("/a~1b/~01/0/").unwrap();
        assert_eq!(pointer.steps(), ["a/b", "~1", "0", ""]);
        assert_eq!(pointer.to_string(), "/a~1b/~01/0/");
        assert_eq!(Place::parse("header:X-Id"), Ok(Place::Header("X-Id".to_owned())));
        assert_eq!(Place::parse("digest"), Ok(Place::Digest));
        for bad in [
            "",
            "header:",
            "header:a b",
            "json:id",
            "body",
            "json",
            &format!("json:{}", "/a".repeat(17)),
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
