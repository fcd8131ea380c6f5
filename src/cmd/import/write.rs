//! Turns a hook into the files of a source and its handler.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::hooks::{Node, reference};
use super::rules::{self, Carried, Line, Payload, Proof, Secret};
use crate::model::Name;

/// What becomes of a hook.
pub(super) struct Imported {
    /// As the other program has it.
    pub(super) id: String,
    pub(super) name: Name,
    /// Why its stanza is commented out.
    pub(super) left_out: Option<String>,
    /// No signature and no token: anybody fires it.
    pub(super) unsigned: bool,
    /// What did not come along, and what to do.
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

impl Imported {
    pub(super) fn of(hook: &Node, id: String, name: Name) -> Self {
        let mut imported = Imported {
            id,
            name,
            left_out: None,
            unsigned: false,
            notes: Vec::new(),
            secrets: Vec::new(),
            stanza: String::new(),
            provider: None,
        };
        if let Err(why) = imported.fill(hook) {
            imported.left_out.get_or_insert(why);
        }
        imported
    }

    fn fill(&mut self, hook: &Node) -> Result<(), String> {
        for name in hook.names() {
            match MEMBERS.iter().find(|(known, _)| *known == name) {
                Some((name, why)) => self.notes.push(format!("{name}: {why}")),
                None if KNOWN.contains(&name) => {}
                None => self.notes.push(format!("{name}: unknown, and without meaning there too")),
            }
        }
        let payload = payload(hook)?;
        let rule = rules::carry(hook.get("trigger-rule"), payload);
        let mut left_out = rule.as_ref().err().cloned();
        let rule_is_said = rule.is_ok();
        let carried = rule.unwrap_or_default();
        if carried.proof.is_none() && left_out.is_none() {
            self.unsigned = true;
            left_out = Some("its rule has no signature and no token".to_owned());
        }
        if carried.secrets.len() > 1 && !hook.is_on("trigger-signature-soft-failures") {
            let note = "any of its secrets is good now, and only the first was (without trigger-signature-soft-failures)";
            self.notes.push(note.to_owned());
        }
        let mut command = Command::default();
        if let Err(why) = command.fill(hook, payload, &mut self.notes) {
            left_out.get_or_insert(why);
        }
        let methods = hook.texts("http-methods");
        let takes =
            |method: &str| methods.iter().any(|one| one.trim().eq_ignore_ascii_case(method));
        if !methods.is_empty() && !takes("POST") && !takes("GET") {
            left_out.get_or_insert_with(|| format!("http-methods: {}", methods.join(", ")));
        }
        let is_token = matches!(carried.proof, Some(Proof::Header(_) | Proof::Query(_)));
        // Without its rule nothing could be said of the source but that it is open.
        match rule_is_said {
            true => self.source(&carried, &command, payload, is_token && takes("GET")),
            false => self.stanza.push_str("# Write its source and its `when` yourself.\n"),
        }
        self.handler(&carried, &command);
        self.left_out = left_out;
        Ok(())
    }

    fn source(&mut self, carried: &Carried, command: &Command, payload: Payload, takes_get: bool) {
        let name = &self.name;
        let is_github = |proof: &Proof| {
            matches!(proof, Proof::Signature { algorithm: "hmac-sha256", header }
                if header.eq_ignore_ascii_case("X-Hub-Signature-256"))
        };
        let mut text = format!("[sources.{name}]\n");
        match &carried.proof {
            None => text.push_str("provider = \"none\"\nallow_unsigned = true\n"),
            Some(proof) if is_github(proof) => text.push_str("provider = \"github\"\n"),
            Some(proof) => {
                let provider: String = format!("hook-{name}").chars().take(64).collect();
                text.push_str(&format!("provider = {}\n", quoted(&provider)));
                self.provider = Some(provider_file(
                    &provider,
                    proof,
                    payload,
                    &kept(carried, command),
                    &self.id,
                ));
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
                    self.secrets.push(text.clone());
                    format!("file:secrets/{}", secret_file(name, self.secrets.len())).into()
                }
            });
        }
        if !references.is_empty() {
            text.push_str(&format!("secrets = {}\n", toml(&Value::Array(references))));
        }
        if takes_get {
            text.push_str("methods = [\"GET\", \"POST\"]\n");
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
        if !command.folder.is_empty() {
            text.push_str(&format!("cwd = {}\n", quoted(&command.folder)));
        }
        if !command.env.is_empty() {
            let env = command.env.iter().map(|(name, value)| (name.as_str(), quoted(value)));
            text.push_str(&format!("env = {}\n", inline(env)));
        }
        if !command.values.is_empty() {
            text.push_str(&format!("\n[handlers.{name}.values]\n"));
            for (name, value) in &command.values {
                text.push_str(&format!("{name} = {value}\n"));
            }
        }
        self.stanza.push_str(&text);
    }

