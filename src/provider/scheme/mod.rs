//! A provider's scheme in five views, one for each kind of caller: [`Proof`], [`Identity`], [`Answers`], [`Handshakes`],
//! [`Setup`].
//!
//! Every module above may call them. A question is a method or a field of one view; the one that needs three views is
//! here. Must stay true: only `provider::parse` makes a scheme, after it has checked that the views fit together.

mod answer;
mod challenge;
mod facts;
mod identity;
mod proof;
mod setup;

use std::borrow::Cow;
use std::time::Duration;

use super::place::Place;
use crate::document::Fault;
use crate::limits::{TOLERANCE_AHEAD, TOLERANCE_MAX, TOLERANCE_MIN, TOLERANCE_RUNS};
use crate::model::{Name, Repeats, ReplayGuard};
use crate::payload::{in_query, masked};
pub(crate) use answer::AnswerText;
pub use answer::Answers;
pub use challenge::Handshakes;
pub(crate) use facts::PARTS;
pub use facts::{Fact, Facts, How};
pub use identity::Identity;
pub use proof::Proof;
pub(crate) use proof::{
    Algorithm, BodyClaim, Encoding, Format, Hash, Jwt, JwtAlgorithm, KeyText, MERGED, Mechanism,
    SENDER_LABEL, Signature, Stamp, StampPlace, StampUnit, ahead,
};
pub use setup::{Delivery, Resends, Setup};

/// How one provider signs, names and re-sends its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    pub(super) name: Name,
    pub(super) proof: Proof,
    pub(super) identity: Identity,
    pub(super) answers: Answers,
    pub(super) challenge: Handshakes,
    pub(super) setup: Setup,
    /// Further ways in which the provider signs, in the file's order: whole schemes without alternatives of their own.
    /// All of them prove as much as this one does.
    pub(super) alternatives: Vec<Scheme>,
    /// The number of a scheme among the families of its file; the file's own is 0.
    pub(super) family: usize,
}

impl Scheme {
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// This scheme and its alternatives, in the file's order. The first one that proves a request reads all of it.
    pub(crate) fn families(&self) -> impl Iterator<Item = &Scheme> {
        std::iter::once(self).chain(&self.alternatives)
    }

    /// The alternatives, for tables and pages.
    pub fn alternatives(&self) -> &[Scheme] {
        &self.alternatives
    }

    /// The number of the scheme among [`Scheme::families`].
    pub(crate) fn family(&self) -> usize {
        self.family
    }

    /// What proves a delivery. The verifier reads it, and the modules that judge what a delivery proves.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// What identifies an event. The modules that name events read it, and those that ask what a repeat is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The answers to deliveries.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The challenges, how they are recognized and answered.
    pub fn challenge(&self) -> &Handshakes {
        &self.challenge
    }

    /// The texts for people and pages.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Whether each element of a list has the token that proves it.
    pub fn proves_elements(&self) -> bool {
        self.identity.has_lists() && self.proof.token_field().is_some()
    }

    /// The scheme with a change in each of its families.
    fn with(mut self, change: impl Fn(&mut Scheme)) -> Scheme {
        change(&mut self);
        self.alternatives.iter_mut().for_each(change);
        self
    }

    /// The scheme for a source that names this `sender`; call it once for each of several.
    #[must_use]
    pub fn with_sender(self, sender: &str) -> Scheme {
        self.with(|family| family.proof.senders.push(sender.to_owned()))
    }

    /// The scheme for a source whose `public_url` has these queries.
    #[must_use]
    pub fn with_queries(self, queries: &[Option<String>]) -> Scheme {
        self.with(|family| family.proof.queries = queries.to_vec())
    }

    /// The scheme for a source whose bodies have at most so many bytes.
    #[must_use]
    pub fn with_max_body(self, bytes: u64) -> Scheme {
        self.with(|family| family.identity.inflated_bytes = bytes)
    }

    /// Checks how old the signed time of a delivery may be. In the past more than [`TOLERANCE_AHEAD`] is allowed only where
    /// a replay is recognised by what an attacker cannot change: a signed id, or the signed body under `guard = "hold"`.
    ///
    /// # Errors
    /// The fault and its fix.
    pub fn check_tolerance(&self, tolerance: Duration) -> Result<(), Fault> {
        let Scheme { proof, identity, .. } = self;
        let most = if proof.jwt().is_some() { TOLERANCE_RUNS } else { TOLERANCE_MAX };
        if !(TOLERANCE_MIN..=most).contains(&tolerance) {
            let (kind, most) = match proof.jwt().is_some() {
                true => (" of a token", "1 h"),
                false => ("", "7 days"),
            };
            return Err(format!("the tolerance{kind} must be 1 min to {most}").into());
        }
        let by_body = identity.guard == ReplayGuard::Hold
            && identity.flag_types.is_empty()
            && proof.covers(&Place::Digest);
        let tells_replays = proof.covers_id() && !identity.id_is_generated() || by_body;
        if tolerance > TOLERANCE_AHEAD && !tells_replays {
            return Err(Fault::new(
                "a tolerance over 5 min lets a captured request run again: neither the id nor the body tells it",
                "lower it, sign the id, or use guard = \"hold\" without flag_types",
            ));
        }
        Ok(())
    }

