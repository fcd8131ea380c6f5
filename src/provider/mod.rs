//! Signing schemes as data: what a provider file says, checked and ready for `verify`.
//!
//! A [`Scheme`] is made from TOML only ([`Scheme::parse`]) and says what is true of a provider, never
//! what to do. `verify` reads it, `http` asks for limits and headers, `config` parses the operator's
//! own files. Must stay true: a scheme that parsed can be verified without further checks; which
//! parts a signature covers is worked out here, not claimed by the file.

mod parse;
pub(crate) mod place;
mod scheme;
mod setup;
pub(crate) mod template;

use crate::document::Problems;
pub use scheme::Scheme;
pub(crate) use scheme::{
    Encoding, Event, Format, Hash, KeyText, Proof, Signature, Stamp, StampPlace, StampUnit,
};
pub use setup::Setup;

/// The provider files built in, by name, each with its sample bodies.
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
    /// The names of the providers built in.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, ..)| *name)
    }

    /// The provider of this name that is built in.
    pub fn embedded(name: &str) -> Option<Scheme> {
        let (name, text, samples) = EMBEDDED.iter().find(|(known, ..)| *known == name)?;
        let scheme = Scheme::parse(name, text, &Problems::new())?;
        Some(Scheme { samples, ..scheme })
    }

    /// Reads a provider file. Everything that is wrong with it goes to `problems`, and there is no
    /// scheme where anything is.
    pub fn parse(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
        parse::scheme(file, text, problems)
    }
}

#[cfg(test)]
mod tests;
