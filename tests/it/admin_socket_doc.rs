//! `docs/admin-socket.md` has every route of the admin API with its parameters and answer, made from the
//! route table and from the comments of the types in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use hooklatch::admin::{Effect, ROUTES};
use hooklatch::model::{AuditVerb, Outcome, State, Via};

use crate::support::made;

/// A field of a struct, or a variant of an enum.
struct Member {
    name: String,
    kind: String,
    about: String,
}

/// A type as the code declares it.
struct Declared {
    about: String,
    members: Vec<Member>,
    /// The type that a tuple struct stands for.
    inner: Option<String>,
}

fn read_folder(folder: &Path, types: &mut BTreeMap<String, Declared>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_folder(&path, types);
        } else if path.extension().is_some_and(|e| e == "rs") {
            read_types(&fs::read_to_string(path).unwrap(), types);
        }
    }
}

/// Reads the types of a file, which rustfmt has written: a type begins and ends at the first column.
fn read_types(text: &str, types: &mut BTreeMap<String, Declared>) {
    let (mut about, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("///") {
            about.push_str(comment);
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        if line == "operation! {" {
            read_operation(&mut lines, types);
        }
        let about = std::mem::take(&mut about).trim().to_owned();
        let Some(rest) = line.strip_prefix("pub struct ").or(line.strip_prefix("pub enum ")) else {
            continue;
        };
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let rest = rest.strip_prefix("<T>").unwrap_or(rest);
        let inner = rest.strip_prefix("(pub ").and_then(|it| it.strip_suffix(");"));
        let members = if rest.ends_with('{') { read_members(&mut lines) } else { Vec::new() };
        let declared = Declared { about, members, inner: inner.map(str::to_owned) };
        // Names of the API's types are unique.
        types.entry(name.to_owned()).or_insert(declared);
    }
}

/// Reads an operation: its comment is kept under its method and path, its type as any other.
fn read_operation<'a>(
    lines: &mut impl Iterator<Item = &'a str>,
    types: &mut BTreeMap<String, Declared>,
) {
    let (mut about, mut route) = (String::new(), String::new());
    for line in lines.by_ref().map(str::trim_start) {
        match line.strip_prefix("///") {
            Some(comment) => about.push_str(comment),
            None => {
                let words = line.split([' ', ';']).take(2).collect::<Vec<_>>();
                route = words.join(" ").replace('"', "");
                break;
            }
        }
    }
    let declared =
        |about: &str, members| Declared { about: about.trim().to_owned(), members, inner: None };
    types.insert(route.to_ascii_lowercase(), declared(&about, Vec::new()));
    let line = lines.next().unwrap().trim_start();
    if line.starts_with("for ") {
        return;
    }
    let (name, rest) = line.split_once(" {").unwrap();
    let members = match rest.split_once('}') {
        Some((fields, _)) => {
            let member = |field: &str| {
                let (name, kind) = field.trim().split_once(": ").unwrap();
                Member { name: name.to_owned(), kind: kind.to_owned(), about: String::new() }
            };
            fields.split(',').filter(|field| !field.trim().is_empty()).map(member).collect()
        }
        None => {
            let inside: Vec<String> = lines
                .take_while(|line| !line.starts_with("    }"))
                .map(|line| match line.strip_prefix("        ") {
                    Some(field) if !field.starts_with(['/', '#']) => format!("    pub {field}"),
                    line => format!("    {}", line.unwrap_or_default()),
                })
                .collect();
            read_members(&mut inside.iter().map(String::as_str))
        }
    };
    types.insert(name.to_owned(), declared(&about, members));
}

fn read_members<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<Member> {
    let (mut members, mut about, mut renamed) = (Vec::new(), String::new(), None);
    for line in lines {
        // Members stand at the first level, and what a variant carries deeper.
        let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}']))
        else {
            if line == "}" {
                break;
            }
            continue;
        };
        if let Some(comment) = line.strip_prefix("///") {
            about.push_str(comment);
        } else if let Some(attribute) = line.strip_prefix("#[serde(rename = \"") {
            renamed = attribute.split('"').next().map(str::to_owned);
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            let field = line.strip_prefix("pub ").or(line.strip_prefix("pub(in crate::store) "));
            let (name, kind) = match field {
                Some(field) => field.trim_end_matches(',').split_once(": ").unwrap_or((field, "")),
                // Variants are in snake case.
                None => (line.split([',', ' ', '(']).next().unwrap(), ""),
            };
            let name = renamed.take().unwrap_or_else(|| snake(name));
            let about = std::mem::take(&mut about).trim().to_owned();
            members.push(Member { name, kind: kind.to_owned(), about });
        }
    }
    members
}

/// Converts a name as serde's `snake_case` does.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn types() -> BTreeMap<String, Declared> {
    let mut types = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for folder in ["admin", "store", "traffic", "handler", "model"] {
        read_folder(&root.join(folder), &mut types);
    }
    read_types(&fs::read_to_string(root.join("limits.rs")).unwrap(), &mut types);
    types
}

/// The last name of a path of modules, without parameters.
fn short(name: &str) -> &str {
    name.split('<').next().unwrap().rsplit("::").next().unwrap()
}

/// The type itself, or that which it stands for.
fn resolve<'t>(types: &'t BTreeMap<String, Declared>, name: &str) -> (&'t str, &'t Declared) {
    let (name, declared) = types.get_key_value(name).unwrap_or_else(|| panic!("no type {name}"));
    match &declared.inner {
        Some(inner) if types.contains_key(short(inner)) => resolve(types, short(inner)),
        _ => (name, declared),
    }
}

