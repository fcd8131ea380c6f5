//! Which handlers want an event of a source, and the job that each of them gets.
//!
//! `config` makes the routes; `http` asks them when it accepts an event, and the store when a person puts an event's
//! jobs back or has them made. Must stay true: what cannot be decided makes a held job; it is never dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::condition::{Condition, Doubt, Key, TableResult, Values};
use crate::model::{EventId, GroupKey, GroupRule, Name};
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
    /// The key by which its jobs are ordered or coalesced.
    pub key: Option<Key>,
    pub delay: Option<Delay>,
    /// Equal requests of its source are triggers: their jobs run one at a time, and the latest wins.
    pub triggers: bool,
}

/// The routes of one source.
#[derive(Debug, Clone)]
pub struct Routes {
    pub source: Name,
    /// The form field that holds the JSON of a body, if the provider sends forms.
    pub form_field: Option<String>,
    /// The most bytes that a compressed body is inflated to.
    pub inflated_bytes: u64,
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
    /// The group in which it runs in order.
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
    /// The wait from the arrival of its event.
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

impl Decision {
    /// The fixed words in metrics, in the order of the variants.
    pub const WORDS: [&str; 3] = ["true", "false", "failed"];

    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// What the conditions and keys of an event's handlers came to; empty if no handler has one.
#[derive(Debug, Default)]
pub struct Decisions(Vec<(Name, Decision)>);

impl Group {
    /// The group of equal requests: same derived id and type; `None` if the sender gave an id.
    fn of_trigger(source: &Name, event: &Event<'_>) -> Option<Group> {
        let is_derived = event.id.parse::<EventId>().is_ok_and(|id| id.is_derived());
        let key = || GroupKey::of(source, &[Some(event.id), Some(event.event_type)]);
        is_derived.then(|| Group { key: key(), rule: GroupRule::Latest })
    }
}

impl NewJob {
    /// A job that may run at once, whatever other jobs do.
    pub fn of(handler: Name) -> Self {
        NewJob { handler, undecided: None, group: None, delay: None }
    }
}

impl Route {
    /// Makes a route for every event of these types.
    pub fn new(handler: Name, patterns: Vec<Pattern>) -> Self {
        Route { handler, patterns, when: None, key: None, delay: None, triggers: false }
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

    /// What an event with these values comes to, and the job that it makes unless that is false.
    fn decide(
        &self,
        routes: &Routes,
        event: &Event<'_>,
        values: &Values<'_>,
    ) -> (Decision, NewJob) {
        let holds = self.when.as_ref().map_or(Ok(true), |when| when.decide(values));
        let group = self.key.as_ref().map_or(Ok(None), |key| {
            let key_of = key.of(&routes.source, values)?;
            Ok(key_of.map(|of_event| Group { key: of_event, rule: key.rule }))
        });
        let doubt: Option<&Doubt> = holds.as_ref().err().or(group.as_ref().err());
        let (decision, undecided) = match doubt {
            _ if holds == Ok(false) => (Decision::False, None),
            None => (Decision::True, None),
            Some(doubt) => (Decision::Failed, Some(doubt.to_string())),
        };
        let of_trigger =
            || self.triggers.then(|| Group::of_trigger(&routes.source, event)).flatten();
        let (handler, group) =
            (self.handler.clone(), group.unwrap_or_default().or_else(of_trigger));
        (decision, NewJob { handler, undecided, group, delay: self.delay })
    }
}

impl Routes {
    /// The route of one handler.
    pub fn of(&self, handler: &Name) -> Option<&Route> {
        self.routes.iter().find(|route| route.handler == *handler)
    }

    /// What an event has at the places of all handlers that want its type, and of `asked`, which may not want it any
    /// more. They share one bound, so every question about an event has the same answer.
    fn values<'r>(&'r self, event: &Event<'_>, asked: Option<&'r Route>) -> Values<'r> {
        let places = self.wanting(event).chain(asked).flat_map(Route::places);
        Values::read(event, places, self.kept_bytes)
    }

    fn wanting<'r>(&'r self, event: &Event<'_>) -> impl Iterator<Item = &'r Route> {
        self.routes.iter().filter(|route| route.wants(event.event_type))
    }

    /// The job that the handler of `route` gets of a stored event; `None` where its condition does not hold.
    pub fn job(&self, route: &Route, event: &Event<'_>) -> Option<NewJob> {
        let (decision, job) = route.decide(self, event, &self.values(event, Some(route)));
        (decision != Decision::False).then_some(job)
    }

    /// What [`Routes::jobs`] decides for the handler of `route`, the job unless that is false, and the lines of its
    /// condition.
    pub fn explain(
        &self,
        route: &Route,
        event: &Event<'_>,
    ) -> (Decision, NewJob, Vec<TableResult>) {
        let values = self.values(event, Some(route));
        let (decision, job) = route.decide(self, event, &values);
        (decision, job, route.when.as_ref().map_or(Vec::new(), |when| when.explain(&values)))
    }

