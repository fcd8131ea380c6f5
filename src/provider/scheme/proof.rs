//! What proves a delivery: the signature or token, the signed time, and the keys.
//!
//! `verify` reads it to check and to sign; `config`, `http` and `cmd` ask how strong it is. Must stay true: what the
//! signature covers is computed from its template ([`Proof::covers`]), and a provider file cannot claim it.

use std::time::Duration;

use data_encoding::HEXLOWER;

use crate::limits::TOLERANCE_AHEAD;
use crate::payload::Pointer;
use crate::provider::place::Place;
use crate::provider::published::{KeyUrl, PublishedKeys};
use crate::provider::template::{Part, Template};

/// How deliveries of one provider are proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// `None` if deliveries have no proof.
    pub(crate) signature: Option<Signature>,
    pub(crate) timestamp: Option<Stamp>,
    /// The public keys that the provider publishes under a URL.
    pub published_keys: Option<PublishedKeys>,
    /// What the source has as `sender`.
    pub(crate) senders: Vec<String>,
    /// The queries of the source's `public_url`, one of which a signed URL must have: `None` is none. Empty if any will do.
    pub(crate) queries: Vec<Option<String>>,
    /// The places of the event id, as in `Identity`: `{id}` in the signed content is the first.
    pub(crate) ids: Vec<Place>,
}

/// What a proxy puts between the lines of one header if it merges them (RFC 9110, section 5.3), as Apache does.
pub(crate) const MERGED: &str = ", ";

/// Where a delivery carries its proof, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    /// Any of these may carry it; a provider that numbers its headers has several.
    pub(crate) headers: Vec<String>,
    /// Whether the provider itself may send one of them on several lines, which a proxy may merge to one by [`MERGED`].
    pub(crate) repeatable: bool,
    /// The text before every value; case matters.
    pub(crate) prefix: String,
    pub(crate) format: Format,
    pub(crate) mechanism: Mechanism,
    /// The place in the JSON body that carries it, in place of a header.
    pub(crate) field: Option<Pointer>,
    /// The field that carries it where the body is a form; beside `field` of a token.
    pub(crate) form: Option<String>,
    /// The parameter of the query with SHA-256 of the body in hex, where the body is no form.
    pub(crate) body_digest: Option<String>,
    /// The signed place that names the customer, where one key signs for all of them.
    pub(crate) sender: Option<Place>,
}

/// The label of a signature that is called as the source's `sender`.
pub(crate) const SENDER_LABEL: &str = "{sender}";

/// How a header's value is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    /// The whole value.
    Plain,
    /// `t=1,v1=aa,v1=bb`: the items called `label`, which may be several; [`SENDER_LABEL`] is the source's `sender`.
    /// `equals` stands between name and value. No item may be called `unless`: then another form of the file is meant.
    Pairs { separator: String, equals: String, label: String, unless: Option<String> },
    /// `v1,aa v1,bb`: the items labelled `label`.
    List { label: String },
    /// `aa,bb`
    Commas,
}

/// What the provider sends as proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// A signature over the content that `signed` describes.
    Signed { algorithm: Algorithm, encoding: Encoding, signed: Template, key: KeyText },
    /// A JSON Web Token (RFC 7519).
    Jwt(Box<Jwt>),
    /// The secret itself.
    Token,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Hmac(Hash),
    Ed25519,
    /// ECDSA over P-256 with SHA-256; signatures are in DER.
    EcdsaP256,
    /// PKCS#1 v1.5 with SHA-256.
    RsaSha256,
}

/// What a JSON Web Token must be and say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Jwt {
    /// The accepted values of its `alg`.
    pub(crate) algorithms: Vec<JwtAlgorithm>,
    /// Without it the token proves the sender and not the content.
    pub(crate) body: Option<BodyClaim>,
    /// The value of `iss`.
    pub(crate) issuer: Option<String>,
    /// Whether `aud` is the request's public URL without its query.
    pub(crate) audience_is_url: bool,
    /// The claim whose value must be one of [`Proof::senders`], such as `email`.
    pub(crate) sender_claim: Option<String>,
    /// The leeway for `exp`, `nbf` and `iat`. With one, a token must have `exp` or `iat`; without, it is a minute.
    pub(crate) tolerance: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JwtAlgorithm {
    Hs256,
    Rs256,
    Es256,
}

