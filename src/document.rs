//! A TOML reader with positions: reads a document key by key and collects every problem.
//!
//! `config` and `provider` use it. A caller asks a [`Section`] for the keys that it knows;
//! [`Section::finish`] reports the other keys as unknown and suggests the nearest known one. Must
//! stay true: reading does not stop at the first problem, so that one run reports all of them.

mod problem;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};

pub use problem::{At, Fault, Problem, Problems};

/// A parsed TOML file.
pub struct Document<'t> {
    file: &'t str,
    text: &'t str,
    root: Spanned<DeValue<'t>>,
}

impl<'t> Document<'t> {
    /// Parses `text`; adds a syntax error to `problems` and then returns `None`.
    pub fn parse(file: &'t str, text: &'t str, problems: &Problems) -> Option<Self> {
        match DeTable::parse(text) {
            Ok(root) => Some(Document::new(file, text, root)),
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
        Document::new(file, text, root)
    }

    fn new(file: &'t str, text: &'t str, root: Spanned<DeTable<'t>>) -> Self {
        // The table of the whole file begins where the file does.
        let root = Spanned::new(0..text.len(), DeValue::Table(root.into_inner()));
        Document { file, text, root }
    }

    /// Returns, for each table of the list `key`, a copy of the document without that list, in which this table's
    /// values replace the document's. Two tables of one name are joined, unless `whole` has the name: then the list's
    /// replaces the other.
    pub fn variants(&self, key: &str, whole: &[&str]) -> Vec<Self> {
        let own = self.root.get_ref().as_table();
        let list = own.and_then(|own| own.get(key)?.get_ref().as_array());
        let variant = |over: &Spanned<DeValue<'t>>| {
            let mut root = own?.clone();
            root.remove(key);
            for (name, value) in over.get_ref().as_table()? {
                let joined =
                    root.get_mut(&**name.get_ref()).filter(|_| !whole.contains(&&**name.get_ref()));
                match (joined.map(Spanned::get_mut), value.get_ref()) {
                    (Some(DeValue::Table(own)), DeValue::Table(new)) => {
                        own.extend(new.iter().map(|(name, value)| (name.clone(), value.clone())));
                    }
                    _ => {
                        root.insert(name.clone(), value.clone());
                    }
                }
            }
            let (file, text) = (self.file, self.text);
            Some(Document { file, text, root: Spanned::new(over.span(), DeValue::Table(root)) })
        };
        list.into_iter().flat_map(|list| list.iter()).filter_map(variant).collect()
    }

    /// The document's top-level table; its problems go to `problems`.
    pub fn root<'d>(&'d self, problems: &'d Problems) -> Section<'d> {
        let Document { file, text, root } = self;
        Section::new(Raw { file, text, problems, key: String::new(), value: root })
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

impl<T> Value<T> {
    pub fn new(value: T, at: At) -> Self {
        Value { value, at }
    }

    /// Converts the value. An error becomes a problem at its position.
    pub fn convert<U, F: Into<Fault>>(
        self,
        problems: &Problems,
        convert: impl FnOnce(T) -> Result<U, F>,
    ) -> Option<Value<U>> {
        let Value { value, at } = self;
        match convert(value) {
            Ok(value) => Some(Value { value, at }),
            Err(fault) => {
                problems.report(&at, fault);
                None
            }
        }
    }
}

/// A type that a TOML value can be converted to.
pub trait FromToml: Sized {
    /// The type's name in messages, with an example if its form is not obvious.
    const EXPECTED: &'static str;
    /// Converts a value; `None` if it has another TOML type. An `Err` says what is wrong with a value of the right type.
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>>;
}

impl FromToml for String {
    const EXPECTED: &'static str = "a string";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        Some(Ok(value.as_str()?.to_owned()))
    }
}

impl FromToml for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        Some(Ok(value.as_bool()?))
    }
}

impl FromToml for u64 {
    const EXPECTED: &'static str = "a whole number";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        let integer = value.as_integer()?;
        let text = integer.as_str();
        let wrong = match text.starts_with('-') {
            true => "must be 0 or more",
            false => "is too large",
        };
        Some(u64::from_str_radix(text, integer.radix()).map_err(|_| wrong.to_owned()))
    }
}

impl FromToml for Duration {
    const EXPECTED: &'static str = "a duration such as \"30s\", \"5min\" or \"3d\"";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        let text = value.as_str()?;
        Some(humantime::parse_duration(text).map_err(|error| format!("'{text}': {error}")))
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromToml for Size {
    const EXPECTED: &'static str = "a size such as \"5 MiB\"";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        let text = value.as_str()?;
        let size = text.parse::<bytesize::ByteSize>().map(|size| Size(size.as_u64()));
        let wrong = || format!("'{text}' is not a size, such as \"512 KiB\" or \"5 MiB\"");
        Some(size.map_err(|_| wrong()))
    }
}

/// A string or a list of strings, read as a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany(pub Vec<String>);

