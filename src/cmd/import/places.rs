//! Where the values of a hook are here.

use crate::model::is_header_name;
use crate::payload::Place;

use super::hooks::Node;

/// How the body of a hook is read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Payload {
    /// The members and fields whose texts are JSON objects: those of `parse-parameters-as-json`.
    pub(super) parsed: Vec<String>,
    /// webhook reads every body as XML.
    pub(super) is_xml: bool,
}

impl Payload {
    pub(super) fn of(hook: &Node, wrong: &mut Vec<String>) -> Self {
        let mut payload = Payload::default();
        let fields = hook.nodes("parse-parameters-as-json").unwrap_or_else(|why| {
            wrong.push(why);
            Vec::new()
        });
        for field in fields {
            let (source, name) = match (field.text("source"), field.text("name")) {
                (Ok(source), Ok(name)) => (source, name),
                (Err(why), _) | (_, Err(why)) => {
                    wrong.push(why);
                    continue;
                }
            };
            if source != "payload" {
                wrong.push(format!("parse-parameters-as-json of '{name}' in '{source}'"));
            } else if name.contains('.') {
                wrong.push(format!(
                    "parse-parameters-as-json of '{name}': webhook answers 500 where that is there, because of the dot"
                ));
            } else if name.is_empty() || name.contains([',', '{', '}', ':']) {
                wrong
                    .push(format!("parse-parameters-as-json of '{name}': a character of its name"));
            } else {
                payload.parsed.push(name);
            }
        }
        let kind = hook.text("incoming-payload-content-type").unwrap_or_default();
        payload.is_xml = kind.contains("xml")
            && !kind.contains("json")
            && !kind.contains("x-www-form-urlencoded");
        payload
    }

    /// The place of a value; `None` if webhook never has one there. The error says why it cannot be named here.
    pub(super) fn place(&self, source: &str, name: &str) -> Result<Option<String>, String> {
        let text = match source {
            // Go keeps this one elsewhere.
            "header" if name.eq_ignore_ascii_case("host") => return Ok(None),
            "header" if !is_header_name(name) => return Ok(None),
            "header" => format!("header:{name}"),
            "url" | "query" => format!("query:{name}"),
            "entire-payload" => format!("body{}:", self.all_parsed()),
            "payload" if name.is_empty() => return Err("a payload parameter without a name".into()),
            "payload" => {
                let first = name.split('.').next().unwrap_or_default();
                match self.parsed.iter().any(|parsed| parsed == first || parsed == name) {
                    true => format!("body{}:{name}", self.all_parsed()),
                    false => format!("body:{name}"),
                }
            }
            other => return Err(format!("'{other}' as a source{}", of(name))),
        };
        match Place::parse(&text) {
            Ok(_) => Ok(Some(text)),
            Err(why) => Err(format!("'{source}' as a source{}: {why}", of(name))),
        }
    }

    fn all_parsed(&self) -> String {
        match &self.parsed[..] {
            [] => String::new(),
            parsed => format!("{{{}}}", parsed.join(",")),
        }
    }

    /// The pointer to a token in a JSON body.
    pub(super) fn pointer(&self, name: &str) -> Option<String> {
        let first = name.split('.').next().unwrap_or_default();
        if self.parsed.iter().any(|parsed| parsed == first) {
            return None;
        }
        let steps = name.strip_prefix("root.").unwrap_or(name).split('.');
        let escaped = |step: &str| format!("/{}", step.replace('~', "~0").replace('/', "~1"));
        Some(steps.map(escaped).collect())
    }
}

fn of(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" of '{name}'") }
}

/// Whether a name is that of an attribute or a text of XML, as webhook's reader of XML writes them.
pub(super) fn is_of_xml(name: &str) -> bool {
    name.split('.').any(|step| step == "#text" || step.len() > 1 && step.starts_with('-'))
}
