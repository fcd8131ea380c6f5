//! What runs, and what it gets of the event.

use std::path::Path;

use super::hooks::{Node, reference};
use super::places::Payload;

/// A command, its arguments and its variables.
#[derive(Default)]
pub(super) struct Command {
    pub(super) words: Vec<String>,
    pub(super) folder: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) values: Vec<Value>,
    /// Why it cannot do what it does in webhook.
    pub(super) wrong: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// A value of the event, which is a variable too.
pub(super) struct Value {
    pub(super) name: String,
    pub(super) from: String,
    /// What stands in for nothing; without it the variable is not set.
    pub(super) instead: Option<String>,
}

/// Where a command gets something of the event.
struct Part {
    source: String,
    name: String,
    variable: String,
}

impl Part {
    fn read(node: &Node) -> Result<Self, String> {
        Ok(Part {
            source: node.text("source")?,
            name: node.text("name")?,
            variable: node.text("envname")?,
        })
    }
}

/// What a part is here.
enum Given {
    Constant(String),
    Value(String),
    /// A part that is nothing, in the other program too.
    Nothing,
}

impl Command {
    /// Reads the command of a hook. `only_post` says that the source takes nothing else.
    pub(super) fn of(hook: &Node, payload: &Payload, only_post: bool) -> Self {
        let mut command = Command::default();
        if let Err(why) = command.program(hook) {
            command.wrong.push(why);
        }
        for part in command.parts(hook, "pass-environment-to-command") {
            command.variable(part, payload, only_post);
        }
        command.files(hook);
        // Last, so that the names of their values are not those of variables.
        for part in command.parts(hook, "pass-arguments-to-command") {
            match command.given(&part, payload, only_post) {
                Ok(Given::Constant(text)) => command.words.push(text),
                Ok(Given::Nothing) => command.words.push(String::new()),
                Ok(Given::Value(from)) => {
                    let name = command.argument(&part, from);
                    command.words.push(format!("{{{name}}}"));
                }
                Err(why) => {
                    // A word in its place, so that the others keep theirs.
                    command.words.push(format!("({} {})", part.source, part.name));
                    command.wrong.push(format!("argument {}: {why}", command.words.len() - 1));
                }
            }
        }
        command
    }

    /// The places that its values come from.
    pub(super) fn places(&self) -> impl Iterator<Item = &String> + Clone {
        self.values.iter().map(|value| &value.from)
    }

    fn parts(&mut self, hook: &Node, member: &str) -> Vec<Part> {
        let parts = hook.nodes(member).and_then(|nodes| nodes.iter().map(Part::read).collect());
        parts.unwrap_or_else(|why| {
            self.wrong.push(why);
            Vec::new()
        })
    }

