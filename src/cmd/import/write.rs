//! Turns a hook into the files of a source and its handler.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::command::Command;
use super::hooks::Node;
use super::places::{Payload, is_of_xml};
use super::provider;
use super::rules::{self, Carried, Line, Proof, Secret};
use super::texts::{comment, inline, quoted, toml};
use crate::model::Name;

/// What becomes of a hook.
pub(super) struct Imported {
    /// The hook's id, as the other program has it.
    pub(super) id: String,
    pub(super) name: Name,
    /// Why its stanza is commented out; empty if it is not.
    pub(super) left_out: Vec<String>,
    /// No signature and no token, and nothing else is wrong with its rule.
    pub(super) unsigned: bool,
    /// The difference, and what to do.
    pub(super) notes: Vec<String>,
    /// The texts of its secrets, each for a file of its own.
    pub(super) secrets: Vec<String>,
    stanza: String,
    provider: Option<String>,
}

/// What the other program takes and this one has no need of, or not in this form.
const MEMBERS: &[(&str, &str)] = &[
    ("response-message", ANSWER),
    ("response-headers", ANSWER),
    ("success-http-response-code", ANSWER),
    ("trigger-rule-mismatch-http-response-code", ANSWER),
    ("include-command-output-in-response", OUTPUT),
    ("include-command-output-in-response-on-error", OUTPUT),
];
const ANSWER: &str = "a provider is told what is true of its event";
const OUTPUT: &str = "`hooklatch show EVENT` has the command's output";

const KNOWN: &[&str] = &[
    "id",
    "execute-command",
    "command-working-directory",
    "pass-arguments-to-command",
    "pass-environment-to-command",
    "pass-file-to-command",
    "parse-parameters-as-json",
    "trigger-rule",
    "trigger-signature-soft-failures",
    "incoming-payload-content-type",
    "http-methods",
];

/// The methods that a source can take.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

impl Imported {
    pub(super) fn of(hook: &Node, id: String, name: Name, is_second: bool) -> Self {
        let mut imported = Imported {
            id,
            name,
            left_out: Vec::new(),
            unsigned: false,
            notes: Vec::new(),
            secrets: Vec::new(),
            stanza: String::new(),
            provider: None,
        };
        if is_second {
            let why = "another hook before it has this id, and webhook runs that one alone";
            imported.left_out.push(why.to_owned());
        }
        imported.fill(hook, is_second);
        let mut seen = BTreeSet::new();
        imported.notes.retain(|note| seen.insert(note.clone()));
        imported
    }

    fn fill(&mut self, hook: &Node, is_second: bool) {
        for name in hook.names() {
            match MEMBERS.iter().find(|(known, _)| *known == name) {
                Some((name, why)) => self.notes.push(format!("{name}: {why}")),
                None if KNOWN.contains(&name) => {}
                None => self.notes.push(format!("{name}: unknown, and without meaning there too")),
            }
        }
        let payload = Payload::of(hook, &mut self.left_out);
        let soft = hook.is_on("trigger-signature-soft-failures");
        let rule = rules::carry(hook.get("trigger-rule"), &payload, soft);
        let rule_is_said = rule.is_ok();
        let carried = rule.unwrap_or_else(|wrong| {
            self.left_out.extend(wrong);
            Carried::default()
        });
        self.notes.extend(carried.notes.iter().cloned());
        if let Some(lines) = &carried.addresses {
            self.left_out
                .push(format!("ip-whitelist is the proxy's task: in nginx `{lines}` for its path"));
        }
        if carried.proof.is_none() && rule_is_said {
            self.unsigned = carried.addresses.is_none() && !is_second;
            self.left_out.push("its rule has no signature and no token".to_owned());
        }
        if let Some(Proof::Field { pointer, form }) = &carried.proof
            && form.contains('.')
        {
            self.notes.push(format!(
                "its token is at {pointer} of a JSON body; a member that is called '{form}' as a whole is not looked at (401)"
            ));
        }
        if carried.proof.as_ref().is_some_and(provider::has_github_ids) {
            self.notes.push("an equal body under another X-GitHub-Delivery is held, as a suspected replay, but for the types of GitHub whose bodies repeat by nature".to_owned());
        }
        let methods = self.methods(hook, carried.proof.as_ref());
        let command = Command::of(hook, &payload, methods == ["POST"]);
        self.left_out.extend(command.wrong.iter().cloned());
        self.notes.extend(command.notes.iter().cloned());
        self.note_xml(&payload, &carried, &command);
        // Without its rule nothing could be said of the source but that it is open.
        match rule_is_said {
            true => self.source(&carried, &command, &methods),
            false => self.stanza.push_str("# Write its source and its `when` yourself.\n"),
        }
        self.handler(&carried, &command);
    }

