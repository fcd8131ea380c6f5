//! The types of a provider file: signatures, ids, types and repeats.

use std::time::Duration;

use super::handshake::{ChallengeProof, Handshake, Spot};
use super::place::Place;
use super::published::{KeyUrl, PublishedKeys};
use super::setup::Setup;
use super::template::{Part, Template};
use crate::document::nearest;
use crate::model::{Name, ReplayGuard};
use crate::pattern::Pattern;
use crate::payload::Pointer;

/// How one provider signs, names and re-sends its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    pub(crate) name: Name,
    /// Whose events these are, for people.
    pub(crate) title: Option<String>,
    /// The URL of the provider's documentation.
    pub(crate) docs: Option<String>,
    /// Where the facts of the file are from, for people.
    pub(crate) facts: Option<String>,
    /// `None` if deliveries are not signed.
    pub(crate) signature: Option<Signature>,
    pub(crate) timestamp: Option<Stamp>,
    pub(crate) published: Option<PublishedKeys>,
    /// What the source has as `sender`.
    pub(crate) sender: Option<String>,
    pub(crate) event: Event,
    pub(crate) guard: ReplayGuard,
    pub(crate) flag_types: Vec<Pattern>,
    pub(crate) delivery: Delivery,
    /// The challenges that are answered; the first that matches counts.
    pub(crate) handshakes: Vec<Handshake>,
    pub(crate) vectors: Option<String>,
    pub(crate) setup: Setup,
    /// Sample bodies as JSON text, see `verify::sample`; empty for a file of the operator.
    pub(crate) samples: &'static str,
}

/// How the provider sends its events; `None` for what is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) resends_for: Option<Duration>,
    /// How long it waits for an answer.
    pub(crate) deadline: Option<Duration>,
    pub(crate) body_limit_bytes: Option<u64>,
    /// The headers that are stored with an event, `Content-Type` first.
    pub(crate) keep_headers: Vec<String>,
}

/// The proof of a delivery, and the headers that carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    /// Any of these may carry it; a provider that numbers its headers has several.
    pub(crate) headers: Vec<String>,
    /// Whether the provider itself may send one of them on several lines.
    pub(crate) repeatable: bool,
    /// The text before every value; case matters.
    pub(crate) prefix: String,
    pub(crate) format: Format,
    pub(crate) proof: Proof,
    /// The place in the JSON body that carries it, in place of a header.
    pub(crate) field: Option<Pointer>,
    /// The parameter of the query with SHA-256 of the body in hex, where the body is no form.
    pub(crate) body_digest: Option<String>,
}

/// How a header's value is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    /// The whole value.
    Plain,
    /// `t=1,v1=aa,v1=bb`: the items called `label`, which may be several.
    Pairs { separator: String, label: String },
    /// `v1,aa v1,bb`: the items labelled `label`.
    List { label: String },
    /// `aa,bb`
    Commas,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
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
    /// With SHA-256; signatures are in DER.
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
    /// The claim that names the sender, such as `email`.
    pub(crate) sender_claim: Option<String>,
    /// That claim's value, which the source names.
    pub(crate) sender: Option<String>,
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
    /// SubjectPublicKeyInfo (RFC 5280): PEM, or base64 of the DER.
    Spki,
}

