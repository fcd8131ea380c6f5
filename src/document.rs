//! A TOML reader with positions: reads a document key by key and collects every problem.
//!
//! `config` and `provider` use it. A caller asks a [`Section`] for the keys that it knows;
//! [`Section::finish`] reports the other keys as unknown and suggests the nearest known one. Must
//! stay true: reading does not stop at the first problem, so that one run reports all of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One mistake in a file, with its position and, if known, the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's name as the caller gave it.
    pub file: String,
    /// Line from 1; 0 for a problem with the whole file.
    pub line: usize,
    /// Column in characters from 1; 0 for a problem with the whole file.
    pub column: usize,
    /// Dotted path of the key; empty if the problem is not about a key.
    pub key: String,
    /// A lower-case fragment that says what is wrong.
    pub message: String,
    /// What the operator can do about it.
    pub help: Option<String>,
}

impl fmt::Display for Problem {
    /// Writes `file:line:column: key: message`, and the help on a second line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(help) = &self.help {
            write!(f, "\n    help: {help}")?;
        }
        Ok(())
    }
}

/// The problems found so far, shared by the sections of any number of documents.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a problem; the order does not matter.
    pub fn push(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// Adds a problem with a whole file.
    pub fn file(&self, file: &str, message: impl Into<String>, help: Option<String>) {
        self.push(Problem {
            file: file.to_owned(),
            line: 0,
            column: 0,
            key: String::new(),
            message: message.into(),
            help,
        });
    }

    /// Whether no problem was found so far.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// All problems, sorted by file and position.
    pub fn into_sorted(self) -> Vec<Problem> {
        let mut all = self.0.into_inner();
        all.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        all
    }
}

/// A parsed TOML file.
pub struct Document<'t> {
    file: &'t str,
    text: &'t str,
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Parses `text`; adds a syntax error to `problems` and then returns `None`.
    pub fn parse(file: &'t str, text: &'t str, problems: &Problems) -> Option<Self> {
        match DeTable::parse(text) {
            Ok(root) => Some(Document { file, text, root }),
            Err(error) => {
                let (line, column) = error.span().map_or((0, 0), |span| place(text, span.start));
                problems.push(Problem {
                    file: file.to_owned(),
                    line,
                    column,
                    key: String::new(),
                    message: error.message().to_owned(),
                    help: None,
                });
                None
            }
        }
    }

    /// The part of `text` that parses; syntax errors are ignored.
    pub fn in_part(file: &'t str, text: &'t str) -> Self {
        let (root, _errors) = DeTable::parse_recoverable(text);
        Document { file, text, root }
    }

    /// The document's top-level table; its problems go to `problems`.
    pub fn root<'d>(&'d self, problems: &'d Problems) -> Section<'d> {
        Section {
            file: self.file,
            text: self.text,
            path: String::new(),
            table: self.root.get_ref(),
            span: 0..0,
            asked: RefCell::default(),
            problems,
        }
    }
}

/// Line and column, from 1, of a byte offset.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    (line, column)
}

/// A value with its position, for problems that are found later.
#[derive(Debug, Clone, PartialEq)]
pub struct Value<T> {
    /// The converted value.
    pub value: T,
    /// The value's position in the file.
    pub at: At,
}

/// As the value: its place is for problems alone.
impl<T: serde::Serialize> serde::Serialize for Value<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// A place in a file. All places are equal, so that two configurations compare by what they say and not by
/// where they say it.
#[derive(Debug, Clone)]
pub struct At {
    file: String,
    line: usize,
    column: usize,
    key: String,
}