    /// The methods that the source takes.
    fn methods(&mut self, hook: &Node, proof: Option<&Proof>) -> Vec<&'static str> {
        let named = hook.texts("http-methods");
        let signs = matches!(proof, Some(Proof::Signature { .. }));
        // In the body of a GET there is no token.
        let takes_get = matches!(proof, Some(Proof::Header(_) | Proof::Query(_)));
        if named.is_empty() {
            return if takes_get { vec!["GET", "POST"] } else { vec!["POST"] };
        }
        let named: Vec<String> = named.iter().map(|name| name.trim().to_uppercase()).collect();
        let mut taken = METHODS.to_vec();
        taken.retain(|own| named.iter().any(|name| name == own) && (takes_get || *own != "GET"));
        for other in named.iter().filter(|name| !taken.contains(&name.as_str())) {
            let why = match other.as_str() {
                "GET" if signs => "a signature of no body proves nothing",
                "GET" => "without a token in a header or parameter",
                _ => "no source takes it",
            };
            self.notes.push(format!("http-methods: {other} is not taken here: {why}"));
        }
        if taken.is_empty() {
            self.left_out.push(format!("http-methods: {}", named.join(", ")));
        }
        taken
    }

    fn note_xml(&mut self, payload: &Payload, carried: &Carried, command: &Command) {
        let places = carried.when.iter().flatten().map(|line| &line.place).chain(command.places());
        let mut in_body = places.filter(|place| place.starts_with("body"));
        if payload.is_xml && in_body.clone().next().is_some() {
            self.left_out.push("XML bodies, which are not read here".to_owned());
        } else if let Some(place) = in_body.find(|place| is_of_xml(place)) {
            let name = place.split_once(':').map_or("", |(_, name)| name);
            self.notes.push(format!(
                "'{name}' looks like a name of XML, which is not read here: the job of an XML body is held"
            ));
        }
    }

    fn source(&mut self, carried: &Carried, command: &Command, methods: &[&str]) {
        let name = &self.name;
        let mut text = format!("[sources.{name}]\n");
        match &carried.proof {
            None => text.push_str("provider = \"none\"\nallow_unsigned = true\n"),
            Some(proof) => {
                let provider: String = format!("hook-{name}").chars().take(64).collect();
                text.push_str(&format!("provider = {}\n", quoted(&provider)));
                let kept = kept(carried, command);
                self.provider = Some(provider::file(&provider, proof, &kept, &self.id));
            }
        }
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._~-".contains(char);
        let path = if self.id.chars().all(is_plain) { &self.id } else { name.as_str() };
        text.push_str(&format!("path = {}\n", quoted(&format!("/hooks/{path}"))));
        if *path != self.id {
            self.notes.push(format!("its URL ends in /hooks/{path} now"));
        }
        let mut references = Vec::new();
        for secret in &carried.secrets {
            references.push(match secret {
                Secret::Reference(reference) => Value::from(reference.as_str()),
                Secret::Text(text) => {
                    // A newline at the end of the file is not of the secret.
                    let end = if text.ends_with('\n') { "\n" } else { "" };
                    self.secrets.push(format!("{text}{end}"));
                    format!("file:secrets/{}", secret_file(name, self.secrets.len())).into()
                }
            });
        }
        if !references.is_empty() {
            text.push_str(&format!("secrets = {}\n", toml(&Value::Array(references))));
        }
        if methods != ["POST"] && !methods.is_empty() {
            text.push_str(&format!("methods = {}\n", toml(&json!(methods))));
        }
        self.stanza = text;
    }

    fn handler(&mut self, carried: &Carried, command: &Command) {
        let name = &self.name;
        let mut text = format!("\n[handlers.{name}]\nsource = \"{name}\"\nevents = [\"*\"]\n");
        let table = |lines: &Vec<Line>| {
            let lines = lines.iter().map(|Line { place, tests }| {
                let right = match &tests[..] {
                    [("is", value)] => toml(value),
                    tests => inline(tests.iter().map(|(name, value)| (*name, toml(value)))),
                };
                (place.as_str(), right)
            });
            inline(lines)
        };
        match &carried.when[..] {
            [] => {}
            [one] => text.push_str(&format!("when = {}\n", table(one))),
            several => {
                let tables: String =
                    several.iter().map(|one| format!("    {},\n", table(one))).collect();
                text.push_str(&format!("when = [\n{tables}]\n"));
            }
        }
        text.push_str(&format!("command = {}\n", toml(&json!(command.words))));
        // webhook runs a command once, however it ends.
        text.push_str("max_attempts = 1\n");
        if !command.folder.is_empty() {
            text.push_str(&format!("cwd = {}\n", quoted(&command.folder)));
        }
        if !command.env.is_empty() {
            let env = command.env.iter().map(|(name, value)| (name.as_str(), quoted(value)));
            text.push_str(&format!("env = {}\n", inline(env)));
        }
        if !command.values.is_empty() {
            text.push_str(&format!("\n[handlers.{name}.values]\n"));
            for value in &command.values {
                let otherwise = match &value.instead {
                    Some(text) => format!("else = {}", quoted(text)),
                    None => "optional = true".to_owned(),
                };
                let (name, from) = (&value.name, quoted(&value.from));
                text.push_str(&format!(
                    "{name} = {{ from = {from}, is = \"any\", max = \"64 KiB\", {otherwise} }}\n"
                ));
            }
        }
        self.stanza.push_str(&text);
    }

    /// Path in the folder and text of each file but those of secrets.
    pub(super) fn files(&self, from: &str) -> Vec<(String, String)> {
        let name = &self.name;
        let mut files = Vec::new();
        let mut text = format!("# The hook {} of {}.\n", quoted(&self.id), comment(from));
        if self.left_out.is_empty() {
            text.push_str(&self.stanza);
            if let Some(provider) = &self.provider {
                let file: String = format!("hook-{name}").chars().take(64).collect();
                files.push((format!("providers/{file}.toml"), provider.clone()));
            }
        } else {
            for why in &self.left_out {
                text.push_str(&format!("# Left out: {}.\n", comment(why)));
            }
            text.push_str("#\n");
            let provider =
                self.provider.as_ref().map(|file| format!("\n# Its provider file:\n\n{file}"));
            let parts = [&self.stanza, &provider.unwrap_or_default()];
            for line in parts.into_iter().flat_map(|text| text.lines()) {
                text.push_str(format!("# {line}").trim_end());
                text.push('\n');
            }
        }
        files.push((format!("conf.d/{name}.toml"), text));
        files
    }
}

pub(super) fn secret_file(name: &Name, nth: usize) -> String {
    if nth == 1 { name.to_string() } else { format!("{name}.{nth}") }
}

/// The headers that a condition or a value looks at.
fn kept(carried: &Carried, command: &Command) -> BTreeSet<String> {
    let tested = carried.when.iter().flatten().map(|line| &line.place);
    let places = tested.chain(command.places());
    places.filter_map(|place| place.strip_prefix("header:")).map(str::to_owned).collect()
}