impl FromToml for OneOrMany {
    const EXPECTED: &'static str = "a string or a list of strings";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        match value.as_str() {
            Some(text) => Some(Ok(OneOrMany(vec![text.to_owned()]))),
            None => Some(Vec::from_toml(value)?.map(OneOrMany)),
        }
    }
}

impl FromToml for Vec<String> {
    const EXPECTED: &'static str = "a list of strings";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            other => Err(mismatch("a list of strings", other) + " in it"),
        };
        Some(value.as_array()?.iter().map(text).collect())
    }
}

/// A value of any type with its position. Its problems go to those of its document.
#[derive(Clone)]
pub struct Raw<'d> {
    file: &'d str,
    text: &'d str,
    problems: &'d Problems,
    key: String,
    value: &'d Spanned<DeValue<'d>>,
}

impl<'d> Raw<'d> {
    pub fn get(&self) -> &'d DeValue<'d> {
        self.value.get_ref()
    }

    pub fn at(&self) -> At {
        // The span of a `[header]` table is its header. A table made by dotted keys has an empty span, so its
        // position is that of its first key.
        let first = self.get().as_table().and_then(|table| table.iter().next());
        match first {
            Some((name, _)) if self.value.span().is_empty() => self.at_byte(name.span().start),
            _ => self.at_byte(self.value.span().start),
        }
    }

    /// Converts the value; `None` if it is wrong, which is reported as a problem.
    pub fn read<T: FromToml>(&self) -> Option<Value<T>> {
        Value::new(self.get(), self.at()).convert(self.problems, |value| {
            T::from_toml(value).unwrap_or_else(|| Err(mismatch(T::EXPECTED, value)))
        })
    }

    /// Reads the value and converts it; `None` if either fails, which is reported as a problem.
    pub fn parse<T: FromToml, U, F: Into<Fault>>(
        &self,
        convert: impl FnOnce(T) -> Result<U, F>,
    ) -> Option<Value<U>> {
        self.read()?.convert(self.problems, convert)
    }

    /// The strings of a string or a list of strings, each with its position.
    pub fn texts(&self) -> Option<Vec<Value<String>>> {
        let Value { value: OneOrMany(texts), at } = self.read()?;
        let places = match self.items() {
            Some(items) => items.map(|item| item.at()).collect(),
            None => vec![at],
        };
        let texts = texts.into_iter().zip(places);
        Some(texts.map(|(value, at)| Value { value, at }).collect())
    }

    /// The elements of a list.
    pub fn items(&self) -> Option<impl Iterator<Item = Raw<'d>>> {
        let all = self.get().as_array()?.iter();
        Some(all.map(|value| Raw { value, ..self.clone() }))
    }

    /// The keys and values of a table, in its order.
    pub fn members(&self) -> Option<impl Iterator<Item = (Value<String>, Raw<'d>)>> {
        let with_place = |(name, member): (&Spanned<DeString<'_>>, Raw<'d>)| {
            let at = member.at_byte(name.span().start);
            (Value::new(name.get_ref().to_string(), at), member)
        };
        self.get().is_table().then(|| self.entries().map(with_place))
    }

    fn entries(&self) -> impl Iterator<Item = (&'d Spanned<DeString<'d>>, Raw<'d>)> {
        let all = self.get().as_table().into_iter().flatten();
        all.map(|(name, value)| (name, self.member(name.get_ref(), value)))
    }

    /// The value as a table; `None` if it is not one, which is reported as a problem.
    pub fn section(self) -> Option<Section<'d>> {
        if self.get().is_table() {
            return Some(Section::new(self));
        }
        self.problems.report(&self.at(), mismatch("a table", self.get()));
        None
    }

    /// What serde makes of the value.
    ///
    /// # Errors
    /// The value does not fit, such as a number of more than 64 bits.
    pub fn deserialize<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let reader = ValueDeserializer::from(self.value.clone());
        T::deserialize(reader).map_err(|error| error.message().to_owned())
    }

    /// Where problems with it go.
    pub fn problems(&self) -> &'d Problems {
        self.problems
    }

    /// Adds a problem at the value's position, with its help.
    pub fn reject(&self, message: impl Into<String>, help: impl Into<String>) {
        self.problems.reject(&self.at(), message, help);
    }

    fn member(&self, name: &str, value: &'d Spanned<DeValue<'d>>) -> Raw<'d> {
        let key = match self.key.as_str() {
            "" => name.to_owned(),
            parent => format!("{parent}.{name}"),
        };
        Raw { key, value, ..*self }
    }

    fn at_byte(&self, offset: usize) -> At {
        At::byte(self.file, self.text, offset, &*self.key)
    }
}