impl JwtAlgorithm {
    /// All of them by their names in tokens.
    pub(crate) const NAMES: [(&str, JwtAlgorithm); 3] = [
        ("HS256", JwtAlgorithm::Hs256),
        ("RS256", JwtAlgorithm::Rs256),
        ("ES256", JwtAlgorithm::Es256),
    ];

    pub(crate) fn named(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, algorithm)| *algorithm)
    }
}

/// The claim that holds SHA-256 of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyClaim {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    /// What the claim covers: the body.
    pub(crate) signed: Template,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    /// MD5, for one provider. As an HMAC it is not broken, but nothing new should use it.
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Lower case only, because the providers' libraries compare the text.
    Hex,
    /// Either case, for providers whose libraries decode the text first.
    HexAnyCase,
    /// The standard alphabet with padding.
    Base64,
    /// The URL alphabet without padding.
    Base64Url,
}

/// How a secret's text becomes a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyText {
    /// The bytes of the text.
    Text,
    /// Base64 after an optional prefix.
    Base64 { prefix: String },
    /// Hex, of either case.
    Hex,
    /// SHA-1 of the text.
    Sha1,
    /// SubjectPublicKeyInfo (RFC 5280): PEM, or base64 of the DER.
    Spki,
}

/// When a delivery was signed, and how far from now that may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) place: StampPlace,
    pub(crate) unit: StampUnit,
    /// How old it may be, inclusive. It may be ahead of now by this, and by [`TOLERANCE_AHEAD`] at most.
    pub(crate) tolerance: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StampPlace {
    /// An item of the signature header.
    Item(String),
    /// A separate header.
    Header(String),
    /// A member of the signed JSON body.
    Json(Pointer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampUnit {
    Seconds,
    /// Seconds that may have a fraction, of which the whole part is signed.
    Decimal,
    Millis,
    Iso8601,
}

impl Signature {
    /// Whether it is HTTP's Basic authentication (RFC 7617): then the secret is `user:password`.
    pub(crate) fn is_basic(&self) -> bool {
        self.mechanism == Mechanism::Token && self.prefix == "Basic "
    }
}

impl Proof {
    /// Whether deliveries have no proof at all. The source must then set `allow_unsigned = true`.
    pub fn is_absent(&self) -> bool {
        self.signature.is_none()
    }

    /// Whether requests have keys but no proof of their caller: a proxy that has checked the client's certificate
    /// must name it.
    pub fn needs_certificates(&self) -> bool {
        self.is_absent() && self.ids.iter().any(|place| matches!(place, Place::Key(_)))
    }

    /// Whether deliveries are signed. A token proves the sender, not the content; so does a JWT without a claim for the
    /// body.
    pub fn signs_content(&self) -> bool {
        self.signed_content().is_some()
    }

    /// The signed content; `None` unless [`Proof::signs_content`].
    pub(crate) fn signed_content(&self) -> Option<&Template> {
        match &self.signature.as_ref()?.mechanism {
            Mechanism::Signed { signed, .. } => Some(signed),
            Mechanism::Jwt(jwt) => jwt.body.as_ref().map(|body| &body.signed),
            Mechanism::Token => None,
        }
    }

    /// The signed content as text, where it is not the whole body.
    pub fn signed_part(&self) -> Option<String> {
        let signed = self.signed_content()?;
        let whole = signs_bytes(signed) || self.signs_sorted_form();
        (!whole).then(|| signed.to_string())
    }

    /// Whether the fields of a form are signed in sorted order, so that two spellings of one form have one signature.
    pub(crate) fn signs_sorted_form(&self) -> bool {
        self.signs(&Part::Form) || self.signs(&Part::UrlForm)
    }

    /// Whether the digest of a form is that of its signed fields, and not of its bytes, which can be written otherwise.
    pub(crate) fn signs_fields(&self) -> bool {
        self.signs_sorted_form()
            || self.signed_content().is_some_and(|signed| signed.field().is_some())
    }

    /// Whether the signature covers the URL. The source must then have a `public_url`.
    pub fn covers_url(&self) -> bool {
        self.jwt().is_some_and(|jwt| jwt.audience_is_url) || self.signs_url()
    }

    /// Whether the signed content has the URL, so that the query's end must be known.
    pub fn signs_url(&self) -> bool {
        [Part::Url, Part::OtherPort, Part::UrlForm, Part::Path].iter().any(|part| self.signs(part))
    }

    /// The query with which a test delivery is signed.
    pub fn first_query(&self) -> Option<&str> {
        self.queries.first()?.as_deref()
    }

    /// Whether this query, or none, is one of the source's. A digest of the body may come behind it.
    pub(crate) fn knows_query(&self, query: Option<&str>) -> bool {
        let is_own = |query: Option<&str>| self.queries.iter().any(|own| own.as_deref() == query);
        let before_digest = || {
            let name = self.signature.as_ref()?.body_digest.as_deref()?;
            let (own, last) = match query?.rsplit_once('&') {
                Some((own, last)) => (Some(own), last),
                None => (None, query?),
            };
            let value = last.strip_prefix(name)?.strip_prefix('=')?;
            let digest = HEXLOWER.decode(value.as_bytes()).ok()?;
            (digest.len() == 32).then_some(own)
        };
        self.queries.is_empty() || is_own(query) || before_digest().is_some_and(is_own)
    }

    /// Whether the signature covers this place. If it covers the id, an attacker without the secret cannot give a
    /// captured delivery another id.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        let Some(signed) = self.signed_content() else { return false };
        match place {
            Place::Json(pointer) => {
                signs_bytes(signed) || signed.pointers().any(|signed| signed == pointer)
            }
            // Under a signature over sorted fields a byte can move from one field to the next.
            Place::Form(field) => signs_bytes(signed) || signed.field() == Some(field),
            Place::Digest => signs_bytes(signed) || self.signs_fields(),
            Place::New => false,
            Place::Signed => true,
            Place::Join(places) => places.iter().all(|place| self.covers(place)),
            Place::Header(name) | Place::Key(name) => {
                let by_id = signed.has(&Part::Id) && self.ids.first() == Some(place);
                by_id || signed.headers().any(|header| header.eq_ignore_ascii_case(name))
            }
        }
    }

    /// Whether the signature covers every place of the event id.
    pub fn covers_id(&self) -> bool {
        self.ids.iter().all(|place| self.covers(place))
    }

    /// Whether a captured request verifies with another id and body too: the signature covers neither whole.
    pub(crate) fn leaves_event_open(&self) -> bool {
        self.signs_content() && !self.covers_id() && !self.covers(&Place::Digest)
    }

    /// Whether deliveries are signed without this header. Then an attacker can send a captured request with another
    /// value in it.
    pub fn leaves_out(&self, header: &str) -> bool {
        self.signs_content() && !self.covers(&Place::Header(header.to_owned()))
    }

    /// Whether only the provider can sign: the source has a public key.
    pub fn has_public_key(&self) -> bool {
        match self.signature.as_ref().map(|signature| &signature.mechanism) {
            Some(Mechanism::Signed { algorithm, .. }) => !matches!(algorithm, Algorithm::Hmac(_)),
            Some(Mechanism::Jwt(jwt)) => !jwt.algorithms.contains(&JwtAlgorithm::Hs256),
            Some(Mechanism::Token) | None => false,
        }
    }

    /// Whether a test delivery cannot be signed here: the private key is the provider's, or the body has the signature.
    pub fn only_provider_signs(&self) -> bool {
        self.has_public_key() || self.is_in_body()
    }

    /// Whether the body carries the signature.
    pub(crate) fn is_in_body(&self) -> bool {
        self.signature.as_ref().is_some_and(|own| own.field.is_some() || own.form.is_some())
    }

    /// The word for what the operator gets from the provider.
    pub fn secret_word(&self) -> &'static str {
        if self.has_public_key() { "public key" } else { "secret" }
    }

    /// What a source must give as `sender`, in words; `None` if the provider signs for this customer only.
    pub fn sender_word(&self) -> Option<String> {
        if self.signs_sender() {
            return Some("the endpoint's id at the provider".to_owned());
        }
        if self.names_sender() {
            return Some("the public key that belongs to the secret".to_owned());
        }
        if let Some(place) = self.sender_place() {
            return Some(format!("{place} of requests meant for you"));
        }
        let claim = self.jwt()?.sender_claim.as_deref()?;
        Some(format!("the {claim} in the tokens meant for you"))
    }

    /// Whether the sender is a part of the signed content.
    pub(crate) fn signs_sender(&self) -> bool {
        self.signs(&Part::Sender)
    }

    /// Whether signatures are labelled with the sender.
    fn names_sender(&self) -> bool {
        let format = self.signature.as_ref().map(|signature| &signature.format);
        matches!(format, Some(Format::Pairs { label, .. }) if label == SENDER_LABEL)
    }

    /// The place that names the customer.
    pub(crate) fn sender_place(&self) -> Option<&Place> {
        self.signature.as_ref()?.sender.as_ref()
    }

    /// Whether `text` may be a source's `sender`. An `Err` says why not.
    pub(crate) fn check_sender(&self, text: &str) -> Result<(), &'static str> {
        match text.contains('*') {
            _ if text.is_empty() => Err("is empty"),
            true if self.signs_sender() || self.names_sender() => {
                Err("is compared as it is, so '*' has no meaning")
            }
            true if family(text).is_none() => Err(
                "takes other accounts too: '*' may stand at the end of an ARN, behind the account number",
            ),
            _ => Ok(()),
        }
    }

    /// Whether the source takes what this sender sends.
    pub(crate) fn takes_sender(&self, sender: &str) -> bool {
        self.senders.iter().any(|known| match family(known) {
            Some(begin) => sender.starts_with(begin),
            None => sender == known,
        })
    }

    /// How old the signed time may be; `None` if no time is signed.
    pub fn tolerance(&self) -> Option<Duration> {
        let stamp = self.timestamp.as_ref().map(|stamp| stamp.tolerance);
        stamp.or(self.jwt().and_then(|jwt| jwt.tolerance))
    }

    /// How far the signed time may be ahead of now; `None` if no time is signed.
    pub fn tolerance_ahead(&self) -> Option<Duration> {
        self.tolerance().map(ahead)
    }

    /// Whether JSON must be parsed before it is proven: it carries the signature, or signed values.
    pub(crate) fn reads_json(&self) -> bool {
        let in_json = self.signature.as_ref().is_some_and(|own| own.field.is_some());
        in_json || self.signed_content().is_some_and(|signed| signed.pointers().next().is_some())
    }

    /// Whether the secret itself is a parameter of the URL, which proxies log.
    pub fn carries_secret_in_url(&self) -> bool {
        self.parameters().next().is_some()
    }

    /// The place of the secret itself in the JSON body, which no screen may show.
    pub fn token_field(&self) -> Option<&Pointer> {
        let token = self.signature.as_ref().filter(|own| own.mechanism == Mechanism::Token);
        token?.field.as_ref()
    }

    /// The field of the same where the body is a form.
    pub fn token_form(&self) -> Option<&str> {
        self.signature.as_ref()?.form.as_deref()
    }

    /// The headers that may carry the signature or token; `?NAME` is a parameter of the query.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.signature.iter().flat_map(|signature| signature.headers.iter().map(String::as_str))
    }

    /// The parameters of the query that may carry the secret.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.headers().filter_map(|name| name.strip_prefix('?'))
    }

    /// The header of the timestamp; `None` if it is elsewhere.
    pub(crate) fn time_header(&self) -> Option<&str> {
        match &self.timestamp.as_ref()?.place {
            StampPlace::Header(name) => Some(name),
            StampPlace::Item(_) | StampPlace::Json(_) => None,
        }
    }

    /// The header that names the signed headers.
    pub(crate) fn naming_header(&self) -> Option<&str> {
        self.signed_content()?.naming_header()
    }

    /// The header of the event id, if `{id}` is signed.
    pub(crate) fn signed_id_header(&self) -> Option<&str> {
        self.ids.first()?.header().filter(|_| self.signs(&Part::Id))
    }

    /// The place of the URL of each request's key.
    pub(crate) fn key_url(&self) -> Option<&Place> {
        match &self.published_keys.as_ref()?.url {
            KeyUrl::In(place) => Some(place),
            KeyUrl::Fixed(_) => None,
        }
    }

    /// The proof in a few words, for tables and pages: `HMAC-SHA256, hex`.
    pub fn summary(&self) -> String {
        let Some(signature) = &self.signature else {
            return if self.needs_certificates() { "TLS certificate" } else { "none" }.to_owned();
        };
        match &signature.mechanism {
            Mechanism::Signed { algorithm, encoding, .. } => {
                let algorithm = match algorithm {
                    Algorithm::Hmac(Hash::Md5) => "HMAC-MD5",
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
            Mechanism::Jwt(_) => "JWT".to_owned(),
            Mechanism::Token if signature.is_basic() => "HTTP Basic".to_owned(),
            Mechanism::Token => "token".to_owned(),
        }
    }

    /// What tells the forms of one file apart, for pages: `X-Sig: HMAC-SHA256, hex, of {body} with the secret's text`.
    pub fn form(&self) -> String {
        let headers: Vec<&str> = self.headers().collect();
        let signed = self.signed_content().map(|signed| format!(" of {signed}"));
        let key = match self.signature.as_ref().map(|signature| &signature.mechanism) {
            Some(Mechanism::Signed { key: KeyText::Base64 { .. }, .. }) => {
                " with the secret decoded from base64"
            }
            Some(Mechanism::Signed { key: KeyText::Hex, .. }) => {
                " with the secret decoded from hex"
            }
            Some(Mechanism::Signed { key: KeyText::Text, .. }) => " with the secret's text",
            Some(Mechanism::Signed { key: KeyText::Sha1, .. }) => " with SHA-1 of the secret",
            _ => "",
        };
        let place =
            if headers.is_empty() { "in the body".to_owned() } else { headers.join(" or ") };
        format!("{place}: {},{}{key}", self.summary(), signed.unwrap_or_default())
    }

    fn signs(&self, part: &Part) -> bool {
        self.signed_content().is_some_and(|signed| signed.has(part))
    }

    pub(crate) fn jwt(&self) -> Option<&Jwt> {
        match &self.signature.as_ref()?.mechanism {
            Mechanism::Jwt(jwt) => Some(jwt),
            Mechanism::Signed { .. } | Mechanism::Token => None,
        }
    }
}

/// How far a signed time may be ahead where it may be so old.
pub(crate) fn ahead(tolerance: Duration) -> Duration {
    tolerance.min(TOLERANCE_AHEAD)
}

/// What an entry of `sender` with `*` begins with: `arn:aws:sns:eu-west-1:111111111111:*`. `None` for every other text: a
/// `*` before the account number would take messages of other customers.
fn family(text: &str) -> Option<&str> {
    let begin = text.strip_suffix('*').filter(|begin| !begin.contains('*'))?;
    let mut parts = begin.split(':');
    let named = parts.next() == Some("arn") && parts.by_ref().take(3).all(|part| !part.is_empty());
    let account = parts.next()?;
    let is_account = account.len() == ACCOUNT_DIGITS && account.bytes().all(|b| b.is_ascii_digit());
    (named && is_account && parts.next().is_some()).then_some(begin)
}

/// The length of an account number in an ARN (the AWS General Reference, "Amazon Resource Names").
const ACCOUNT_DIGITS: usize = 12;

/// Whether every byte of the body is signed.
fn signs_bytes(signed: &Template) -> bool {
    signed.has(&Part::Body) || signed.has(&Part::JsonString)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_at_the_end_of_an_arn_behind_its_account_number_alone() {
        for (text, begin) in [
            ("arn:aws:sns:eu-west-1:111111111111:*", Some("arn:aws:sns:eu-west-1:111111111111:")),
            (
                "arn:aws:sns:eu-west-1:111111111111:a-*",
                Some("arn:aws:sns:eu-west-1:111111111111:a-"),
            ),
            ("arn:aws:sns:eu-west-1:111111111111:a", None),
            ("arn:aws:sns:eu-west-1:111111111111*", None),
            ("arn:aws:sns:eu-west-1:11111111111:*", None),
            ("arn:aws:sns:eu-west-1:1111111111111:*", None),
            ("arn:aws:sns:*:111111111111:*", None),
            ("arn:aws:sns::111111111111:*", None),
            ("arn:aws:sns:111111111111:*", None),
            ("arn:aws:sns:eu-west-1:*", None),
            ("arn:*", None),
            ("111111111111:*", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(family(text), begin, "{text}");
        }
    }
}
