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

/// The built-in provider files: name, TOML text, sample bodies.
const EMBEDDED: &[(&str, &str, &str)] = &[
    ("bearer", include_str!("../../providers/bearer.toml"), GENERIC),
    ("certificate", include_str!("../../providers/certificate.toml"), GENERIC),
    (
        "github",
        include_str!("../../providers/github.toml"),
        include_str!("../../providers/samples/github.json"),
    ),
    ("none", include_str!("../../providers/none.toml"), GENERIC),
    (
        "standard-webhooks",
        include_str!("../../providers/standard-webhooks.toml"),
        STANDARD_WEBHOOKS,
    ),
    (
        "stripe",
        include_str!("../../providers/stripe.toml"),
        include_str!("../../providers/samples/stripe.json"),
    ),
    ("svix", include_str!("../../providers/svix.toml"), STANDARD_WEBHOOKS),
];

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
