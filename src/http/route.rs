//! Which handlers want an event of a source, and the jobs that it makes.

use super::source::Source;
use crate::condition::{Condition, Doubt, Key, Values};
use crate::model::{Name, Timestamp};
use crate::pattern::Pattern;
use crate::payload::{Event, Place};
use crate::store::{Accept, Group, NewJob};
use crate::traffic::Decision;
use crate::verify::Verified;

/// A handler, and which events it wants from one source.
#[derive(Debug, Clone)]
pub struct Route {
    pub handler: Name,
    /// One match is enough.
    pub patterns: Vec<Pattern>,
    /// What the event's values must be.
    pub when: Option<Condition>,
    /// By what its jobs are ordered or coalesced.
    pub key: Option<Key>,
}

/// What the conditions and keys of an event's handlers came to; empty if no handler has one.
#[derive(Debug, Default)]
pub(super) struct Decisions(Vec<(Name, Decision)>);

impl Route {
    /// Of every event of these types.
    pub fn new(handler: Name, patterns: Vec<Pattern>) -> Self {
        Route { handler, patterns, when: None, key: None }
    }

    pub(super) fn decides(&self) -> bool {
        self.when.is_some() || self.key.is_some()
    }

    fn wants(&self, event_type: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(event_type))
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        let of_condition = self.when.iter().flat_map(Condition::places);
        of_condition.chain(self.key.iter().flat_map(|key| &key.places))
    }

    /// The job of an event with these values; `None` if the condition does not hold.
    fn job(&self, source: &Name, values: &Values<'_>) -> Option<NewJob> {
        let decided = self.when.as_ref().map_or(Ok(true), |when| when.decide(values));
        if decided == Ok(false) {
            return None;
        }
        let grouped = self.key.as_ref().map_or(Ok(None), |key| {
            let key_of = key.of(source, values)?;
            Ok(key_of.map(|of_event| Group { key: of_event, rule: key.rule }))
        });
        let doubt: Option<&Doubt> = decided.as_ref().err().or(grouped.as_ref().err());
        let undecided = doubt.map(Doubt::to_string);
        let group = grouped.unwrap_or_default();
        Some(NewJob { undecided, group, ..NewJob::of(self.handler.clone()) })
    }
}

impl Decisions {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Name, Decision)> {
        self.0.iter()
    }

    /// How many there are of one kind; `None` if there are none.
    pub(super) fn count(&self, wanted: Decision) -> Option<usize> {
        let count = self.0.iter().filter(|(_, decision)| *decision == wanted).count();
        (count > 0).then_some(count)
    }
}

impl Source {
    /// What the store gets of a genuine delivery. It takes time in proportion to the body if a handler of this type
    /// has a condition or a key.
    pub(super) fn accept(&self, delivery: Verified, received_at: Timestamp) -> (Accept, Decisions) {
        let (jobs, decisions) = self.jobs(&delivery);
        let accept = Accept {
            source: self.name.clone(),
            received_at,
            delivery,
            jobs,
            on_redelivery: self.on_redelivery,
        };
        (accept, decisions)
    }

    fn jobs(&self, delivery: &Verified) -> (Vec<NewJob>, Decisions) {
        let event_type = delivery.event_type().as_str();
        let routes: Vec<&Route> =
            self.routes.iter().filter(|route| route.wants(event_type)).collect();
        let event = Event {
            id: delivery.event_id().as_str(),
            event_type,
            headers: delivery.headers(),
            body: delivery.body(),
            form_field: self.scheme.form_field(),
        };
        let places = routes.iter().flat_map(|route| route.places());
        let values = Values::read(&event, places, self.condition_kept_bytes);
        let mut decisions = Decisions::default();
        let mut jobs = Vec::new();
        for route in routes {
            let job = route.job(&self.name, &values);
            if route.decides() {
                let decision = match &job {
                    None => Decision::False,
                    Some(NewJob { undecided: Some(_), .. }) => Decision::Failed,
                    Some(_) => Decision::True,
                };
                decisions.0.push((route.handler.clone(), decision));
            }
            jobs.extend(job);
        }
        (jobs, decisions)
    }
}