impl PartialEq for At {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl At {
    /// A problem at this position.
    pub fn problem(&self, message: impl Into<String>, help: Option<String>) -> Problem {
        Problem {
            file: self.file.clone(),
            line: self.line,
            column: self.column,
            key: self.key.clone(),
            message: message.into(),
            help,
        }
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The position as `file:line:column`.
    pub fn position(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A type that a TOML value can be converted to.
pub trait FromToml: Sized {
    /// The type's name in messages, with an example if its form is not obvious.
    const EXPECTED: &'static str;
    /// Converts a value. `Err(None)` means another TOML type; `Err(Some(message))` says what is wrong
    /// with a value of the right type.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>>;
}

impl FromToml for String {
    const EXPECTED: &'static str = "a string";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        value.as_str().map(str::to_owned).ok_or(None)
    }
}

impl FromToml for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        value.as_bool().ok_or(None)
    }
}

impl FromToml for u64 {
    const EXPECTED: &'static str = "a whole number";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let integer = value.as_integer().ok_or(None)?;
        let text = integer.as_str();
        u64::from_str_radix(text, integer.radix()).map_err(|_| {
            Some(
                if text.starts_with('-') { "must be 0 or more" } else { "is too large" }.to_owned(),
            )
        })
    }
}

impl FromToml for Duration {
    const EXPECTED: &'static str = "a duration such as \"30s\", \"5min\" or \"3d\"";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let text = value.as_str().ok_or(None)?;
        humantime::parse_duration(text).map_err(|error| Some(format!("'{text}': {error}")))
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromToml for Size {
    const EXPECTED: &'static str = "a size such as \"5 MiB\"";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let text = value.as_str().ok_or(None)?;
        text.parse::<bytesize::ByteSize>()
            .map(|size| Size(size.as_u64()))
            .map_err(|_| Some(format!("'{text}' is not a size, such as \"512 KiB\" or \"5 MiB\"")))
    }
}

/// A string or a list of strings, read as a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany(pub Vec<String>);

impl FromToml for OneOrMany {
    const EXPECTED: &'static str = "a string or a list of strings";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        match value.as_str() {
            Some(text) => Ok(OneOrMany(vec![text.to_owned()])),
            None => Vec::<String>::from_toml(value).map(OneOrMany),
        }
    }
}

impl FromToml for Vec<String> {
    const EXPECTED: &'static str = "a list of strings";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let array = value.as_array().ok_or(None)?;
        let text = |item: &Spanned<DeValue<'_>>| {
            let item = item.get_ref();
            item.as_str().map(str::to_owned).ok_or_else(|| {
                Some(format!("expected a list of strings, found {} in it", item.type_str()))
            })
        };
        array.iter().map(text).collect()
    }
}

/// One table of a document. It remembers which keys the caller asked for.
pub struct Section<'d> {
    file: &'d str,
    text: &'d str,
    path: String,
    table: &'d DeTable<'d>,
    span: Range<usize>,
    asked: RefCell<BTreeSet<&'static str>>,
    problems: &'d Problems,
}

impl<'d> Section<'d> {
    /// The key's value; `None` if the key is absent, or wrong, which is reported as a problem.
    pub fn get<T: FromToml>(&self, key: &'static str) -> Option<Value<T>> {
        self.asked.borrow_mut().insert(key);
        self.read(key, self.table.get(key)?)
    }

    fn read<T: FromToml>(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Value<T>> {
        let at = self.at(key, value.span());
        match T::from_toml(value.get_ref()) {
            Ok(value) => Some(Value { value, at }),
            Err(wrong) => {
                let found = value.get_ref().type_str();
                let message =
                    wrong.unwrap_or_else(|| format!("expected {}, found {found}", T::EXPECTED));
                self.problems.push(at.problem(message, None));
                None
            }
        }
    }

    /// The key's value. A missing key is reported as a problem.
    pub fn required<T: FromToml>(&self, key: &'static str) -> Option<Value<T>> {
        if self.table.get(key).is_none() {
            self.asked.borrow_mut().insert(key);
            self.problems.push(self.here().problem(
                format!("'{key}' is missing"),
                Some(format!("add {key} = {}", T::EXPECTED)),
            ));
            return None;
        }
        self.get(key)
    }

    /// The strings of a string or a list of strings, each with its position.
    pub fn texts(&self, key: &'static str) -> Option<Vec<Value<String>>> {
        self.asked.borrow_mut().insert(key);
        self.texts_of(key, self.table.get(key)?)
    }

    /// Every key of this table with its strings. A value that is not a string or a list of strings is
    /// reported as a problem.
    pub fn named_texts(&self) -> Vec<(String, Vec<Value<String>>)> {
        let named = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &str = AsRef::<str>::as_ref(name.get_ref());
            self.texts_of(name, value).map(|texts| (name.to_owned(), texts))
        };
        self.table.iter().filter_map(named).collect()
    }