    fn program(&mut self, hook: &Node) -> Result<(), String> {
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
            self.notes.push("execute-command was relative to the folder in which webhook was started: make it absolute".to_owned());
        }
        if !self.folder.is_empty() && !Path::new(&self.folder).is_absolute() {
            self.notes.push("command-working-directory was relative to the folder in which webhook was started, and is to this configuration's: make it absolute".to_owned());
        }
        Ok(())
    }

    fn given(&mut self, part: &Part, payload: &Payload, only_post: bool) -> Result<Given, String> {
        let Part { source, name, .. } = part;
        match (source.as_str(), name.to_lowercase().as_str()) {
            ("string", _) => constant(name).map(Given::Constant),
            // Only of a multipart form, whose bytes webhook does not keep, it is empty there.
            ("raw-request-body", _) => Ok(Given::Value(String::new())),
            ("request", "method") if only_post => Ok(Given::Constant("POST".to_owned())),
            ("request", "method" | "remote-addr") => {
                Err(format!("{name} of the request, which no handler gets"))
            }
            ("request" | "", _) => Ok(Given::Nothing),
            ("entire-headers" | "entire-query", _) => {
                Err(format!("{source}, of which only what is named is kept here"))
            }
            ("header" | "url" | "query" | "payload" | "entire-payload", _) => {
                let Some(place) = payload.place(source, name)? else { return Ok(Given::Nothing) };
                Ok(Given::Value(place))
            }
            _ => Ok(Given::Nothing),
        }
    }

    /// The name of an argument's value.
    fn argument(&mut self, part: &Part, from: String) -> String {
        let name = if part.name.is_empty() { &part.source } else { &part.name };
        let name = variable(&format!("HOOK_{}", name.to_uppercase()));
        let mut free = name.clone();
        for nth in 2.. {
            let known = self.values.iter().find(|known| known.name == free);
            if known.is_some_and(|known| known.from == from && known.instead.is_none()) {
                return free;
            }
            if known.is_none() && self.env.iter().all(|(known, _)| *known != free) {
                break;
            }
            free = format!("{}_{nth}", name.chars().take(60).collect::<String>());
        }
        self.values.push(Value { name: free.clone(), from, instead: None });
        free
    }

    fn variable(&mut self, part: Part, payload: &Payload, only_post: bool) {
        let given = match part.variable.is_empty() {
            true => format!("HOOK_{}", part.name),
            false => part.variable.clone(),
        };
        let name = variable(&given);
        if name != given {
            self.notes.push(format!("the variable {given} is called {name} here"));
        }
        let found = match self.given(&part, payload, only_post) {
            Ok(Given::Nothing) => return,
            Ok(found) => found,
            Err(why) => return self.wrong.push(format!("variable {given}: {why}")),
        };
        // Of two with one name the last counts, as there, unless it has no value.
        let constant = self.env.iter().position(|(known, _)| *known == name);
        let instead = constant.map(|at| self.env.remove(at).1);
        let known = self.values.iter().position(|known| known.name == name);
        let replaced = known.map(|at| self.values.remove(at));
        match found {
            Given::Value(from) => {
                if replaced.is_some_and(|known| known.from != from) {
                    self.notes.push(format!("of the two variables {given} only the last is set here; webhook sets the first where the last has no value"));
                }
                let instead =
                    instead.and_then(|text| text.strip_prefix("literal:").map(str::to_owned));
                self.values.push(Value { name, from, instead });
            }
            Given::Constant(text) => self.env.push((name, format!("literal:{text}"))),
            Given::Nothing => {}
        }
    }

    fn files(&mut self, hook: &Node) {
        let nodes = hook.nodes("pass-file-to-command").unwrap_or_else(|why| {
            self.wrong.push(why);
            Vec::new()
        });
        let mut is_read = false;
        for node in nodes {
            let Ok(part) = Part::read(&node) else { continue };
            let is_body = matches!(part.source.as_str(), "entire-payload" | "raw-request-body");
            if !is_body || is_read || node.is_on("base64decode") {
                self.wrong.push(format!(
                    "pass-file-to-command of '{}': no file is made here; the command can make one of a variable, or of the body on its standard input",
                    part.name
                ));
                continue;
            }
            is_read = true;
            let given = match part.variable.is_empty() {
                true => format!("HOOK_{}", part.name.to_uppercase()),
                false => part.variable.clone(),
            };
            let name = variable(&given);
            self.notes.push(format!(
                "{name} is /dev/stdin, which can be read once, and has the body as it came{}",
                match part.source.as_str() {
                    "entire-payload" =>
                        "; webhook made a file of its payload, written anew as JSON",
                    _ => "",
                }
            ));
            self.env.push((name, "/dev/stdin".to_owned()));
        }
    }
}

fn constant(text: &str) -> Result<String, String> {
    match reference(text) {
        Ok(None) => Ok(text.to_owned()),
        _ => Err("a template: import the file with its templates filled in".to_owned()),
    }
}

/// A name that a shell can read.
fn variable(given: &str) -> String {
    let fits = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    given.chars().map(fits).take(64).collect()
}