    /// The body for a screen, without the secret that its sender writes into it.
    pub(crate) fn masked<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        let Some(field) = self.proof.token_field() else { return Cow::Borrowed(body) };
        // A form has it in a separate field, or in the JSON of another, which is then hidden whole.
        let fields = self.proof.token_form().into_iter().chain(self.identity.form_field.as_deref());
        masked(body, field, fields)
    }

    /// Whether a repeat of a request runs its handler again, and may do harm.
    pub(crate) fn runs_repeats(&self) -> bool {
        let Scheme { identity, setup, .. } = self;
        let repeats = identity.repeats != Repeats::LookAgain && !setup.delivery.never_resends();
        identity.id_is_generated() && repeats
    }

    /// Checks what an equal request may mean. A captured request must not run again, unless the source accepts that
    /// (`replays_run`).
    ///
    /// # Errors
    /// The fault and its fix.
    pub fn check_repeats(&self, repeats: Repeats, replays_run: bool) -> Result<(), Fault> {
        let Scheme { proof, identity, .. } = self;
        let generates = identity.id_is_generated();
        if repeats != Repeats::Duplicate && !identity.id_may_be_digest() && !generates {
            return Err(Fault::new(
                "repeats has no effect: an id of the sender names its event for good",
                "remove repeats",
            ));
        }
        if repeats == Repeats::LookAgain && identity.ids.len() > 1 {
            return Err(Fault::new(
                "repeats = \"look-again\" needs a provider whose requests never have an id",
                "use \"trigger\"",
            ));
        }
        let tolerance = proof.tolerance();
        let runs_captured = match repeats {
            Repeats::Duplicate => false,
            Repeats::Trigger => proof.signs_content(),
            Repeats::Window(_) | Repeats::LookAgain => proof.signs_content() && tolerance.is_none(),
        };
        // The guard by body is switched off where equal bodies are separate events.
        let drops_guard = repeats != Repeats::Duplicate && identity.guard != ReplayGuard::Off;
        if (runs_captured || drops_guard) && !replays_run {
            return Err(Fault::new(
                format!("repeats = \"{repeats}\" lets a captured request run again"),
                "remove it; a source can have it with replays = \"run\", which accepts that",
            ));
        }
        // It is accepted until the tolerances of past and future have passed: a shorter window would run it again.
        let accepted_for = tolerance.map(|tolerance| tolerance + ahead(tolerance));
        let is_short = |window| accepted_for.is_some_and(|time| time > window);
        match repeats {
            Repeats::Window(window)
                if proof.signs_content() && is_short(window) && !replays_run =>
            {
                Err(Fault::new(
                    "the tolerances of past and future together are over the window of repeats, which lets a captured request run again after it",
                    "lower the tolerance, or make the window longer",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The scheme with the source's `repeats`, which were checked.
    #[must_use]
    pub fn with_repeats(self, repeats: Repeats) -> Scheme {
        self.with(|family| {
            let identity = &mut family.identity;
            let id = if repeats == Repeats::LookAgain { Place::New } else { Place::Digest };
            let unnamed = |place: &&mut Place| matches!(place, Place::Digest | Place::New);
            identity.ids.iter_mut().filter(unnamed).for_each(|place| *place = id.clone());
            if repeats != Repeats::Duplicate {
                identity.guard = ReplayGuard::Off;
            }
            identity.repeats = repeats;
            family.proof.ids.clone_from(&identity.ids);
        })
    }

    /// The scheme with another tolerance, which was checked; the same if it has none.
    #[must_use]
    pub fn with_tolerance(self, tolerance: Duration) -> Scheme {
        self.with(|family| {
            if let Some(stamp) = &mut family.proof.timestamp {
                stamp.tolerance = tolerance;
            } else if let Some(Signature { mechanism: Mechanism::Jwt(jwt), .. }) =
                &mut family.proof.signature
            {
                jwt.tolerance = jwt.tolerance.map(|_| tolerance);
            }
        })
    }

    /// The scheme for a source that returns its handler's answer, whose id is the key of a request. The body's digest is
    /// not one: two equal payments are two. Without any other id the list of places is empty.
    #[must_use]
    pub fn with_keys(self) -> Scheme {
        self.with(|family| {
            match &family.answers.key {
                Some(key) => family.identity.ids = vec![key.clone()],
                None => family.identity.ids.retain(|place| *place != Place::Digest),
            }
            family.proof.ids.clone_from(&family.identity.ids);
        })
    }

    /// The scheme for a source whose handlers read these parameters of the query.
    #[must_use]
    pub fn with_kept_query(self, names: &[String]) -> Scheme {
        self.with(|family| {
            family.identity.kept_headers.extend(names.iter().map(|name| in_query(name)));
            family.identity.kept_query = names.to_vec();
        })
    }

    /// Every header that a delivery is verified and named by in this family, once each. Only a repeatable signature may
    /// come twice.
    pub(crate) fn read_headers(&self) -> Vec<&str> {
        let Scheme { proof, identity, .. } = self;
        let ids = identity.ids.iter().flat_map(Place::parts);
        let places = proof.key_url().into_iter().chain(proof.sender_place());
        let places = places.chain(ids).chain(&identity.types).chain(&identity.subtype);
        let signed = proof.signed_content().into_iter();
        let signed = signed.flat_map(|signed| signed.headers().chain(signed.naming_header()));
        let all =
            proof.headers().chain(proof.time_header()).chain(places.filter_map(Place::header));
        let mut names: Vec<&str> = Vec::new();
        for name in all.chain(signed).chain(self.challenge.headers(true)) {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name);
            }
        }
        names
    }
}
