//! JSON pointers (RFC 6901), as provider files and the configuration write them.

use std::fmt;

use crate::limits::POINTER_STEPS;

/// A pointer, split into its decoded steps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer such as `/a/b~1c/0`; an `Err` says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(steps) = text.strip_prefix('/') else {
            return Err(format!(
                "'{text}' is not a JSON pointer: it starts with '/', as in /data/id"
            ));
        };
        let steps: Vec<String> =
            steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        if steps.len() > POINTER_STEPS {
            return Err(format!(
                "'{text}' has {} steps; {POINTER_STEPS} is the limit",
                steps.len()
            ));
        }
        Ok(Pointer(steps))
    }

    /// The pointer to the whole text.
    pub(crate) fn root() -> Self {
        Pointer(Vec::new())
    }

    /// The lists of which the pointer names one element: the pointer up to each of its steps that is a number.
    pub(crate) fn lists(&self) -> impl Iterator<Item = Self> {
        let is_index = |step: &str| !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit());
        let steps = self.0.iter().enumerate().filter(move |(_, step)| is_index(step));
        steps.map(|(at, _)| Pointer(self.0[..at].to_vec()))
    }

    /// The decoded steps, starting at the root.
    pub(crate) fn steps(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            write!(f, "/{}", step.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}