/// When a delivery was signed, and how far from now that may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) place: StampPlace,
    pub(crate) unit: StampUnit,
    /// Before or after now, inclusive.
    pub(crate) tolerance: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StampPlace {
    /// An item of the signature header.
    Item(String),
    /// A separate header.
    Header(String),
    /// In the signed JSON body.
    Json(Pointer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampUnit {
    Seconds,
    Millis,
    Iso8601,
}

/// The places of an event's id and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The first place with a value is the id.
    pub(crate) ids: Vec<Place>,
    /// The first place with a value is the type.
    pub(crate) types: Vec<Place>,
    /// The second level of the type.
    pub(crate) subtype: Option<Pointer>,
    /// The types that the provider publishes, for warnings; `*` stands for a part that the sender chooses.
    pub(crate) listed: Vec<String>,
    /// The field of a form that holds the JSON.
    pub(crate) form_field: Option<String>,
    /// How long after its first delivery an equal body is that event, where the digest is the id; later it is another.
    pub(crate) same_for: Option<Duration>,
    /// The list in the body whose elements are the events; their ids and types are places of an element.
    pub(crate) each: Option<Pointer>,
    /// Top-level members that differ between two deliveries of one event.
    pub(crate) volatile: Vec<String>,
}

impl Scheme {
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The largest body that the provider sends, if its file says so.
    pub fn body_limit_bytes(&self) -> Option<u64> {
        self.delivery.body_limit_bytes
    }

    /// How long the provider waits for an answer, if that is known.
    pub fn deadline(&self) -> Option<Duration> {
        self.delivery.deadline
    }

    /// Whether a handler's entry `text` matches a type that the provider publishes; `None` if its file lists no
    /// types.
    pub fn lists(&self, text: &str) -> Option<bool> {
        let wanted = Pattern::new(text, self.two_levels());
        let meant =
            |known: &String| wanted.matches(known) || Pattern::new(known, false).matches(text);
        let listed = &self.event.listed;
        (!listed.is_empty()).then(|| listed.iter().any(meant))
    }

    /// The listed type, or family of types, that is most similar to `text`.
    pub fn nearest_type(&self, text: &str) -> Option<String> {
        let listed = &self.event.listed;
        let families = listed
            .iter()
            .flat_map(|known| known.match_indices('.').map(|(end, _)| known[..end].to_owned()));
        let mut known = listed.clone();
        if text.ends_with(".*") {
            known.extend(families.map(|family| format!("{family}.*")));
        } else if self.two_levels() {
            known.extend(families);
        }
        // No listed type has a capital letter.
        nearest(&text.to_lowercase(), known.iter().map(String::as_str)).map(str::to_owned)
    }

    /// Whether types have two levels, as in `pull_request.opened`.
    pub fn two_levels(&self) -> bool {
        self.event.subtype.is_some()
    }

    /// Whether deliveries have no proof. The source must then set `allow_unsigned = true`.
    pub fn is_unsigned(&self) -> bool {
        self.signature.is_none()
    }

    /// Whether requests have keys but no proof of their caller: a proxy that has checked the client's certificate
    /// must name it.
    pub fn wants_certificates(&self) -> bool {
        self.is_unsigned() && self.event.ids.iter().any(|place| matches!(place, Place::Key(_)))
    }

    /// Whether the signature covers the URL. The source must then have a `public_url`.
    pub fn signs_url(&self) -> bool {
        let audience = self.jwt().is_some_and(|jwt| jwt.audience_is_url);
        audience || self.template().is_some_and(|signed| signed.has(&Part::Url))
    }

    /// Whether only the provider can sign: the source has a public key.
    pub fn has_public_key(&self) -> bool {
        match self.signature.as_ref().map(|signature| &signature.proof) {
            Some(Proof::Signed { algorithm, .. }) => !matches!(algorithm, Algorithm::Hmac(_)),
            Some(Proof::Jwt(jwt)) => !jwt.algorithms.contains(&JwtAlgorithm::Hs256),
            Some(Proof::Token) | None => false,
        }
    }

    /// Whether a test delivery cannot be signed here: the private key is the provider's, or the body has the signature.
    pub fn only_provider_signs(&self) -> bool {
        self.has_public_key() || self.signature.as_ref().is_some_and(|own| own.field.is_some())
    }

    /// What the operator gets from the provider.
    pub fn secret_word(&self) -> &'static str {
        if self.has_public_key() { "public key" } else { "secret" }
    }

    /// The claim whose value a source must give as `sender`.
    pub fn sender_claim(&self) -> Option<&str> {
        match self.template().is_some_and(|signed| signed.has(&Part::Sender)) {
            true => Some("the endpoint's id"),
            false => self.jwt()?.sender_claim.as_deref(),
        }
    }

    /// The scheme for a source whose tokens name this sender.
    #[must_use]
    pub fn with_sender(mut self, sender: &str) -> Scheme {
        if let Some(Signature { proof: Proof::Jwt(jwt), .. }) = &mut self.signature {
            jwt.sender = Some(sender.to_owned());
        }
        self.sender = Some(sender.to_owned());
        self
    }

    /// What the source has as `sender`.
    pub(crate) fn sender(&self) -> Option<&str> {
        self.sender.as_deref()
    }

    /// Whether the body must be parsed before it is proven, because it carries the signature or what is signed.
    pub(crate) fn proves_by_body(&self) -> bool {
        let field = self.signature.as_ref().is_some_and(|signature| signature.field.is_some());
        field || self.template().is_some_and(|signed| signed.pointers().next().is_some())
    }

    /// The parameters of the query that the scheme reads.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.signature_headers().filter_map(|name| name.strip_prefix('?'))
    }

    /// Whether the query carries the secret.
    pub fn has_parameters(&self) -> bool {
        self.parameters().next().is_some()
    }

    /// What is signed, where that is not the whole body.
    pub fn signs_only(&self) -> Option<String> {
        let signed = self.template()?;
        let whole = signed.has(&Part::Body) || signed.has(&Part::Form);
        (!whole).then(|| signed.to_string())
    }

    /// Whether two spellings of one form have one signature.
    pub(crate) fn signs_form(&self) -> bool {
        self.template().is_some_and(|signed| signed.has(&Part::Form))
    }

    fn jwt(&self) -> Option<&Jwt> {
        match &self.signature.as_ref()?.proof {
            Proof::Jwt(jwt) => Some(jwt),
            Proof::Signed { .. } | Proof::Token => None,
        }
    }

    /// Where the provider publishes its keys, if it does.
    pub fn published_keys(&self) -> Option<&PublishedKeys> {
        self.published.as_ref()
    }

    /// The file of the provider's vectors, relative to the provider file.
    pub fn vectors(&self) -> Option<&str> {
        self.vectors.as_deref()
    }

    /// How far the signed time may be from now; `None` if no time is signed.
    pub fn tolerance(&self) -> Option<Duration> {
        let stamp = self.timestamp.as_ref().map(|stamp| stamp.tolerance);
        stamp.or(self.jwt().and_then(|jwt| jwt.tolerance))
    }

    /// What the operator enters at the provider.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The headers that carry the proof.
    pub fn signature_headers(&self) -> impl Iterator<Item = &str> {
        self.signature.iter().flat_map(|signature| signature.headers.iter().map(String::as_str))
    }

    /// Whether the signature covers the value of this header.
    pub fn signs_header(&self, name: &str) -> bool {
        let is_stamp = |stamp: &Stamp| matches!(&stamp.place, StampPlace::Header(own) if own.eq_ignore_ascii_case(name));
        self.timestamp.as_ref().is_some_and(is_stamp) || self.signs() && !self.leaves_out(name)
    }

    /// Every header that the scheme reads, once each. Only a repeatable signature may come twice.
    pub(crate) fn reads_headers(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let stamp = self.timestamp.iter().filter_map(|stamp| match &stamp.place {
            StampPlace::Header(name) => Some(name.as_str()),
            StampPlace::Item(_) | StampPlace::Json(_) => None,
        });
        let ids = self.event.ids.iter().flat_map(Place::parts);
        let facts = ids.chain(&self.event.types).filter_map(Place::header);
        let signed = self.template().into_iter().flat_map(Template::headers);
        let url = self.published.iter().filter_map(|keys| match &keys.url {
            KeyUrl::In(place) => place.header(),
            KeyUrl::Fixed(_) => None,
        });
        let challenges = self.challenge_headers(true);
        let proof = self.signature_headers().chain(stamp).chain(url);
        for name in proof.chain(facts).chain(signed).chain(challenges) {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name);
            }
        }
        names
    }

    /// The field of a form that holds the JSON, if the provider sends forms.
    pub fn form_field(&self) -> Option<&str> {
        self.event.form_field.as_deref()
    }

    /// The headers that are stored with an event.
    pub fn keeps_headers(&self) -> impl Iterator<Item = &str> {
        self.delivery.keep_headers.iter().map(String::as_str)
    }

    /// Whether the signature covers this place. If it covers the id, an attacker without the secret cannot give a
    /// captured delivery another id.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        let Some(signed) = self.template() else { return false };
        match place {
            Place::Json(pointer) => {
                signed.has(&Part::Body) || signed.pointers().any(|signed| signed == pointer)
            }
            // Under a signature over sorted fields a byte can move from one field to the next.
            Place::Form(_) => signed.has(&Part::Body),
            Place::Digest => signed.has(&Part::Body) || signed.has(&Part::Form),
            Place::New => false,
            Place::Join(places) => places.iter().all(|place| self.covers(place)),
            Place::Header(name) | Place::Key(name) => {
                let by_id = signed.has(&Part::Id) && self.event.ids.first() == Some(place);
                by_id || signed.headers().any(|header| header.eq_ignore_ascii_case(name))
            }
        }
    }

    /// Whether deliveries are signed without this header. Then an attacker can send a captured request with another
    /// value in it.
    pub fn leaves_out(&self, header: &str) -> bool {
        self.template().is_some() && !self.covers(&Place::Header(header.to_owned()))
    }

    /// Whether deliveries are signed. A token proves the sender, not the content; so does a JWT without a claim for the
    /// body.
    pub fn signs(&self) -> bool {
        self.template().is_some()
    }

    /// Whether the id may be the body's digest if the sender gives none.
    pub fn makes_ids(&self) -> bool {
        self.event.ids.contains(&Place::Digest)
    }

    /// The header that the id must come in; `None` if it may be elsewhere.
    pub fn id_header(&self) -> Option<&str> {
        match &self.event.ids[..] {
            [only] => only.header(),
            _ => None,
        }
    }

    /// How long an equal body is the same event, if the id is a digest with a window.
    pub fn same_for(&self) -> Option<Duration> {
        self.event.same_for
    }

    /// Whether every request is an event, with an id that the receiver makes.
    pub fn makes_new_ids(&self) -> bool {
        self.event.ids.contains(&Place::New)
    }

    /// Whether one request may bring several events.
    pub fn has_lists(&self) -> bool {
        self.event.each.is_some()
    }

    /// Whether the signature covers every place of the event id.
    pub fn signs_id(&self) -> bool {
        self.event.ids.iter().all(|place| self.covers(place))
    }

    /// The guard for an event of this type, if the id is not signed.
    pub fn guard_for(&self, event_type: &str) -> ReplayGuard {
        let flagged = self.flag_types.iter().any(|pattern| pattern.matches(event_type));
        match self.guard {
            ReplayGuard::Hold if flagged => ReplayGuard::Flag,
            guard => guard,
        }
    }

    /// The signed content; `None` if the header proves the sender only, or without a signature.
    pub(crate) fn template(&self) -> Option<&Template> {
        match &self.signature.as_ref()?.proof {
            Proof::Signed { signed, .. } => Some(signed),
            Proof::Jwt(jwt) => jwt.body.as_ref().map(|body| &body.signed),
            Proof::Token => None,
        }
    }

    /// Whether a challenge needs the source's `verify_token`.
    pub fn wants_verify_token(&self) -> bool {
        let wants =
            |one: &Handshake| matches!(one.proof, ChallengeProof::Token(_)) || one.lists_tokens();
        self.handshakes.iter().any(wants)
    }

    /// Whether the provider gives the text of the `verify_token`, so that it cannot be made up.
    pub fn gives_verify_token(&self) -> bool {
        self.handshakes.iter().any(Handshake::lists_tokens)
    }

    /// Whether anybody can have a token signed: a challenge without a signature gets an HMAC. Then content that looks
    /// like a token is never genuine.
    pub(crate) fn signs_tokens(&self) -> bool {
        self.handshakes.iter().any(|one| one.is_keyed() && !one.is_signed())
    }

    /// Whether the provider sends the secret itself.
    pub fn registers(&self) -> bool {
        self.handshakes.iter().any(|one| one.proof == ChallengeProof::Registration)
    }

    /// Whether a person enters the secret at the provider, because the answer does not have it.
    pub fn shows_registered(&self) -> bool {
        let silent = |one: &Handshake| one.proof == ChallengeProof::Registration && !one.echoes();
        self.handshakes.iter().any(silent)
    }

    /// The methods of the challenges without a signature.
    pub fn challenge_methods(&self) -> impl Iterator<Item = &'static str> {
        self.handshakes.iter().filter(|one| !one.is_signed()).map(|one| one.method)
    }

    /// The headers that challenges are read from.
    pub(crate) fn challenge_headers(&self, signed: bool) -> impl Iterator<Item = &str> {
        let wanted = self.handshakes.iter().filter(move |one| one.is_signed() == signed);
        wanted.flat_map(Handshake::header_names)
    }

    /// The JSON pointers that challenges are read from.
    pub(crate) fn challenge_pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.handshakes.iter().flat_map(Handshake::spots).filter_map(|spot| match spot {
            Spot::Request(Place::Json(pointer)) => Some(pointer),
            Spot::Request(_) | Spot::Query(_) => None,
        })
    }
}
