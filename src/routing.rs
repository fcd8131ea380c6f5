//! Which handlers want an event of a source, and the job that each of them gets.
//!
//! `config` makes the routes; `http` asks them when it accepts an event, and the store when a person puts an event's
//! jobs back or has them made. Must stay true: what cannot be decided makes a held job and never none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::condition::{Condition, Doubt, Key, Values};
use crate::model::{GroupKey, GroupRule, Name};
use crate::pattern::Pattern;
use crate::payload::{Event, Place};

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
    pub delay: Option<Delay>,
}

/// The routes of one source.
#[derive(Debug, Clone)]
pub struct Routes {
    pub source: Name,
    /// The form field that holds the JSON of a body, if the provider sends forms.
    pub form_field: Option<String>,
    /// How much of one event is kept to decide for which routes it is.
    pub kept_bytes: usize,
    pub routes: Vec<Route>,
}

/// The routes of every source that has some.
#[derive(Debug, Default)]
pub struct Router(BTreeMap<Name, Arc<Routes>>);

/// A job that an event makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    pub handler: Name,
    /// Why the handler's condition or key could not be decided: the job is held.
    pub undecided: Option<String>,
    /// The jobs of its handler among which it keeps its place.
    pub group: Option<Group>,
    /// How long it waits before its first attempt.
    pub delay: Option<Delay>,
}

/// Jobs of one handler that run one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub key: GroupKey,
    pub rule: GroupRule,
}

/// How long a job waits before its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// From the arrival of its event.
    pub wait: Duration,
    /// Under [`GroupRule::Latest`] each newer event of the group starts the wait anew, but no job waits longer than
    /// this after the first of them came.
    pub most: Duration,
}

/// What a handler's condition and key come to for one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The event makes a job.
    True,
    /// The event makes none.
    False,
    /// It cannot be decided: the job is held.
    Failed,
}

/// What the conditions and keys of an event's handlers came to; empty if no handler has one.
#[derive(Debug, Default)]
pub struct Decisions(Vec<(Name, Decision)>);

impl NewJob {
    /// A job that may run at once, whatever other jobs do.
    pub fn of(handler: Name) -> Self {
        NewJob { handler, undecided: None, group: None, delay: None }
    }
}

impl Route {
    /// Of every event of these types.
    pub fn new(handler: Name, patterns: Vec<Pattern>) -> Self {
        Route { handler, patterns, when: None, key: None, delay: None }
    }

    /// Whether it depends on an event's values.
    pub fn decides(&self) -> bool {
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
        let (handler, group) = (self.handler.clone(), grouped.unwrap_or_default());
        Some(NewJob { handler, undecided, group, delay: self.delay })
    }
}

impl Routes {
    /// Whether what this handler gets depends on an event's values.
    pub fn decides(&self, handler: &Name) -> bool {
        self.routes.iter().any(|route| route.handler == *handler && route.decides())
    }

    /// The job that one handler gets of an event whose type it may not want any more; `None` where its condition does
    /// not hold. Without a delay, since the event is not new.
    pub fn job(&self, handler: &Name, event: &Event<'_>) -> Option<NewJob> {
        let Some(route) = self.routes.iter().find(|route| route.handler == *handler) else {
            return Some(NewJob::of(handler.clone()));
        };
        route.job(&self.source, &Values::read(event, route.places(), self.kept_bytes))
    }

    /// The jobs of a new event. It takes time in proportion to the body if a handler of this type has a condition or a
    /// key.
    pub fn jobs(&self, event: &Event<'_>) -> (Vec<NewJob>, Decisions) {
        let wants = |route: &&Route| route.wants(event.event_type);
        let routes: Vec<&Route> = self.routes.iter().filter(wants).collect();
        let places = routes.iter().flat_map(|route| route.places());
        let values = Values::read(event, places, self.kept_bytes);
        let mut decisions = Decisions::default();
        let mut jobs = Vec::new();
        for route in routes {
            let job = route.job(&self.source, &values);
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

impl Router {
    pub fn new(all: impl IntoIterator<Item = Arc<Routes>>) -> Self {
        Router(all.into_iter().map(|routes| (routes.source.clone(), routes)).collect())
    }

    /// The routes of a source.
    pub fn of(&self, source: &Name) -> Option<&Arc<Routes>> {
        self.0.get(source)
    }
}

impl Decisions {
    pub fn iter(&self) -> impl Iterator<Item = &(Name, Decision)> {
        self.0.iter()
    }

    /// How many there are of one kind; `None` if there are none.
    pub fn count(&self, wanted: Decision) -> Option<usize> {
        let count = self.0.iter().filter(|(_, decision)| *decision == wanted).count();
        (count > 0).then_some(count)
    }
}
