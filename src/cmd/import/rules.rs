//! Turns a rule into a proof and a condition.
//!
//! A rule is multiplied out into tables, of which one must hold with all its lines. Each must have the same proof.
//! Must stay true: the result fires where the rule does, and nowhere else; what cannot be said so is an error.

mod addresses;
mod line;

use serde_json::Value;

use super::hooks::{Node, reference};
use super::places::Payload;
use addresses::Addresses;
pub(super) use line::Line;

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
    /// A constant in this header, in this parameter of the query, or in the body: at this pointer of JSON, in this field of a form.
    Header(String),
    Query(String),
    Field {
        pointer: String,
        form: String,
    },
}

/// Which requests fire a hook.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Carried {
    /// What proves the sender; `None` if nothing does.
    pub(super) proof: Option<Proof>,
    /// Texts, or references.
    pub(super) secrets: Vec<Secret>,
    /// The lines of `when`, table by table; empty if every request is wanted.
    pub(super) when: Vec<Vec<Line>>,
    /// The lines of nginx's `allow` and `deny`, which the hook's `ip-whitelist` asks for.
    pub(super) addresses: Option<String>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Secret {
    Text(String),
    Reference(String),
}

/// What proves a request, from where it must come, and the lines that hold for it.
#[derive(Debug, Clone, PartialEq)]
struct Table {
    proof: Option<(Proof, Secret)>,
    /// The proof is asked for before any other thing.
    proof_is_first: bool,
    addresses: Addresses,
    lines: Vec<Line>,
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

/// A match, and what it must come to.
#[derive(Debug, Clone, PartialEq)]
struct Literal {
    of: Match,
    sign: Sign,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sign {
    Holds,
    /// It does not hold: another value is there, or none.
    Fails,
    /// Another value is there.
    Differs,
    /// No value is there.
    Missing,
}

/// A set of what a rule can come to. A value that is not there ends an `and`; an `or` goes on; and `not` turns the
/// answer around, which counts where no `and` is around it.
type Ends = u8;
const YES: Ends = 1;
const NO: Ends = 2;
const YES_MISSING: Ends = 4;
const NO_MISSING: Ends = 8;

/// What a hook's rule asks for. The error lists what of it cannot be said here. With `soft`, a wrong signature is
/// no more than a test that fails.
pub(super) fn carry(
    rule: Option<&Value>,
    payload: &Payload,
    soft: bool,
) -> Result<Carried, Vec<String>> {
    let Some(rule) = rule else { return Ok(Carried::default()) };
    let tables = multiplied(rule, YES | YES_MISSING).map_err(|why| vec![why])?;
    let mut wrong = Vec::new();
    let mut found: Vec<Table> = Vec::new();
    for table in tables {
        match Table::read(table, payload, &mut wrong) {
            Some(table) if !found.contains(&table) => found.push(table),
            _ => {}
        }
    }
    wrong.dedup();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    if found.is_empty() {
        return Err(vec!["the rule never holds, so the hook never fires".to_owned()]);
    }
    let addresses = addresses::of_all(found.iter().map(|table| {
        let Table { proof, addresses, lines, .. } = table;
        (addresses, (proof, lines))
    }));
    let addresses = addresses.map_err(|why| vec![why])?;
    let mut carried = joined(found, soft).map_err(|why| vec![why])?;
    carried.addresses = addresses;
    Ok(carried)
}

/// The tables as one proof, its secrets and one condition.
fn joined(found: Vec<Table>, soft: bool) -> Result<Carried, String> {
    let mut carried = Carried::default();
    let mut of_secrets: Vec<(Option<Secret>, bool, Vec<Vec<Line>>)> = Vec::new();
    for (nth, Table { proof, proof_is_first, lines, .. }) in found.into_iter().enumerate() {
        let (proof, secret) = proof.unzip();
        if nth == 0 {
            carried.proof = proof;
        } else if proof != carried.proof {
            return Err("an `or` of a signature or token and something else".to_owned());
        }
        match of_secrets.iter_mut().find(|(known, ..)| *known == secret) {
            Some((_, _, tables)) if tables.contains(&lines) => {}
            Some((_, _, tables)) => tables.push(lines),
            None => of_secrets.push((secret, proof_is_first, vec![lines])),
        }
    }
    // A wrong signature ends the whole rule there, so that the second is never looked at.
    let ends = matches!(carried.proof, Some(Proof::Signature { .. })) && !soft;
    if let ([(_, first, _), _, ..], true) = (&of_secrets[..], ends) {
        if !first {
            return Err(
                "several secrets without trigger-signature-soft-failures, and a condition before the first"
                    .to_owned(),
            );
        }
        of_secrets.truncate(1);
        carried.notes.push(
            "only the first of its secrets came along: without trigger-signature-soft-failures webhook never looks at another"
                .to_owned(),
        );
    }
    for (secret, _, tables) in of_secrets {
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

/// The tables for which a rule comes to one of these ends. Of several members only the first counts, as there.
fn multiplied(rule: &Value, ends: Ends) -> Result<Vec<Vec<Literal>>, String> {
    let node = Node::of(rule).ok_or("a rule is not an object")?;
    let list = |name| match node.get(name).and_then(Value::as_array) {
        Some(rules) => Ok(rules.clone()),
        None => Err(format!("'{name}' is not a list")),
    };
    if node.get("and").is_some() {
        return all(&list("and")?, ends);
    }
    if node.get("or").is_some() {
        return any(&list("or")?, ends);
    }
    if let Some(rule) = node.get("not") {
        let turned = [(YES, NO), (NO, YES), (YES_MISSING, NO_MISSING), (NO_MISSING, YES_MISSING)];
        let of = |(end, inner)| if ends & end == 0 { 0 } else { inner };
        return multiplied(rule, turned.into_iter().map(of).sum());
    }
    let Some(of) = node.get("match").and_then(Node::of) else {
        return Ok(if ends & NO == 0 { Vec::new() } else { vec![Vec::new()] });
    };
    let of = Match::read(&of)?;
    if ends & (YES | NO | NO_MISSING) == YES | NO | NO_MISSING {
        return Ok(vec![Vec::new()]);
    }
    let signs = [
        (ends & YES != 0, Sign::Holds),
        (ends & (NO | NO_MISSING) == NO | NO_MISSING, Sign::Fails),
        (ends & (NO | NO_MISSING) == NO, Sign::Differs),
        (ends & (NO | NO_MISSING) == NO_MISSING, Sign::Missing),
    ];
    let signs = signs.into_iter().filter(|(is_wanted, _)| *is_wanted);
    Ok(signs.map(|(_, sign)| vec![Literal { of: of.clone(), sign }]).collect())
}

/// An `or` never passes on that a value is not there.
fn any(parts: &[Value], ends: Ends) -> Result<Vec<Vec<Literal>>, String> {
    let mut tables = Vec::new();
    if ends & YES != 0 {
        for part in parts {
            add(&mut tables, multiplied(part, YES | YES_MISSING)?)?;
        }
    }
    if ends & NO != 0 {
        let none = parts.iter().map(|part| (part, NO | NO_MISSING));
        add(&mut tables, product(none)?)?;
    }
    Ok(tables)
}

/// An `and` ends at the first part that is not true, and so does a part to which a value is missing.
fn all(parts: &[Value], ends: Ends) -> Result<Vec<Vec<Literal>>, String> {
    let mut tables = Vec::new();
    if ends & YES != 0 {
        add(&mut tables, product(parts.iter().map(|part| (part, YES)))?)?;
    }
    let both = ends & (NO | NO_MISSING) == NO | NO_MISSING;
    for (nth, part) in parts.iter().enumerate() {
        let ended = match (both, ends & NO != 0, ends & NO_MISSING != 0) {
            (true, ..) => multiplied(part, NO | YES_MISSING | NO_MISSING)?,
            (_, false, false) => continue,
            (_, no, _) => {
                let end = if no { NO } else { YES_MISSING | NO_MISSING };
                let before = parts[..nth].iter().map(|part| (part, YES));
                product(before.chain([(part, end)]))?
            }
        };
        add(&mut tables, ended)?;
    }
    Ok(tables)
}

/// All parts come to these ends.
fn product<'r>(
    parts: impl Iterator<Item = (&'r Value, Ends)>,
) -> Result<Vec<Vec<Literal>>, String> {
    let mut tables = vec![Vec::new()];
    for (part, ends) in parts {
        let more = multiplied(part, ends)?;
        bounded(tables.len() * more.len())?;
        let both = |table: &Vec<Literal>| {
            more.iter().map(|one| [&table[..], one].concat()).collect::<Vec<_>>()
        };
        tables = tables.iter().flat_map(both).collect();
    }
    Ok(tables)
}

fn add(tables: &mut Vec<Vec<Literal>>, more: Vec<Vec<Literal>>) -> Result<(), String> {
    tables.extend(more);
    bounded(tables.len())
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

    fn proof(&self, payload: &Payload) -> Option<Proof> {
        let algorithm = match self.kind.as_str() {
            "payload-hmac-sha1" | "payload-hash-sha1" => "hmac-sha1",
            "payload-hmac-sha256" | "payload-hash-sha256" => "hmac-sha256",
            "payload-hmac-sha512" | "payload-hash-sha512" => "hmac-sha512",
            "value" => {
                return match self.source.as_str() {
                    "header" if names_a_secret(&self.name) => {
                        Some(Proof::Header(self.name.clone()))
                    }
                    "url" | "query" if names_a_secret(&self.name) => {
                        Some(Proof::Query(self.name.clone()))
                    }
                    "payload" if names_a_token(&self.name) => {
                        let form = self.name.clone();
                        payload.pointer(&self.name).map(|pointer| Proof::Field { pointer, form })
                    }
                    _ => None,
                };
            }
            _ => return None,
        };
        Some(Proof::Signature { algorithm, header: self.name.clone() })
    }

    /// The secret of a proof.
    fn secret(&self) -> Result<Secret, String> {
        let text = if self.kind == "value" { &self.value } else { &self.secret };
        if self.source != "header" && self.kind != "value" {
            return Err(format!("a signature in '{}'", self.source));
        }
        match reference(text) {
            Ok(Some(reference)) => Ok(Secret::Reference(reference.to_owned())),
            Ok(None) if !text.is_empty() => Ok(Secret::Text(text.clone())),
            Ok(None) => Err("a signature or token without a secret".to_owned()),
            Err(()) => {
                Err("a template in a secret: import the file with its templates filled in"
                    .to_owned())
            }
        }
    }
}

/// Whether a header or parameter of this name holds a token. Bitbucket's `X-Event-Key` names the event.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let has = |word: &&str| name.contains(word);
    ["token", "secret", "key", "auth", "pass", "signature"].iter().any(has)
        && !["event", "author"].iter().any(has)
}

/// Whether a member of the body with this name holds a token. A body has more names, so fewer words count.
fn names_a_token(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default().to_lowercase();
    ["token", "secret", "password", "passphrase"].iter().any(|word| last.ends_with(word))
}

impl Table {
    /// `None` if it never holds, or something is wrong with it.
    fn read(table: Vec<Literal>, payload: &Payload, wrong: &mut Vec<String>) -> Option<Self> {
        let mut read = Table {
            proof: None,
            proof_is_first: false,
            addresses: Addresses::default(),
            lines: Vec::new(),
        };
        let mut holds = true;
        for (nth, Literal { of, sign }) in table.into_iter().enumerate() {
            let added = match of.proof(payload) {
                Some(proof) => read.prove(nth == 0, proof, &of, sign).map(|()| true),
                None if of.kind == "ip-whitelist" => match sign {
                    Sign::Missing => Ok(false),
                    sign => read.addresses.add(&of.addresses, sign == Sign::Holds).map(|()| true),
                },
                None => read.test(&of, sign, payload),
            };
            match added {
                Ok(may_hold) => holds &= may_hold,
                Err(why) if !wrong.contains(&why) => wrong.push(why),
                Err(_) => {}
            }
        }
        holds.then_some(read)
    }

    fn prove(&mut self, first: bool, proof: Proof, of: &Match, sign: Sign) -> Result<(), String> {
        if sign != Sign::Holds {
            return Err("a signature or token under `not`".to_owned());
        }
        let entry = (proof, of.secret()?);
        match &self.proof {
            Some(known) if *known != entry => {
                Err("two signatures or tokens in one `and`".to_owned())
            }
            Some(_) => Ok(()),
            None => {
                (self.proof, self.proof_is_first) = (Some(entry), first);
                Ok(())
            }
        }
    }

    /// Adds a test. False if the table then never holds.
    fn test(&mut self, of: &Match, sign: Sign, payload: &Payload) -> Result<bool, String> {
        let (name, value) = line::test(&of.kind, &of.value, &of.regex)?;
        let Some(place) = payload.place(&of.source, &of.name)? else {
            return Ok(matches!(sign, Sign::Fails | Sign::Missing));
        };
        let at = self.lines.iter().position(|line| line.place == place).unwrap_or_else(|| {
            self.lines.push(Line { place, tests: Vec::new() });
            self.lines.len() - 1
        });
        let line = &mut self.lines[at];
        match sign {
            Sign::Holds => line.add(name, value)?,
            Sign::Fails => line.add("not", line::negated(name, value))?,
            Sign::Differs => {
                line.add("present", true.into())?;
                line.add("not", line::negated(name, value))?;
            }
            Sign::Missing => line.add("present", false.into())?,
        }
        line.settle()
    }
}