/// One table of a document. It remembers which keys the caller asked for.
pub struct Section<'d> {
    table: Raw<'d>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'d> Section<'d> {
    fn new(table: Raw<'d>) -> Self {
        Section { table, asked: RefCell::default() }
    }

    /// The key's value, of any type. The key counts as asked for.
    pub fn raw(&self, key: &'static str) -> Option<Raw<'d>> {
        self.asked.borrow_mut().insert(key);
        let value = self.table.get().as_table()?.get(key)?;
        Some(self.table.member(key, value))
    }

    /// The key's value; `None` if the key is absent, or wrong, which is reported as a problem.
    pub fn get<T: FromToml>(&self, key: &'static str) -> Option<Value<T>> {
        self.raw(key)?.read()
    }

    /// The key's value without its position; `None` if the key is absent, or wrong, which is reported as a problem.
    pub fn value<T: FromToml>(&self, key: &'static str) -> Option<T> {
        Some(self.get(key)?.value)
    }

    /// The key's value, converted. An error becomes a problem at the value's position.
    pub fn parse<T: FromToml, U, F: Into<Fault>>(
        &self,
        key: &'static str,
        convert: impl FnOnce(T) -> Result<U, F>,
    ) -> Option<Value<U>> {
        self.raw(key)?.parse(convert)
    }

    /// The strings of a string or a list of strings, converted. Leaves out those that are wrong, which are reported as
    /// problems.
    pub fn list<U, F: Into<Fault>>(
        &self,
        key: &'static str,
        convert: impl Fn(String) -> Result<U, F>,
    ) -> Vec<Value<U>> {
        let texts = self.texts(key).unwrap_or_default().into_iter();
        texts.filter_map(|text| text.convert(self.problems(), &convert)).collect()
    }

    /// The key's value. A missing key is reported as a problem.
    pub fn required<T: FromToml>(&self, key: &'static str) -> Option<Value<T>> {
        self.demand(key, format!("add {key} = {}", T::EXPECTED));
        self.get(key)
    }

    /// Reports the key with this help if it is missing.
    pub fn demand(&self, key: &'static str, help: impl Into<String>) {
        if !self.has(key) {
            self.problem(Fault::new(format!("'{key}' is missing"), help));
        }
    }

    /// The strings of a string or a list of strings, each with its position.
    pub fn texts(&self, key: &'static str) -> Option<Vec<Value<String>>> {
        self.raw(key)?.texts()
    }

    /// The position of the key's value, if the key is present. Its type does not matter.
    pub fn place_of(&self, key: &'static str) -> Option<At> {
        Some(self.raw(key)?.at())
    }

    /// Whether the key is present. Its type does not matter.
    pub fn has(&self, key: &'static str) -> bool {
        self.raw(key).is_some()
    }

    /// The table `[key]`; `None` if it is absent, or is not a table, which is reported as a problem.
    pub fn section(&self, key: &'static str) -> Option<Section<'d>> {
        self.raw(key)?.section()
    }

    /// Whether the key's value is a table.
    pub fn is_table(&self, key: &'static str) -> bool {
        self.raw(key).is_some_and(|raw| raw.get().is_table())
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
        let parent = self.section(key);
        let members = parent.iter().flat_map(Section::members);
        members.filter_map(|(name, member)| Some((name, member.section()?))).collect()
    }

    /// The strings in this table, with their keys. A value that is not a string is reported as a problem.
    pub fn strings(&self) -> Vec<(String, Value<String>)> {
        self.members().filter_map(|(name, member)| Some((name, member.read()?))).collect()
    }

    /// Every key of this table with its value.
    pub fn members(&self) -> impl Iterator<Item = (String, Raw<'d>)> {
        self.table.entries().map(|(name, member)| (name.get_ref().to_string(), member))
    }

    /// Where problems with it go.
    pub fn problems(&self) -> &'d Problems {
        self.table.problems
    }

    /// The position of this table.
    pub fn here(&self) -> At {
        self.table.at()
    }

    /// Adds a problem at this table's position.
    pub fn problem(&self, fault: impl Into<Fault>) {
        self.report(&self.here(), fault);
    }

    /// Adds a problem at the position of one of its values.
    pub fn report(&self, at: &At, fault: impl Into<Fault>) {
        self.table.problems.report(at, fault);
    }

    /// Adds a problem at the position of one of its values, with its help.
    pub fn reject(&self, at: &At, message: impl Into<String>, help: impl Into<String>) {
        self.table.problems.reject(at, message, help);
    }

    /// Reports the key if it is present.
    pub fn refuse(&self, key: &'static str, message: &str, help: &str) {
        if let Some(value) = self.raw(key) {
            value.reject(message, help);
        }
    }

    /// Reports as unknown every key that the caller did not ask for. Call it last.
    pub fn finish(self) {
        let asked = self.asked.borrow();
        let is_unknown =
            |(name, _): &(&Spanned<DeString<'_>>, _)| !asked.contains(&**name.get_ref());
        for (name, member) in self.table.entries().filter(is_unknown) {
            let at = member.at_byte(name.span().start);
            let name: &str = name.get_ref();
            // The operator may have left out the unit at the end of a key.
            let with_unit =
                |key: &&str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
            let help = match asked.iter().copied().find(with_unit) {
                Some(near) if nearest(name, asked.iter().copied()).is_none() => {
                    format!("did you mean '{near}'?")
                }
                _ => did_you_mean(name, asked.iter().copied(), "the keys here"),
            };
            self.reject(&at, "unknown key", help);
        }
    }
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

/// A help for an unknown word: the nearest known one, or else all of them.
pub fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    all: &str,
) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("{all} are: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
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
