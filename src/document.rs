//! A TOML reader with positions: reads a document key by key and collects every problem.
//!
//! `config` and `provider` use it. A caller asks a [`Section`] for the keys that it knows;
//! [`Section::finish`] reports the other keys as unknown and suggests the nearest known one. Must
//! stay true: reading does not stop at the first problem, so that one run reports all of them.

mod problem;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

pub use problem::{At, Fault, Problem, Problems};

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
                problems.push(match error.span() {
                    Some(span) => At::byte(file, text, span.start, "").problem(error.message()),
                    None => Problem::of_file(file, error.message()),
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

/// A value with its position, for problems that are found later. Serializes as the value alone.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct Value<T> {
    pub value: T,
    /// The value's position in the file.
    #[serde(skip)]
    pub at: At,
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

/// A value of any type with its position, for a reader of tables whose keys are not fixed.
#[derive(Clone)]
pub struct Raw<'d> {
    file: &'d str,
    text: &'d str,
    key: String,
    value: &'d Spanned<DeValue<'d>>,
}

impl<'d> Raw<'d> {
    pub fn get(&self) -> &'d DeValue<'d> {
        self.value.get_ref()
    }

    pub fn at(&self) -> At {
        let first = self.members().and_then(|mut members| members.next());
        match first {
            // A table made by dotted keys has an empty span.
            Some((name, _)) if self.value.span().is_empty() => name.at,
            _ => self.at_byte(self.value.span().start, self.key.clone()),
        }
    }

    /// The elements of a list.
    pub fn items(&self) -> Option<impl Iterator<Item = Raw<'d>>> {
        let all = self.get().as_array()?.iter();
        Some(all.map(|value| Raw { value, ..self.clone() }))
    }

    /// The keys and values of a table, in its order.
    pub fn members(&self) -> Option<impl Iterator<Item = (Value<String>, Raw<'d>)>> {
        let all = self.get().as_table()?.iter();
        Some(all.map(|(name, value)| {
            let text: &str = AsRef::<str>::as_ref(name.get_ref());
            let key = format!("{}.{text}", self.key);
            let at = self.at_byte(name.span().start, key.clone());
            (Value { value: text.to_owned(), at }, Raw { key, value, ..self.clone() })
        }))
    }

    /// What serde makes of the value.
    ///
    /// # Errors
    /// The value does not fit, such as a number of more than 64 bits.
    pub fn deserialize<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let reader = ValueDeserializer::from(self.value.clone());
        T::deserialize(reader).map_err(|error| error.message().to_owned())
    }

    fn at_byte(&self, offset: usize, key: String) -> At {
        At::byte(self.file, self.text, offset, key)
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

/// A value that may be written as a string, or as a table for more.
pub enum TextOrSection<'d> {
    Text(Value<String>),
    Section(Section<'d>),
}

impl<'d> Section<'d> {
    /// The key's value; `None` if the key is absent, or wrong, which is reported as a problem.
    pub fn get<T: FromToml>(&self, key: &'static str) -> Option<Value<T>> {
        self.read(key, self.value(key)?)
    }

    /// The key's value. A missing key is reported as a problem.
    pub fn required<T: FromToml>(&self, key: &'static str) -> Option<Value<T>> {
        self.lacks(key, format!("add {key} = {}", T::EXPECTED));
        self.get(key)
    }

    /// Whether the key is missing, which is reported with this help.
    pub fn lacks(&self, key: &'static str, help: impl Into<String>) -> bool {
        let missing = !self.has(key);
        if missing {
            self.problem(Fault::new(format!("'{key}' is missing"), help));
        }
        missing
    }

    /// Converts a value that was read. An error becomes a problem at the value's position.
    pub fn convert<T, U, F: Into<Fault>>(
        &self,
        read: Option<Value<T>>,
        convert: impl FnOnce(T) -> Result<U, F>,
    ) -> Option<Value<U>> {
        let Value { value, at } = read?;
        match convert(value) {
            Ok(value) => Some(Value { value, at }),
            Err(fault) => {
                self.report(&at, fault);
                None
            }
        }
    }

    /// The strings of a string or a list of strings, each with its position.
    pub fn texts(&self, key: &'static str) -> Option<Vec<Value<String>>> {
        self.texts_of(key, self.value(key)?)
    }

    /// Every key of this table with its strings. A value that is not a string or a list of strings is
    /// reported as a problem.
    pub fn named_texts(&self) -> Vec<(String, Vec<Value<String>>)> {
        let texts = |(name, value)| Some((str::to_owned(name), self.texts_of(name, value)?));
        self.members().filter_map(texts).collect()
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
        self.value(key).map(|value| self.at(key, value.span()))
    }

    /// The key's value, of any type.
    pub fn raw(&self, key: &'static str) -> Option<Raw<'d>> {
        let value = self.value(key)?;
        Some(Raw { file: self.file, text: self.text, key: self.join(key), value })
    }

    /// Converts a value; `None` if it is wrong, which is reported as a problem.
    pub fn convert_raw<T: FromToml>(&self, raw: &Raw<'_>) -> Option<Value<T>> {
        self.convert(Some(Value { value: raw.get(), at: raw.at() }), convert)
    }

    /// Whether the key is present. Its type does not matter.
    pub fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// The table `[key]`; `None` if it is absent, or is not a table, which is reported as a problem.
    pub fn section(&self, key: &'static str) -> Option<Section<'d>> {
        self.child(key, self.value(key)?)
    }

    /// The table `[key]`. A missing table is reported with this help.
    pub fn required_section(&self, key: &'static str, help: &str) -> Option<Section<'d>> {
        if !self.has(key) {
            self.problem(Fault::new(format!("[{key}] is missing"), help));
        }
        self.section(key)
    }

    /// The tables `[key.NAME]`, with their names.
    pub fn sections(&self, key: &'static str) -> Vec<(String, Section<'d>)> {
        let Some(parent) = self.section(key) else { return Vec::new() };
        let child = |(name, value)| Some((str::to_owned(name), parent.child(name, value)?));
        parent.members().filter_map(child).collect()
    }

    /// The strings in this table, with their keys. A value that is not a string is reported as a problem.
    pub fn strings(&self) -> Vec<(String, Value<String>)> {
        let string = |(name, value)| Some((str::to_owned(name), self.read(name, value)?));
        self.members().filter_map(string).collect()
    }

    /// Every key of this table, whose values are strings or tables. Another value is reported as a problem.
    pub fn texts_or_sections(&self) -> Vec<(String, TextOrSection<'d>)> {
        let read = |(name, value): (&'d str, &'d Spanned<DeValue<'d>>)| {
            let read = match value.get_ref() {
                DeValue::String(_) => TextOrSection::Text(self.read(name, value)?),
                _ => TextOrSection::Section(self.child(name, value)?),
            };
            Some((name.to_owned(), read))
        };
        self.members().filter_map(read).collect()
    }

    /// The position of this table.
    pub fn here(&self) -> At {
        At::byte(self.file, self.text, self.span.start, &*self.path)
    }

    /// Adds a problem at this table's position.
    pub fn problem(&self, fault: impl Into<Fault>) {
        self.report(&self.here(), fault);
    }

    /// Adds a problem at the position of one of its values.
    pub fn report(&self, at: &At, fault: impl Into<Fault>) {
        self.problems.report(at, fault);
    }

    /// Adds a problem at the position of one of its values, with its help.
    pub fn reject(&self, at: &At, message: impl Into<String>, help: impl Into<String>) {
        self.problems.reject(at, message, help);
    }

    /// Reports as unknown every key that the caller did not ask for. Call it last.
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
            let near = nearest(name, asked.iter().copied())
                .or_else(|| asked.iter().copied().find(with_unit));
            let help = match near {
                Some(near) => format!("did you mean '{near}'?"),
                None => {
                    let known: Vec<_> = asked.iter().copied().collect();
                    format!("the keys here are: {}", known.join(", "))
                }
            };
            self.report(&self.at(name, key.span()), Fault::new("unknown key", help));
        }
    }

    /// The key's value. The key counts as asked for.
    fn value(&self, key: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.asked.borrow_mut().insert(key);
        self.table.get(key)
    }

    fn members(&self) -> impl Iterator<Item = (&'d str, &'d Spanned<DeValue<'d>>)> {
        self.table.iter().map(|(name, value)| (AsRef::<str>::as_ref(name.get_ref()), value))
    }

    fn read<T: FromToml>(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Value<T>> {
        let at = self.at(key, value.span());
        self.convert(Some(Value { value: value.get_ref(), at }), convert)
    }

    fn texts_of(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Value<String>>> {
        let Value { value: OneOrMany(texts), at } = self.read(key, value)?;
        let places = match value.get_ref().as_array() {
            Some(items) => items.iter().map(|item| self.at(key, item.span())).collect(),
            None => vec![at],
        };
        let texts = texts.into_iter().zip(places);
        Some(texts.map(|(value, at)| Value { value, at }).collect())
    }

    fn child(&self, key: &str, value: &'d Spanned<DeValue<'d>>) -> Option<Section<'d>> {
        let Some(table) = value.get_ref().as_table() else {
            self.report(&self.at(key, value.span()), mismatch("a table", value.get_ref()));
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
            path: self.join(key),
            table,
            span,
            asked: RefCell::default(),
            problems: self.problems,
        })
    }

    fn join(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn at(&self, key: &str, span: Range<usize>) -> At {
        At::byte(self.file, self.text, span.start, self.join(key))
    }
}

fn convert<T: FromToml>(value: &DeValue<'_>) -> Result<T, String> {
    T::from_toml(value).map_err(|wrong| wrong.unwrap_or_else(|| mismatch(T::EXPECTED, value)))
}

fn mismatch(expected: &str, found: &DeValue<'_>) -> String {
    format!("expected {expected}, found {}", found.type_str())
}

/// The known word with the smallest edit distance to `word`. The distance is at most 1 plus a quarter
/// of the known word's length.
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