    /// The jobs of a new event. It takes time in proportion to the body if a handler of this type has a condition or a
    /// key.
    pub fn jobs(&self, event: &Event<'_>) -> (Vec<NewJob>, Decisions) {
        let values = self.values(event, None);
        let (mut jobs, mut decisions) = (Vec::new(), Decisions::default());
        for route in self.wanting(event) {
            let (decision, job) = route.decide(self, event, &values);
            if route.decides() {
                decisions.0.push((route.handler.clone(), decision));
            }
            if decision != Decision::False {
                jobs.push(job);
            }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::condition::{Line, Scalar, Test};
    use crate::model::{GroupKey, GroupRule, Headers};

    fn route(handler: &str, events: &str) -> Route {
        Route::new(handler.parse().unwrap(), vec![Pattern::new(events, false)])
    }

    fn place(text: &str) -> Place {
        Place::parse(text).unwrap()
    }

    /// A condition on one place.
    fn when(at: &str, text: &str) -> Option<Condition> {
        let test = Test::Is(vec![Scalar::Text(text.to_owned())]);
        Some(Condition { tables: vec![vec![Line { place: place(at), not: false, test }]] })
    }

    fn key(at: &str, rule: GroupRule) -> Option<Key> {
        Some(Key { places: vec![place(at)], rule })
    }

    /// The handler of a job, its doubt and its group.
    type Parts = (String, Option<String>, Option<Group>);

    /// The handlers of the jobs with their doubts and groups, and how many handlers were decided.
    fn decided(routes: &[Route], body: &str) -> (Vec<Parts>, usize) {
        let headers = Headers::new();
        let event = Event {
            id: "e1",
            event_type: "push",
            headers: &headers,
            body: body.as_bytes(),
            form_field: None,
            inflated_bytes: 1000,
        };
        let routes = Routes {
            source: "shop".parse().unwrap(),
            form_field: None,
            inflated_bytes: 1000,
            kept_bytes: 200,
            routes: routes.to_vec(),
        };
        let (jobs, decisions) = routes.jobs(&event);
        let parts = |job: NewJob| (job.handler.to_string(), job.undecided, job.group);
        (jobs.into_iter().map(parts).collect(), decisions.iter().count())
    }

    #[test]
    fn a_job_has_its_group_and_why_it_is_undecided() {
        let group =
            |text, rule| Some(Group { key: GroupKey::of(&"shop".parse().unwrap(), &[text]), rule });
        let ordered = Route {
            when: when("/ref", "main"),
            key: key("/n", GroupRule::Block),
            ..route("ordered", "push")
        };
        let latest = Route { key: key("/n", GroupRule::Latest), ..route("latest", "*") };
        let routes = [ordered, latest, route("plain", "*")];
        let job = |name: &str, doubt: Option<&str>, group| {
            (name.to_owned(), doubt.map(str::to_owned), group)
        };
        let plain = || job("plain", None, None);
        let (block, newest) = (GroupRule::Block, GroupRule::Latest);
        for (body, jobs) in [
            (
                r#"{"ref":"main","n":7}"#,
                vec![
                    job("ordered", None, group(Some("7"), block)),
                    job("latest", None, group(Some("7"), newest)),
                    plain(),
                ],
            ),
            (
                r#"{"ref":"main"}"#,
                vec![job("ordered", None, group(None, block)), job("latest", None, None), plain()],
            ),
            (r#"{"n":7}"#, vec![job("latest", None, group(Some("7"), newest)), plain()]),
            (
                r#"{"ref":"main","ref":"dev","n":7}"#,
                vec![
                    job("ordered", Some("/ref: it is there twice"), group(Some("7"), block)),
                    job("latest", None, group(Some("7"), newest)),
                    plain(),
                ],
            ),
            (
                r#"{"ref":"main","n":[]}"#,
                vec![
                    job("ordered", Some("/n: it is a list or an object"), None),
                    job("latest", Some("/n: it is a list or an object"), None),
                    plain(),
                ],
            ),
        ] {
            assert_eq!(decided(&routes, body), (jobs, 2), "{body}");
        }
    }

    #[test]
    fn only_the_handlers_of_the_events_type_are_decided() {
        let other = Route { when: when("/large", "x"), ..route("other", "issues") };
        let own = Route { when: when("/ref", "main"), ..route("own", "push") };
        let body = format!(r#"{{"large":"{}","ref":"main"}}"#, "x".repeat(165));
        let wanted = vec![("own".to_owned(), None, None)];
        // The other's value would take the place of this one's.
        assert_eq!(decided(&[other, own], &body), (wanted, 1));
    }
}