    fn texts_of(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Value<String>>> {
        let whole = self.read::<OneOrMany>(key, value)?;
        let Some(array) = value.get_ref().as_array() else {
            let one = |value| Value { value, at: whole.at.clone() };
            return Some(whole.value.0.into_iter().map(one).collect());
        };
        let each = |(value, item): (String, &Spanned<DeValue<'_>>)| Value {
            value,
            at: self.at(key, item.span()),
        };
        Some(whole.value.0.into_iter().zip(array.iter()).map(each).collect())
    }

    /// The key's value if it is a string. Does not report other values, and does not count as asking
    /// for the key, because another caller reads it.
    pub fn text(&self, key: &'static str) -> Option<Value<String>> {
        let value = self.table.get(key)?;
        let text = value.get_ref().as_str()?.to_owned();
        Some(Value { value: text, at: self.at(key, value.span()) })
    }

    /// The position of the key's value, if the key is present. Its type does not matter.
    pub fn place_of(&self, key: &'static str) -> Option<At> {
        self.asked.borrow_mut().insert(key);
        self.table.get(key).map(|value| self.at(key, value.span()))
    }

    /// Whether the key is present. Its type does not matter.
    pub fn has(&self, key: &'static str) -> bool {
        self.asked.borrow_mut().insert(key);
        self.table.contains_key(key)
    }

    /// The table `[key]`; `None` if it is absent, or is not a table, which is reported as a problem.
    pub fn section(&self, key: &'static str) -> Option<Section<'d>> {
        self.asked.borrow_mut().insert(key);
        let value = self.table.get(key)?;
        self.child(key, key, value)
    }

    /// The tables `[key.NAME]`, with their names.
    pub fn sections(&self, key: &'static str) -> Vec<(String, Section<'d>)> {
        let Some(parent) = self.section(key) else { return Vec::new() };
        parent.entries()
    }

    /// The tables of the array `[[key]]`.
    pub fn list(&self, key: &'static str) -> Vec<Section<'d>> {
        self.asked.borrow_mut().insert(key);
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            let found = value.get_ref().type_str();
            let message = format!("expected a list of tables, found {found}");
            self.problems.push(self.at(key, value.span()).problem(message, None));
            return Vec::new();
        };
        let item = |(n, value)| self.child(key, &format!("{key}[{n}]"), value);
        array.iter().enumerate().filter_map(item).collect()
    }

    /// The tables in this table, with their names. A value that is not a table is reported as a problem.
    pub fn entries(&self) -> Vec<(String, Section<'d>)> {
        let entry = |(name, value): (&Spanned<_>, &'d Spanned<DeValue<'d>>)| {
            let name: &str = AsRef::<str>::as_ref(name.get_ref());
            self.child(name, name, value).map(|section| (name.to_owned(), section))
        };
        self.table.iter().filter_map(entry).collect()
    }

    /// The strings in this table, with their keys. A value that is not a string is reported as a problem.
    pub fn strings(&self) -> Vec<(String, Value<String>)> {
        let mut all = Vec::new();
        for (name, value) in self.table {
            let name: &str = AsRef::<str>::as_ref(name.get_ref());
            let at = self.at(name, value.span());
            match value.get_ref().as_str() {
                Some(text) => all.push((name.to_owned(), Value { value: text.to_owned(), at })),
                None => {
                    let found = value.get_ref().type_str();
                    self.problems
                        .push(at.problem(format!("expected a string, found {found}"), None));
                }
            }
        }
        all
    }

    /// The position of this table.
    pub fn here(&self) -> At {
        self.position(self.path.clone(), self.span.start)
    }

    /// Adds a problem at this table's position.
    pub fn problem(&self, message: impl Into<String>, help: Option<String>) {
        self.problems.push(self.here().problem(message, help));
    }

    /// The list that this table's problems are added to.
    pub fn problems(&self) -> &'d Problems {
        self.problems
    }

    /// Reports every key that the caller did not ask for as unknown. Call it last.
    pub fn finish(self) {
        let asked = self.asked.borrow();
        for (key, _) in self.table {
            let name: &str = AsRef::<str>::as_ref(key.get_ref());
            if asked.contains(name) {
                continue;
            }
            // The operator may have left out the unit at the end of a key.
            let with_unit =
                |key: &&str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
            let help = nearest(name, asked.iter().copied())
                .or_else(|| asked.iter().copied().find(with_unit))
                .map(|near| format!("did you mean '{near}'?"))
                .or_else(|| {
                    let known = asked.iter().copied().collect::<Vec<_>>().join(", ");
                    Some(format!("the keys here are: {known}"))
                });
            self.problems.push(self.at(name, key.span()).problem("unknown key", help));
        }
    }

    fn child(&self, key: &str, step: &str, value: &'d Spanned<DeValue<'d>>) -> Option<Section<'d>> {
        let Some(table) = value.get_ref().as_table() else {
            let found = value.get_ref().type_str();
            let message = format!("expected a table, found {found}");
            self.problems.push(self.at(key, value.span()).problem(message, None));
            return None;
        };
        // The span of a `[header]` table is its header. A table made by dotted keys has an empty span,
        // so its position is that of its first key.
        let span = if value.span().is_empty() {
            table.iter().next().map_or(0..0, |(key, _)| key.span())
        } else {
            value.span()
        };
        Some(Section {
            file: self.file,
            text: self.text,
            path: self.join(step),
            table,
            span,
            asked: RefCell::default(),
            problems: self.problems,
        })
    }

