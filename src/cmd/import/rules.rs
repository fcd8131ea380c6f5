//! Turns a rule into a proof and a condition.
//!
//! A rule is multiplied out into tables, of which one must hold with all its lines. Each must have the same proof.
//! Must stay true: what comes out never fires where the rule does not; what cannot be said so is an error.

use serde_json::{Value, json};

use super::hooks::{Node, reference};

/// Tables that a rule may become, as in a condition.
const TABLES: usize = 32;

/// What proves that a request is genuine.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Proof {
    /// A signature over the body in this header.
    Signature {
        algorithm: &'static str,
        header: String,
    },
    /// A constant in this header, or in this parameter of the query.
    Header(String),
    Query(String),
}

/// Which requests fire a hook.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Carried {
    /// None if nothing proves who sent it.
    pub(super) proof: Option<Proof>,
    /// Texts, or references.
    pub(super) secrets: Vec<Secret>,
    /// The lines of `when`, table by table; empty if every request is wanted.
    pub(super) when: Vec<Vec<Line>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Secret {
    Text(String),
    Reference(String),
}

/// A place and the tests of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) place: String,
    pub(super) tests: Vec<(&'static str, Value)>,
}

/// What proves a request, and the lines that hold for it.
type Table = (Option<(Proof, Secret)>, Vec<Line>);

/// How the payload of a hook is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload {
    Json,
    Form,
    /// JSON in the field `payload` of a form.
    FormField,
}

/// Where a hook's value comes from.
#[derive(Debug, Clone, PartialEq)]
struct Match {
    kind: String,
    source: String,
    name: String,
    value: String,
    regex: String,
    secret: String,
    addresses: String,
}

/// A match with its sign.
#[derive(Debug, Clone, PartialEq)]
struct Literal {
    of: Match,
    not: bool,
    /// The nearest rule around it but `not` is an `and`, for which a value that is not there ends the matter.
    in_and: bool,
}

/// What a hook's rule asks for. The error says what of it cannot be said here.
pub(super) fn carry(rule: Option<&Value>, payload: Payload) -> Result<Carried, String> {
    let Some(rule) = rule else { return Ok(Carried::default()) };
    let tables = multiplied(rule, false, false)?;
    let mut found: Vec<Table> = Vec::new();
    for table in tables {
        let entry = read_table(table, payload)?;
        if !found.contains(&entry) {
            found.push(entry);
        }
    }
    let Some((first, _)) = found.first().cloned() else {
        return Err("the rule is empty, so it never fires".to_owned());
    };
    let proof = first.map(|(proof, _)| proof);
    let mut carried = Carried { proof, ..Carried::default() };
    let mut of_secrets: Vec<(Option<Secret>, Vec<Vec<Line>>)> = Vec::new();
    for (proven, lines) in found {
        let (proof, secret) = proven.unzip();
        if proof != carried.proof {
            return Err("an `or` of a signature or token and something else".to_owned());
        }
        match of_secrets.iter_mut().find(|(known, _)| *known == secret) {
            Some((_, tables)) => tables.push(lines),
            None => of_secrets.push((secret, vec![lines])),
        }
    }
    for (secret, tables) in of_secrets {
        let tables = if tables.iter().any(Vec::is_empty) { Vec::new() } else { tables };
        if carried.secrets.is_empty() {
            carried.when = tables;
        } else if carried.when != tables {
            return Err("another condition for each of several secrets".to_owned());
        }
        carried.secrets.extend(secret);
    }
    Ok(carried)
}

