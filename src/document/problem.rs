//! A mistake in a file: what is wrong, where, and what the operator can do about it.

use std::cell::RefCell;
use std::fmt;

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

impl Problem {
    /// A problem with a whole file.
    pub fn of_file(file: impl Into<String>, fault: impl Into<Fault>) -> Self {
        At { file: file.into(), line: 0, column: 0, key: String::new() }.problem(fault)
    }
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

/// What is wrong and what to do about it, without the position. A text alone is a fault without help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    message: String,
    help: Option<String>,
}

impl Fault {
    /// `message` is a lower-case fragment, `help` an instruction to the operator.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Fault { message: message.into(), help: Some(help.into()) }
    }

    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Replaces the fault's help.
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Fault { help: Some(help.into()), ..self }
    }
}

/// The message alone.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<T: Into<String>> From<T> for Fault {
    fn from(message: T) -> Self {
        Fault { message: message.into(), help: None }
    }
}

/// The problems found so far, shared by the sections of any number of documents.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a problem; the order does not matter.
    pub fn push(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// Adds a problem at `at`.
    pub fn report(&self, at: &At, fault: impl Into<Fault>) {
        self.push(at.problem(fault));
    }

    /// Adds a problem at `at` with its help.
    pub fn reject(&self, at: &At, message: impl Into<String>, help: impl Into<String>) {
        self.report(at, Fault::new(message, help));
    }

    /// Whether no problem was found so far.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The value if no problem was found, else all problems, sorted by file and position.
    pub fn none_or<T>(self, value: T) -> Result<T, Vec<Problem>> {
        let all = self.into_sorted();
        if all.is_empty() { Ok(value) } else { Err(all) }
    }

    /// All problems, sorted by file and position.
    pub fn into_sorted(self) -> Vec<Problem> {
        let mut all = self.0.into_inner();
        all.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        all
    }
}

impl FromIterator<Problem> for Problems {
    fn from_iter<T: IntoIterator<Item = Problem>>(problems: T) -> Self {
        Problems(RefCell::new(problems.into_iter().collect()))
    }
}

/// A position in a file. All positions are equal, so that two configurations compare by what they say and
/// not by where they say it.
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
    /// The position of a byte of a file's text; `key` is the dotted key that stands there.
    pub fn byte(file: &str, text: &str, offset: usize, key: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        At {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.chars().rev().take_while(|&c| c != '\n').count() + 1,
            key: key.into(),
        }
    }

    /// A problem at this position.
    pub fn problem(&self, fault: impl Into<Fault>) -> Problem {
        let Fault { message, help } = fault.into();
        let At { file, line, column, key } = self.clone();
        Problem { file, line, column, key, message, help }
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }
}

/// The position as `file:line:column`.
impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
