//! Signing schemes as data: the checked contents of a provider file.
//!
//! A [`Scheme`] is made from TOML only ([`Scheme::parse`]) and describes a provider; it takes no
//! decision. `verify` reads it, `http` reads its limits and headers, and `config` parses the
//! operator's own files. Must stay true: `verify` needs no further check of a scheme that parsed;
//! this module computes which parts a signature covers, and a file cannot claim it.

mod parse;
pub mod place;
mod scheme;
mod setup;
pub(crate) mod template;

use crate::document::Problems;
pub use scheme::Scheme;
pub(crate) use scheme::{
    Delivery, Encoding, Event, Format, Hash, KeyText, Proof, Signature, Stamp, StampPlace,
    StampUnit,
};
pub use setup::Setup;

/// Finds each provider's file by its name, so that a new provider is one line of the table.
macro_rules! built_in {
    ($($name:literal: $samples:expr,)+) => {
        &[$(($name, include_str!(concat!("../../providers/", $name, ".toml")), $samples),)+]
    };
}

/// The built-in providers: name, the text of `providers/NAME.toml`, sample bodies.
const EMBEDDED: &[(&str, &str, &str)] = built_in! {
    "bearer": GENERIC,
    "certificate": GENERIC,
    "github": include_str!("../../providers/samples/github.json"),
    "none": GENERIC,
    "standard-webhooks": STANDARD_WEBHOOKS,
    "stripe": include_str!("../../providers/samples/stripe.json"),
    "svix": STANDARD_WEBHOOKS,
};

const GENERIC: &str = include_str!("../../providers/samples/generic.json");
const STANDARD_WEBHOOKS: &str = include_str!("../../providers/samples/standard-webhooks.json");

impl Scheme {
    /// The names of the built-in providers.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, ..)| *name)
    }

    /// The built-in provider `name`, with its samples.
    pub fn embedded(name: &str) -> Option<Scheme> {
        let (name, text, samples) = EMBEDDED.iter().find(|(known, ..)| *known == name)?;
        let scheme = Scheme::parse(name, text, &Problems::new())?;
        Some(Scheme { samples, ..scheme })
    }

    /// Reads a provider file. Adds everything that is wrong with it to `problems`, and then returns
    /// `None`. `file` is the name that the problems give.
    pub fn parse(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
        parse::scheme(file, text, problems)
    }
}

#[cfg(test)]
mod tests;
