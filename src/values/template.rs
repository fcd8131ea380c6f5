//! Texts of the configuration in which `{NAME}` stands for a value.
//!
//! Must stay true: a text is split when it is loaded, and values are put in once, so a brace in a value is a brace.

use crate::limits::VALUES_BYTES;

use super::Refused;

/// A text with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Each value's name, behind the text before it.
    values: Vec<(String, String)>,
    /// The text behind the last value.
    end: String,
}

/// A name in braces that no value has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no value is called '{0}'")]
pub struct Unknown(pub String);

impl Template {
    /// Splits a text. Braces around anything but a name are text.
    pub fn parse(text: &str, known: impl Fn(&str) -> bool) -> Result<Self, Unknown> {
        let (mut values, mut rest, mut plain) = (Vec::new(), text, String::new());
        while let Some((before, behind)) = rest.split_once('{') {
            plain.push_str(before);
            match behind.split_once('}').filter(|(name, _)| is_value_name(name)) {
                Some((name, after)) if known(name) => {
                    values.push((std::mem::take(&mut plain), name.to_owned()));
                    rest = after;
                }
                Some((name, _)) => return Err(Unknown(name.to_owned())),
                None => {
                    plain.push('{');
                    rest = behind;
                }
            }
        }
        plain.push_str(rest);
        Ok(Template { values, end: plain })
    }

    /// A text without values.
    pub fn plain(text: &str) -> Self {
        Template { values: Vec::new(), end: text.to_owned() }
    }

    /// The names of its values, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(_, name)| name.as_str())
    }

    /// The text, with what `put` writes for each value. `put` gets the text before it, and the value's name.
    pub fn fill(
        &self,
        mut put: impl FnMut(&mut String, &str) -> Result<(), Refused>,
    ) -> Result<String, Refused> {
        let mut filled = String::new();
        for (before, name) in &self.values {
            filled.push_str(before);
            put(&mut filled, name)?;
        }
        Ok(filled + &self.end)
    }
}

/// Whether a value can have this name, which is also a variable's.
pub fn is_value_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The text of a value.
pub fn text_of<'v>(values: &'v [(String, String)], name: &str) -> &'v str {
    values.iter().find(|(known, _)| known == name).map_or("", |(_, text)| text)
}

/// A command's arguments. One that would begin with `-`, `@` or `+` from a value is refused: many programs take it
/// for an option, for a file to read, or for a command.
pub fn arguments(
    templates: &[Template],
    values: &[(String, String)],
) -> Result<Vec<String>, Refused> {
    // A value may stand in several arguments, and the kernel bounds them all together.
    let mut left = VALUES_BYTES;
    let mut put = |filled: &mut String, name: &str| {
        let text = text_of(values, name);
        if filled.is_empty() && text.starts_with(['-', '@', '+']) {
            return Err(Refused::new(
                name,
                "it stands at an argument's start and begins with '-', '@' or '+'",
            ));
        }
        left = left.checked_sub(text.len()).ok_or_else(|| {
            let rule = format!("the values in the arguments are over {VALUES_BYTES} bytes");
            Refused::new(name, rule)
        })?;
        filled.push_str(text);
        Ok(())
    };
    templates.iter().map(|template| template.fill(&mut put)).collect()
}