/// The tables of a rule, or of its opposite. Of several members only the first counts, as there.
fn multiplied(rule: &Value, not: bool, in_and: bool) -> Result<Vec<Vec<Literal>>, String> {
    let node = Node::of(rule).ok_or("a rule is not an object")?;
    let list = |name| match node.get(name).and_then(Value::as_array) {
        Some(rules) => Ok(rules.clone()),
        None => Err(format!("'{name}' is not a list")),
    };
    if node.get("and").is_some() {
        let parts = list("and")?;
        return if not { sum(&parts, not, true) } else { product(&parts, not, true) };
    }
    if node.get("or").is_some() {
        let parts = list("or")?;
        return if not { product(&parts, not, false) } else { sum(&parts, not, false) };
    }
    if let Some(rule) = node.get("not") {
        return multiplied(rule, !not, in_and);
    }
    let Some(of) = node.get("match").and_then(Node::of) else {
        return Ok(if not { vec![Vec::new()] } else { Vec::new() });
    };
    Ok(vec![vec![Literal { of: Match::read(&of)?, not, in_and }]])
}

/// One of the parts holds.
fn sum(parts: &[Value], not: bool, in_and: bool) -> Result<Vec<Vec<Literal>>, String> {
    let mut tables = Vec::new();
    for part in parts {
        tables.extend(multiplied(part, not, in_and)?);
        bounded(tables.len())?;
    }
    Ok(tables)
}

/// All parts hold.
fn product(parts: &[Value], not: bool, in_and: bool) -> Result<Vec<Vec<Literal>>, String> {
    let mut tables = vec![Vec::new()];
    for part in parts {
        let more = multiplied(part, not, in_and)?;
        bounded(tables.len() * more.len())?;
        let both = |table: &Vec<Literal>| {
            more.iter().map(|one| [&table[..], one].concat()).collect::<Vec<_>>()
        };
        tables = tables.iter().flat_map(both).collect();
    }
    Ok(tables)
}

fn bounded(tables: usize) -> Result<(), String> {
    match tables <= TABLES {
        true => Ok(()),
        false => Err(format!("more than {TABLES} tables, multiplied out")),
    }
}

impl Match {
    fn read(node: &Node) -> Result<Self, String> {
        let parameter = node.get("parameter").and_then(Node::of);
        let of =
            |name| parameter.as_ref().map_or(Ok(String::new()), |parameter| parameter.text(name));
        Ok(Match {
            kind: node.text("type")?,
            source: of("source")?,
            name: of("name")?,
            value: node.text("value")?,
            regex: node.text("regex")?,
            secret: node.text("secret")?,
            addresses: node.text("ip-range")?,
        })
    }

    fn proof(&self) -> Option<Proof> {
        let algorithm = match self.kind.as_str() {
            "payload-hmac-sha1" | "payload-hash-sha1" => "hmac-sha1",
            "payload-hmac-sha256" | "payload-hash-sha256" => "hmac-sha256",
            "payload-hmac-sha512" | "payload-hash-sha512" => "hmac-sha512",
            "value" if names_a_secret(&self.name) => {
                return match self.source.as_str() {
                    "header" => Some(Proof::Header(self.name.clone())),
                    "url" | "query" => Some(Proof::Query(self.name.clone())),
                    _ => None,
                };
            }
            _ => return None,
        };
        Some(Proof::Signature { algorithm, header: self.name.clone() })
    }
}

/// Whether a header or parameter of this name holds a token.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["token", "secret", "key", "auth", "pass", "signature"].iter().any(|word| name.contains(word))
}

fn read_table(table: Vec<Literal>, payload: Payload) -> Result<Table, String> {
    let mut proven = None;
    let mut lines: Vec<Line> = Vec::new();
    for literal in table {
        if let Some(proof) = literal.of.proof() {
            if literal.not {
                return Err("a signature or token under `not`".to_owned());
            }
            let entry = (proof, secret(&literal.of)?);
            if proven.get_or_insert_with(|| entry.clone()) != &entry {
                return Err("two signatures or tokens in one `and`".to_owned());
            }
            continue;
        }
        let (name, value) = test(&literal.of)?;
        let place = place(&literal.of.source, &literal.of.name, payload)?;
        let tests = match (literal.not, literal.in_and) {
            (false, _) => vec![(name, value)],
            (true, false) => vec![("not", negated(name, value))],
            (true, true) => vec![("present", true.into()), ("not", negated(name, value))],
        };
        let at = lines.iter().position(|line| line.place == place).unwrap_or_else(|| {
            lines.push(Line { place, tests: Vec::new() });
            lines.len() - 1
        });
        for (name, value) in tests {
            lines[at].add(name, value)?;
        }
    }
    // Nothing stands beside a constant.
    match lines
        .iter()
        .find(|line| line.tests.len() > 1 && line.tests.iter().any(|(name, _)| *name == "is"))
    {
        Some(line) => Err(format!("a constant and another test for {}", line.place)),
        None => Ok((proven, lines)),
    }
}

