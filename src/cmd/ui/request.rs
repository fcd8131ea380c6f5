//! A request for a page or a change: its path and parameters, decoded.

use std::fmt::Display;
use std::str::FromStr;

use form_urlencoded::Serializer;

use crate::exit::{Exit, Failure};

/// Parameters of a query or a form; more than people fill in means another client.
const PARAMETERS: usize = 300;

pub(super) struct Request {
    /// The segments of the path; texts from outside are in parameters.
    pub(super) path: Vec<String>,
    pub(super) parameters: Vec<(String, String)>,
    /// Path and query as they came.
    pub(super) target: String,
    /// `light` or `dark`, where this browser has chosen.
    pub(super) theme: Option<String>,
}

impl Request {
    /// `form` is the body of a POST.
    pub(super) fn parse(target: &str, form: &[u8]) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.split('/').filter(|segment| !segment.is_empty());
        let parameters = form_urlencoded::parse(query.as_bytes()).into_owned();
        let parameters = parameters.chain(form_urlencoded::parse(form).into_owned());
        Request {
            path: path.map(str::to_owned).collect(),
            parameters: parameters.take(PARAMETERS).collect(),
            target: target.to_owned(),
            theme: None,
        }
    }

    pub(super) fn is_change(&self) -> bool {
        self.path.first().is_some_and(|first| first == "change")
    }

    /// A parameter that is there and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// A parameter that is there, as it came.
    pub(super) fn exactly(&self, name: &str) -> Option<String> {
        let named = self.parameters.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| value.clone())
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let all = self.parameters.iter();
        let named = all.filter(move |(known, _)| known == name);
        let values = named.map(|(_, value)| value.trim());
        values.filter(|value| !value.is_empty())
    }

    /// A parameter that may be left out.
    pub(super) fn read<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Failure> {
        let parsed = self.get(name).map(str::parse).transpose();
        parsed.map_err(|error| Exit::Usage.failure(format!("{name}: {error}")))
    }

    /// A parameter that is needed.
    pub(super) fn need<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, Failure> {
        let read = self.read(name)?;
        read.ok_or_else(|| Exit::Usage.failure(format!("{name} is missing")))
    }

    /// The path with this parameter changed, or left out where there is no value.
    pub(super) fn with(&self, name: &str, value: Option<&str>) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let others = self.parameters.iter().filter(|(known, _)| known != name);
        let others = others.map(|(name, value)| (name.as_str(), value.as_str()));
        link(path, others.chain(value.map(|value| (name, value))))
    }
}

/// A path with a query.
pub(super) fn link<'a>(path: &str, query: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let query = Serializer::new(String::new()).extend_pairs(query).finish();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{path}{mark}{query}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_link_changes_one_parameter() {
        let request = Request::parse("/events?source=a&type=b+c&before=7", b"");
        assert_eq!(request.with("before", None), "/events?source=a&type=b+c");
        assert_eq!(request.with("type", Some("d&e")), "/events?source=a&before=7&type=d%26e");
    }
}
