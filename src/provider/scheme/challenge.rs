//! The challenges of a provider: requests that check the endpoint or bring its secret, and that are not events.
//!
//! `verify` recognizes and answers them; `http` asks which methods to let in; `config` and `init` ask which secrets
//! the operator must give. Must stay true: the first challenge that matches is answered.

use crate::payload::Pointer;
use crate::provider::handshake::{ChallengeProof, Handshake, Spot};
use crate::provider::place::Place;

/// The challenges that are answered, in the file's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshakes(pub(crate) Vec<Handshake>);

impl Handshakes {
    /// The challenges that are proven like an event, or those that are not.
    pub(crate) fn signed(&self, signed: bool) -> impl Iterator<Item = &Handshake> {
        self.0.iter().filter(move |one| one.is_signed() == signed)
    }

    /// The methods of the challenges without a signature.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.signed(false).map(|one| one.method)
    }

    /// The headers from which the challenges with or without a signature are read.
    pub(crate) fn headers(&self, signed: bool) -> impl Iterator<Item = &str> {
        self.signed(signed).flat_map(Handshake::header_names)
    }

    /// The places in a JSON body from which challenges are read.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.0.iter().flat_map(Handshake::spots).filter_map(|spot| match spot {
            Spot::Request(Place::Json(pointer)) => Some(pointer),
            Spot::Request(_) | Spot::Query(_) => None,
        })
    }

    /// Whether a challenge needs the source's `verify_token`.
    pub fn needs_verify_token(&self) -> bool {
        let needs =
            |one: &Handshake| matches!(one.proof, ChallengeProof::Token(_)) || one.lists_tokens();
        self.0.iter().any(needs)
    }

    /// Whether the provider gives the text of the `verify_token`, so that it cannot be made up.
    pub fn gives_verify_token(&self) -> bool {
        self.0.iter().any(Handshake::lists_tokens)
    }

    /// Whether a challenge has a token signed: its answer has an HMAC. Then content that looks like a token is never
    /// genuine.
    pub(crate) fn signs_tokens(&self) -> bool {
        self.0.iter().any(Handshake::is_keyed)
    }

    /// Whether the provider sends the source's secret itself.
    pub fn registers(&self) -> bool {
        self.registrations().next().is_some()
    }

    /// Whether a person must enter the registered secret at the provider, because the answer does not have it.
    pub fn registers_by_hand(&self) -> bool {
        self.registrations().any(|one| !one.echoes())
    }

    fn registrations(&self) -> impl Iterator<Item = &Handshake> {
        self.0.iter().filter(|one| one.proof == ChallengeProof::Registration)
    }

    /// What proves the first challenge, for tables and pages; `-` if there is none.
    pub fn summary(&self) -> &'static str {
        match self.0.first().map(|handshake| &handshake.proof) {
            None => "-",
            Some(ChallengeProof::Signature) => "signed",
            Some(ChallengeProof::Token(_)) => "verify token",
            Some(ChallengeProof::Registration) => "sends the secret",
            Some(ChallengeProof::Nothing) => "unsigned",
        }
    }
}