    /// Path in the folder and text of each file but those of secrets.
    pub(super) fn files(&self, from: &str) -> Vec<(String, String)> {
        let name = &self.name;
        let mut files = Vec::new();
        let mut text = format!("# The hook {} of {}.\n", quoted(&self.id), comment(from));
        match &self.left_out {
            None => {
                text.push_str(&self.stanza);
                if let Some(provider) = &self.provider {
                    let file: String = format!("hook-{name}").chars().take(64).collect();
                    files.push((format!("providers/{file}.toml"), provider.clone()));
                }
            }
            Some(why) => {
                text.push_str(&format!("# Left out: {}.\n#\n", comment(why)));
                let provider =
                    self.provider.as_ref().map(|file| format!("\n# Its provider file:\n\n{file}"));
                for line in [&self.stanza, &provider.unwrap_or_default()]
                    .into_iter()
                    .flat_map(|text| text.lines())
                {
                    text.push_str(format!("# {line}").trim_end());
                    text.push('\n');
                }
            }
        }
        files.push((format!("conf.d/{name}.toml"), text));
        files
    }
}

pub(super) fn secret_file(name: &Name, nth: usize) -> String {
    if nth == 1 { name.to_string() } else { format!("{name}.{nth}") }
}

/// How the hook's payload is read.
fn payload(hook: &Node) -> Result<Payload, String> {
    let fields = hook.nodes("parse-parameters-as-json")?;
    let is_form = hook.text("incoming-payload-content-type")?.contains("form");
    for field in &fields {
        if (field.text("source")?.as_str(), field.text("name")?.as_str()) != ("payload", "payload")
        {
            return Err("parse-parameters-as-json: JSON inside a text of JSON".to_owned());
        }
    }
    Ok(match (fields.is_empty(), is_form) {
        (false, _) => Payload::FormField,
        (true, true) => Payload::Form,
        (true, false) => Payload::Json,
    })
}

/// The headers that a condition or a value looks at.
fn kept(carried: &Carried, command: &Command) -> BTreeSet<String> {
    let tested = carried.when.iter().flatten().map(|line| &line.place);
    let places = tested.chain(&command.places);
    places.filter_map(|place| place.strip_prefix("header:")).map(str::to_owned).collect()
}

/// webhook runs every request. An equal one that comes before the first has begun would run right after it, for nothing.
const TRIGGER: &str = "repeats = \"trigger\"\n";

/// A provider file that reads what the rule names.
fn provider_file(
    name: &str,
    proof: &Proof,
    payload: Payload,
    kept: &BTreeSet<String>,
    id: &str,
) -> String {
    let title = quoted(&format!("the callers of {id}"));
    let mut text = format!("name = {}\ntitle = {title}\n\n[signature]\n", quoted(name));
    let (repeats, replay) = match proof {
        Proof::Signature { algorithm, header } => {
            text.push_str(&format!(
                "algorithm = {}\nheader = {}\n",
                quoted(algorithm),
                quoted(header)
            ));
            let label = algorithm.trim_start_matches("hmac-");
            match header.to_lowercase().contains("hub-signature") {
                true => text.push_str(&format!(
                    "format = \"pairs\"\nseparator = \",\"\nlabel = {}\n",
                    quoted(label)
                )),
                false => text.push_str("format = \"commas\"\n"),
            }
            text.push_str("encoding = \"hex\"\nsigned = \"{body}\"\n");
            ("", "")
        }
        Proof::Header(header) => {
            text.push_str(&format!("algorithm = \"token\"\nheader = {}\n", quoted(header)));
            (TRIGGER, "\n[replay]\nguard = \"off\"\n")
        }
        Proof::Query(parameter) => {
            text.push_str(&format!("algorithm = \"token\"\nquery = {}\n", quoted(parameter)));
            (TRIGGER, "\n[replay]\nguard = \"off\"\n")
        }
    };
    text.push_str(&format!("\n[event]\nid = \"digest\"\n{repeats}"));
    if payload == Payload::FormField {
        text.push_str("form_field = \"payload\"\n");
    }
    text.push_str(replay);
    if !kept.is_empty() {
        text.push_str(&format!("\n[delivery]\nkeep_headers = {}\n", toml(&json!(kept))));
    }
    text
}

/// What runs, and what it gets of the event.
#[derive(Default)]
struct Command {
    words: Vec<String>,
    folder: String,
    env: Vec<(String, String)>,
    /// The name and the table of each value.
    values: Vec<(String, String)>,
    /// Where they come from.
    places: Vec<String>,
}

