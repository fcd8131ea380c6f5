//! A provider in a few words: for tables and pages. For people only.

use std::time::Duration;

use super::handshake::ChallengeProof;
use super::place::Place;
use super::{Algorithm, Encoding, Hash, Proof, Scheme, Signature};

impl Signature {
    /// Whether it is HTTP's Basic authentication (RFC 7617): then the secret is `user:password`.
    pub(crate) fn is_basic(&self) -> bool {
        self.proof == Proof::Token && self.prefix == "Basic "
    }
}

impl Scheme {
    /// Whose events these are; the name if the file has no title.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(self.name())
    }

    /// The URL of the provider's documentation.
    pub fn docs(&self) -> Option<&str> {
        self.docs.as_deref()
    }

    /// Where the facts in the file are from.
    pub fn facts(&self) -> Option<&str> {
        self.facts.as_deref()
    }

    /// How long the provider re-sends an event, if that is known.
    pub fn resends_for(&self) -> Option<Duration> {
        self.delivery.resends_for
    }

    /// What proves a request: `HMAC-SHA256, hex`.
    pub fn proof(&self) -> String {
        let Some(signature) = &self.signature else {
            return if self.wants_certificates() { "TLS certificate" } else { "none" }.to_owned();
        };
        match &signature.proof {
            Proof::Signed { algorithm, encoding, .. } => {
                let algorithm = match algorithm {
                    Algorithm::Hmac(Hash::Sha1) => "HMAC-SHA1",
                    Algorithm::Hmac(Hash::Sha256) => "HMAC-SHA256",
                    Algorithm::Hmac(Hash::Sha512) => "HMAC-SHA512",
                    Algorithm::Ed25519 => "Ed25519",
                    Algorithm::EcdsaP256 => "ECDSA P-256",
                    Algorithm::RsaSha256 => "RSA-SHA256",
                };
                let encoding = match encoding {
                    Encoding::Hex | Encoding::HexAnyCase => "hex",
                    Encoding::Base64 => "base64",
                    Encoding::Base64Url => "base64url",
                };
                format!("{algorithm}, {encoding}")
            }
            Proof::Jwt(_) => "JWT".to_owned(),
            Proof::Token if signature.is_basic() => "HTTP Basic".to_owned(),
            Proof::Token => "token".to_owned(),
        }
    }

    /// Where the event's id is: `header X-Id, else the body's digest`.
    pub fn id(&self) -> String {
        let places: Vec<String> = self.event.ids.iter().map(Place::to_string).collect();
        places.join(", else ")
    }

    /// Whether the id can only be the body's digest: two equal bodies are then one event.
    pub fn id_is_digest(&self) -> bool {
        self.event.ids == [Place::Digest]
    }

    /// What proves the provider's challenge; `-` if it sends none.
    pub fn handshake(&self) -> &'static str {
        match self.handshakes.first().map(|handshake| &handshake.proof) {
            None => "-",
            Some(ChallengeProof::Signature) => "signed",
            Some(ChallengeProof::Token(_)) => "verify token",
            Some(ChallengeProof::Registration) => "sends the secret",
            Some(ChallengeProof::Nothing) => "unsigned",
        }
    }
}