    fn join(&self, step: &str) -> String {
        if self.path.is_empty() { step.to_owned() } else { format!("{}.{step}", self.path) }
    }

    fn at(&self, key: &str, span: Range<usize>) -> At {
        self.position(self.join(key), span.start)
    }

    fn position(&self, key: String, offset: usize) -> At {
        let (line, column) = place(self.text, offset);
        At { file: self.file.to_owned(), line, column, key }
    }
}

/// The known word with the smallest edit distance to `word`. The distance may be 1 plus a quarter of
/// the known word's length.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(read: impl Fn(&Section<'_>)) -> Vec<String> {
        let text = "one = 1\n[tabel]\nx = \"y\"\n[named.a]\nwait = \"3 parsecs\"\nsize = 5\n";
        let problems = Problems::new();
        if let Some(document) = Document::parse("f.toml", text, &problems) {
            let root = document.root(&problems);
            read(&root);
            root.finish();
        }
        problems.into_sorted().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_problem_has_its_position_and_the_nearest_key() {
        let found = problems(|root| {
            root.get::<String>("one");
            root.get::<String>("table");
            for (_, section) in root.sections("named") {
                section.get::<Duration>("wait");
                section.get::<Size>("size");
                section.required::<bool>("must");
                section.finish();
            }
        });
        assert_eq!(
            found,
            [
                "f.toml:1:7: one: expected a string, found integer",
                "f.toml:2:2: tabel: unknown key\n    help: did you mean 'table'?",
                "f.toml:4:1: named.a: 'must' is missing\n    help: add must = true or false",
                "f.toml:5:8: named.a.wait: '3 parsecs': unknown time unit \"parsecs\", supported units: ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)",
                "f.toml:6:8: named.a.size: expected a size such as \"5 MiB\", found integer",
            ]
        );
    }

    #[test]
    fn a_syntax_error_has_its_position() {
        let problems = Problems::new();
        assert!(Document::parse("f.toml", "a = \n", &problems).is_none());
        assert!(problems.into_sorted()[0].to_string().starts_with("f.toml:1:5: "));
    }
}