impl Command {
    fn fill(
        &mut self,
        hook: &Node,
        payload: Payload,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let program = hook.text("execute-command")?;
        self.folder = hook.text("command-working-directory")?;
        if program.is_empty() {
            return Err("it has no execute-command".to_owned());
        }
        // Joined to the working directory as there; a name alone is looked up in PATH.
        let is_relative = !self.folder.is_empty() && !Path::new(&program).is_absolute();
        self.words.push(match is_relative {
            true => {
                let program = Path::new(program.trim_start_matches("./"));
                Path::new(&self.folder).join(program).display().to_string()
            }
            false => program,
        });
        if !is_relative && self.words[0].contains('/') && !self.words[0].starts_with('/') {
            notes.push("execute-command was relative to the folder in which webhook was started: make it absolute".to_owned());
        }
        for argument in hook.nodes("pass-arguments-to-command")? {
            let (source, name) = (argument.text("source")?, argument.text("name")?);
            if source == "string" {
                self.words.push(constant(&name)?);
                continue;
            }
            if source.starts_with("entire-") {
                return Err(format!(
                    "{source} as an argument: the command reads it from standard input"
                ));
            }
            let place = self.place(&source, &name, payload)?;
            let variable = variable(&format!("HOOK_{}", name.to_uppercase()), notes);
            let is = match name.trim_start_matches("payload.") {
                "after" | "head_commit.id" => "sha",
                "ref" => "ref",
                _ => "line",
            };
            self.words.push(format!("{{{variable}}}"));
            self.value(
                variable,
                &format!("{{ from = {}, is = \"{is}\", else = \"\" }}", quoted(&place)),
            )?;
        }
        for part in hook.nodes("pass-environment-to-command")? {
            let (source, name) = (part.text("source")?, part.text("name")?);
            let mut given = part.text("envname")?;
            if given.is_empty() {
                given = format!("HOOK_{name}");
            }
            let variable = variable(&given, notes);
            match source.as_str() {
                "string" => self.env.push((variable, format!("literal:{}", constant(&name)?))),
                "entire-payload" => {
                    self.value(
                        variable,
                        "{ from = \"\", is = \"json\", max = \"64 KiB\", else = \"\" }",
                    )?;
                }
                _ => {
                    let place = self.place(&source, &name, payload)?;
                    self.value(
                        variable,
                        &format!("{{ from = {}, is = \"text\", else = \"\" }}", quoted(&place)),
                    )?;
                }
            }
        }
        for file in hook.nodes("pass-file-to-command")? {
            if file.text("source")? != "entire-payload" || file.is_on("base64decode") {
                let name = file.text("name")?;
                return Err(format!(
                    "pass-file-to-command of '{name}': the command writes the file from standard input (f=$(mktemp); cat > \"$f\")"
                ));
            }
            let mut given = file.text("envname")?;
            if given.is_empty() {
                given = format!("HOOK_{}", file.text("name")?.to_uppercase());
            }
            self.env.push((variable(&given, notes), "/dev/stdin".to_owned()));
        }
        Ok(())
    }

    fn place(&mut self, source: &str, name: &str, payload: Payload) -> Result<String, String> {
        let place = rules::place(source, name, payload)?;
        self.places.push(place.clone());
        Ok(place)
    }

    fn value(&mut self, name: String, table: &str) -> Result<(), String> {
        match self.values.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if known != table => Err(format!("two values are called {name}")),
            Some(_) => Ok(()),
            None => {
                self.values.push((name, table.to_owned()));
                Ok(())
            }
        }
    }
}

fn constant(text: &str) -> Result<String, String> {
    match reference(text) {
        Ok(None) => Ok(text.to_owned()),
        _ => {
            Err("a template in an argument: import the file with its templates filled in"
                .to_owned())
        }
    }
}

/// A name that a shell can read.
fn variable(given: &str, notes: &mut Vec<String>) -> String {
    let name: String = given
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() { char } else { '_' })
        .take(64)
        .collect();
    if name != given
        && !given.bytes().all(|byte| byte.is_ascii_uppercase() || b"_.".contains(&byte))
    {
        notes.push(format!("the variable {given} is now {name}"));
    }
    name
}

fn inline<'t>(members: impl Iterator<Item = (&'t str, String)>) -> String {
    let members: Vec<_> = members.map(|(name, value)| format!("{} = {value}", key(name))).collect();
    format!("{{ {} }}", members.join(", "))
}

fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.bytes().all(is_bare) && !name.is_empty() { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    toml(&text.into())
}

/// Strings of JSON are strings of TOML, but for one character.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            inline(members.iter().map(|(name, value)| (name.as_str(), toml(value))))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// A text on one line of a comment.
fn comment(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