impl Line {
    fn add(&mut self, name: &'static str, value: Value) -> Result<(), String> {
        let Some((_, known)) = self.tests.iter_mut().find(|(known, _)| *known == name) else {
            self.tests.push((name, value));
            return Ok(());
        };
        if *known == value {
            return Ok(());
        }
        if name != "not" || known.is_object() || value.is_object() {
            return Err(format!("two tests '{name}' of {}", self.place));
        }
        let constants = [known.clone(), value].map(|value| match value {
            Value::Array(values) => values,
            one => vec![one],
        });
        *known = Value::Array(constants.concat());
        Ok(())
    }
}

fn negated(name: &str, value: Value) -> Value {
    match name {
        "is" => value,
        _ => json!({ name: value }),
    }
}

fn secret(of: &Match) -> Result<Secret, String> {
    let text = if of.kind == "value" { &of.value } else { &of.secret };
    if of.source != "header" && of.kind != "value" {
        return Err(format!("a signature in '{}'", of.source));
    }
    match reference(text) {
        Ok(Some(reference)) => Ok(Secret::Reference(reference.to_owned())),
        Ok(None) if !text.is_empty() => Ok(Secret::Text(text.clone())),
        Ok(None) => Err("a signature or token without a secret".to_owned()),
        Err(()) => {
            Err("a template in a secret: import the file with its templates filled in".to_owned())
        }
    }
}

/// The test's name, and what it names. A constant is compared as a text there, so a number and a truth are meant too.
fn test(of: &Match) -> Result<(&'static str, Value), String> {
    match of.kind.as_str() {
        "value" if reference(&of.value) != Ok(None) => {
            Err("a template in a value: import the file with its templates filled in".to_owned())
        }
        "value" => Ok(("is", constant(&of.value))),
        "regex" => Ok(("matches", of.regex.clone().into())),
        "ip-whitelist" => {
            Err(format!("ip-whitelist: in nginx `allow {}; deny all;`", of.addresses))
        }
        other => Err(format!("a rule of type '{other}'")),
    }
}

fn constant(text: &str) -> Value {
    let other = match serde_json::from_str::<Value>(text) {
        Ok(Value::Bool(value)) => Some(value.into()),
        Ok(Value::Number(number)) => number.as_i64().map(Value::from),
        _ => None,
    };
    match other {
        Some(other) => json!([text, other]),
        None => text.into(),
    }
}

/// Where a value is here.
pub(super) fn place(source: &str, name: &str, payload: Payload) -> Result<String, String> {
    match (source, payload) {
        ("header", _) => Ok(format!("header:{name}")),
        ("payload", Payload::Form) => Ok(format!("form:{name}")),
        ("payload", _) => {
            let name = match payload {
                Payload::FormField => name.strip_prefix("payload.").ok_or_else(|| {
                    format!("'{name}' of the form: only its field 'payload' is read")
                })?,
                _ => name,
            };
            let steps = name.strip_prefix("root.").unwrap_or(name).split('.');
            let escaped = |step: &str| format!("/{}", step.replace('~', "~0").replace('/', "~1"));
            Ok(steps.map(escaped).collect())
        }
        (other, _) => Err(format!("'{other}' as a source of '{name}'")),
    }
}