fn routes(types: &BTreeMap<String, Declared>) -> String {
    let mut text = String::new();
    for route in ROUTES {
        let request = short((route.request)());
        let (_, parameters) = resolve(types, request);
        writeln!(text, "### `{} {}`\n", route.method.as_str(), route.path).unwrap();
        let only = match route.effect {
            Effect::Reads => "",
            Effect::Waits => " It counts as a stream.",
            Effect::Changes => " Not on the reading socket.",
        };
        let name = format!("{} {}", route.method.as_str(), route.path).to_ascii_lowercase();
        let about = types.get(&name).unwrap_or_else(|| &types[request]);
        writeln!(text, "{}{only}\n", about.about).unwrap();
        let has_parameters = !parameters.members.is_empty();
        for member in &parameters.members {
            writeln!(text, "- `{}`: {}", member.name, described(types, member)).unwrap();
        }
        if has_parameters {
            text.push('\n');
        }
        match route.reply {
            Some(reply) => {
                let reply = reply();
                let of = reply.split_once('<').map(|(_, of)| short(of.trim_end_matches('>')));
                let of = of.map(|of| format!(" of `{of}`")).unwrap_or_default();
                writeln!(text, "Answer: `{}`{of}\n", short(reply)).unwrap();
            }
            None => writeln!(text, "Answer: a stream.\n").unwrap(),
        }
    }
    text
}

fn described(types: &BTreeMap<String, Declared>, member: &Member) -> String {
    let kind = if member.kind.is_empty() { String::new() } else { json_type(types, &member.kind) };
    let parts = [kind, member.about.clone()].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(". ")
}

/// A field's type in words of JSON.
fn json_type(types: &BTreeMap<String, Declared>, kind: &str) -> String {
    let of = |kind: &str| json_type(types, kind);
    if let Some(inside) = kind.strip_suffix('>') {
        let (outer, inside) = inside.split_once('<').unwrap();
        return match (outer, inside.split_once(", ")) {
            ("Option", _) => format!("{} or null", of(inside)),
            ("Vec", _) => format!("list of {}", of(inside)),
            ("Box", _) => of(inside),
            ("BTreeMap", Some((key, value))) => format!("object: {} by {}", of(value), of(key)),
            _ => panic!("{kind}"),
        };
    }
    if let Some(inside) = kind.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
        return format!("[{}]", inside.split(", ").map(of).collect::<Vec<_>>().join(", "));
    }
    let name = short(kind);
    match name {
        "bool" => "true or false".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => "number".to_owned(),
        "String" => "text".to_owned(),
        "Timestamp" => "time".to_owned(),
        "Uuid" | "JobId" => "UUID".to_owned(),
        "EventId" => "event id".to_owned(),
        "Name" | "RunnerName" => "name".to_owned(),
        "Blob" => "bytes".to_owned(),
        "Stream" => "text".to_owned(),
        "T" => "the answer's".to_owned(),
        "Pattern" => "pattern".to_owned(),
        "SocketAddr" => "address and port".to_owned(),
        "State" => words(State::ALL.iter().map(|word| word.as_str())),
        "Outcome" => words(Outcome::ALL.iter().map(|word| word.as_str())),
        "AuditVerb" => words(AuditVerb::ALL.iter().map(|word| word.as_str())),
        "Via" => words(Via::ALL.iter().map(|word| word.as_str())),
        _ => match types.get(name) {
            // A number in a tuple struct.
            Some(Declared { members, inner: None, .. }) if members.is_empty() => {
                "number".to_owned()
            }
            Some(_) => format!("`{name}`"),
            None => panic!("no words for {kind}"),
        },
    }
}

fn words<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The names in a type's text.
fn names(kind: &str) -> impl Iterator<Item = &str> {
    kind.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn reachable(types: &BTreeMap<String, Declared>) -> BTreeSet<String> {
    let parts = ["FollowedEvents", "BackupLine", "Manifest", "ApiProblem", "By"];
    let mut waiting: Vec<String> = parts.map(str::to_owned).into();
    let replies = ROUTES.iter().filter_map(|route| route.reply);
    let replies = replies.flat_map(|reply| reply().split(['<', '>'])).map(short);
    waiting.extend(replies.map(str::to_owned));
    for route in ROUTES {
        let members = &resolve(types, short((route.request)())).1.members;
        waiting.extend(members.iter().flat_map(|it| names(&it.kind)).map(str::to_owned));
    }
    let mut found = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        let Some(declared) = types.get(&name) else { continue };
        if declared.members.is_empty() || !found.insert(name) {
            continue;
        }
        waiting.extend(declared.members.iter().flat_map(|it| names(&it.kind)).map(str::to_owned));
    }
    found
}

#[test]
fn every_route_and_its_types_are_described() {
    let types = types();
    made::holds("admin-socket.md", "routes", &routes(&types));
    let mut text = String::new();
    for name in reachable(&types) {
        let Declared { about, members, .. } = &types[&name];
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        write!(text, "### `{name}`\n\n{about}").unwrap();
        for member in members {
            writeln!(text, "- `{}`: {}", member.name, described(&types, member)).unwrap();
        }
        text.push('\n');
    }
    made::holds("admin-socket.md", "types", &text);
}
