//! What a delivery is: an event, or a duplicate of one; and what the replay guard makes of a new event.

use crate::model::{
    Digest, EventType, HeldReason, OnRedelivery, Repeats, ReplayGuard, State, Timestamp,
};
use crate::store::border::Accept;
use crate::verify::Verified;

/// Which state of several matters to an operator first.
const CONCERN: [State; State::ALL.len()] = [
    State::Held,
    State::Dead,
    State::Running,
    State::Waiting,
    State::Ready,
    State::Succeeded,
    State::Dropped,
];

/// An event that has the delivery's source and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownEvent {
    pub(crate) row: i64,
    pub(crate) variant: i64,
    pub(crate) event_type: EventType,
    pub(crate) digest: Digest,
    pub(crate) received_at: Timestamp,
    /// How its jobs had ended, where they were removed with its payload.
    pub(crate) removed: Option<State>,
}

/// What a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival<'a> {
    /// An event, as this variant of its id: 0 where the id is new.
    Event(i64),
    /// An event of which another body has the id, and no signature covers the id.
    IdReused(i64),
    Duplicate(&'a KnownEvent),
    /// A duplicate whose body is another one although the id is signed: it is kept as evidence.
    Conflict(&'a KnownEvent),
}

/// Says of each job of a delivery, in order, whether an equal event has a job for the same handler, in the same group,
/// that has not begun. It is empty unless the source has [`Repeats::Trigger`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Twins(pub(crate) Vec<bool>);

impl Twins {
    /// Returns the jobs that the delivery makes: not one whose twin's run will begin anyway, after the delivery came.
    pub(crate) fn made<T>(&self, jobs: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let has_twin = self.0.iter().copied().chain(std::iter::repeat(false));
        jobs.into_iter().zip(has_twin).filter(|(_, has_twin)| !has_twin).map(|(job, _)| job)
    }
}

/// What a delivery is. `known` are the stored events with its id by variant; under [`Repeats::Window`] and
/// [`Repeats::Trigger`] the last one is enough.
pub(crate) fn arrival<'a>(new: &Accept, known: &'a [KnownEvent], twins: &Twins) -> Arrival<'a> {
    let delivery = &new.delivery;
    let last = known.last();
    let next = last.map_or(0, |last| last.variant.saturating_add(1));
    let again = |is_same: bool| match last {
        Some(last) if is_same => Arrival::Duplicate(last),
        _ => Arrival::Event(next),
    };
    match delivery.repeats() {
        // A clock that was set back makes the last one younger: the window grows, and nothing runs twice.
        Repeats::Window(window) => {
            let is_recent = |last: &KnownEvent| {
                last.event_type == *delivery.event_type()
                    && new.received_at.since(last.received_at) < window
            };
            return again(last.is_some_and(is_recent));
        }
        Repeats::Trigger => {
            return again(!new.jobs.is_empty() && twins.made(&new.jobs).next().is_none());
        }
        Repeats::Duplicate | Repeats::LookAgain => {}
    }
    let is_same = |event: &&KnownEvent| {
        event.digest == delivery.digest()
            && (delivery.id_signed() || event.event_type == *delivery.event_type())
    };
    match (known.iter().find(is_same), known.first()) {
        (Some(same), _) => Arrival::Duplicate(same),
        (None, Some(first)) if delivery.id_signed() => Arrival::Conflict(first),
        (None, Some(_)) => Arrival::IdReused(next),
        (None, None) => Arrival::Event(next),
    }
}

/// Whether a duplicate puts the dead jobs of its event back.
pub(crate) fn replays_dead(rule: OnRedelivery, conflict: bool) -> bool {
    rule == OnRedelivery::ReplayDead && !conflict
}

/// Whether a delivery of a known event may take the place of its damaged payload: it brings that very event again.
pub(crate) fn mends(delivery: &Verified, event: &KnownEvent) -> bool {
    event.digest == delivery.digest() && event.event_type == *delivery.event_type()
}

/// Where else the body of a new event came to its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SameBody {
    Nowhere,
    /// The body came with events of the same type only.
    SameType,
    OtherType,
}

/// What the replay guard makes of a new event: why its jobs are held, and whether it runs with a mark.
pub(crate) fn guarded(
    guard: ReplayGuard,
    body: SameBody,
    id_reused: bool,
) -> (Option<HeldReason>, bool) {
    match (guard, body) {
        _ if id_reused => (Some(HeldReason::IdReused), false),
        (ReplayGuard::Off, _) | (_, SameBody::Nowhere) => (None, false),
        (ReplayGuard::Flag, SameBody::SameType) => (None, true),
        (ReplayGuard::Hold, SameBody::SameType) | (_, SameBody::OtherType) => {
            (Some(HeldReason::SuspectedReplay), false)
        }
    }
}

/// Whether a new event was signed before the store was restored, where its delivery is accepted for long after that. Its
/// event may have run and be missing in the backup.
pub(crate) fn is_before_restore(delivery: &Verified, restored_at: Option<Timestamp>) -> bool {
    delivery.signed_at().zip(restored_at).is_some_and(|(signed, restored)| signed <= restored)
}

/// Why the jobs of a stored event were held when it was accepted, or would have been: it came under the id of another
/// one (`is_variant`), or with its body (`repeats`) and was not marked.
pub(crate) fn held_at_arrival(
    is_variant: bool,
    repeats: bool,
    flagged: bool,
) -> Option<HeldReason> {
    match (is_variant, repeats && !flagged) {
        (true, _) => Some(HeldReason::IdReused),
        (false, true) => Some(HeldReason::SuspectedReplay),
        (false, false) => None,
    }
}

/// The state that matters most among those of an event's jobs; `removed` is that of the jobs that retention removed.
pub(crate) fn concern(states: &[State], removed: Option<State>) -> Option<State> {
    CONCERN.into_iter().find(|state| states.contains(state) || removed == Some(*state))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::Arrival::{Conflict, Duplicate, Event, IdReused};
    use super::*;
    use crate::provider::Scheme;
    use crate::store::border::NewJob;
    use crate::store::tests::{START, delivery, delivery_of, github, name, stripe};

    #[test]
    fn only_the_same_body_and_type_mend_an_event() {
        let of = stripe("e", "a", "{}");
        let event = known(0, &of);
        assert!(mends(&of, &event));
        assert!(!mends(&stripe("e", "a", "[]"), &event));
        let event_type = EventType::from_raw("b");
        assert!(!mends(&of, &KnownEvent { event_type, ..event }));
    }

    fn known(variant: i64, of: &Verified) -> KnownEvent {
        KnownEvent {
            row: 10 + variant,
            variant,
            event_type: of.event_type().clone(),
            digest: of.digest(),
            received_at: START,
            removed: None,
        }
    }

    /// What a delivery is that arrives so long after [`START`].
    #[track_caller]
    fn check(delivery: &Verified, later: Duration, known: &[&KnownEvent], expected: Arrival<'_>) {
        let known: Vec<KnownEvent> = known.iter().copied().cloned().collect();
        let (source, received_at) = (name("s"), START.after(later));
        let (delivery, on_redelivery) = (delivery.clone(), OnRedelivery::Ignore);
        let new = Accept { source, received_at, delivery, jobs: Vec::new(), on_redelivery };
        assert_eq!(arrival(&new, &known, &Twins::default()), expected);
    }

    #[test]
    fn only_a_duplicate_of_the_same_body_puts_dead_jobs_back() {
        assert!(replays_dead(OnRedelivery::ReplayDead, false));
        assert!(!replays_dead(OnRedelivery::ReplayDead, true));
        assert!(!replays_dead(OnRedelivery::Ignore, false));
        assert!(!replays_dead(OnRedelivery::Ignore, true));
    }

    #[test]
    fn an_unsigned_id_with_another_body_or_type_is_another_event() {
        let one = github("d", "push", "1");
        let (first, type_only) = (known(0, &one), known(0, &github("d", "label", "1")));
        let other = |variant| known(variant, &github("d", "push", "2"));
        let check = |known: &[&KnownEvent], expected| check(&one, Duration::ZERO, known, expected);
        check(&[], Event(0));
        check(&[&first], Duplicate(&first));
        check(&[&other(0)], IdReused(1));
        check(&[&type_only], IdReused(1));
        check(&[&other(0), &other(4)], IdReused(5));
        let third = known(3, &one);
        check(&[&other(0), &third, &other(4)], Duplicate(&third));
        // Of several the first.
        check(&[&first, &third], Duplicate(&first));
    }

    #[test]
    fn a_signed_id_with_another_body_is_evidence_on_the_first_event() {
        let one = stripe("e", "a.b", "1");
        let (first, other) = (known(0, &one), known(0, &stripe("e", "a.b", "2")));
        let check = |known: &[&KnownEvent], expected| check(&one, Duration::ZERO, known, expected);
        check(&[], Event(0));
        check(&[&first], Duplicate(&first));
        check(&[&other], Conflict(&other));
        check(&[&other, &known(1, &stripe("e", "a.b", "3"))], Conflict(&other));
        let second = known(1, &one);
        check(&[&other, &second], Duplicate(&second));
        let event_type = github("d", "push", "").event_type().clone();
        let other_type = KnownEvent { event_type, ..first.clone() };
        check(&[&other_type], Duplicate(&other_type));
    }

    #[test]
    fn an_equal_body_is_a_duplicate_for_as_long_as_its_scheme_says() {
        let one = delivery("alertmanager", "t", "", "firing", r#"{"status":"firing"}"#.to_owned());
        let Repeats::Window(window) = one.repeats() else { panic!("no window") };
        let short = Duration::from_millis(1);
        let first = known(0, &one);
        let check = |later, known: &[&KnownEvent], expected| check(&one, later, known, expected);
        check(window, &[], Event(0));
        check(Duration::ZERO, &[&first], Duplicate(&first));
        check(window - short, &[&first], Duplicate(&first));
        check(window, &[&first], Event(1));
        // The newest counts, also where it came from a clock that was ahead.
        let old = KnownEvent { received_at: START.before(window), ..first.clone() };
        let newest = known(1, &one);
        check(short, &[&old, &newest], Duplicate(&newest));
        let old = KnownEvent { variant: 1, ..old };
        check(short, &[&first, &old], Event(2));
        let ahead = KnownEvent { received_at: START.after(window), ..first.clone() };
        check(Duration::ZERO, &[&ahead], Duplicate(&ahead));
    }

    #[test]
    fn a_trigger_is_a_duplicate_if_each_of_its_jobs_has_a_twin() {
        let scheme = Scheme::embedded("alertmanager").unwrap().with_repeats(Repeats::Trigger);
        let delivery = delivery_of(&scheme, "t", "", "", "deploy".to_owned());
        let first = [known(0, &delivery)];
        let jobs = ["a", "b"].map(|handler| NewJob::of(name(handler)));
        let new = |jobs: &[NewJob]| Accept {
            source: name("s"),
            received_at: START,
            delivery: delivery.clone(),
            jobs: jobs.to_vec(),
            on_redelivery: OnRedelivery::Ignore,
        };
        for (jobs, twins, makes) in [
            (&jobs[..], vec![true, true], 0),
            (&jobs, vec![false, true], 1),
            (&jobs, vec![false, false], 2),
            (&[], vec![], 0),
        ] {
            let twins = Twins(twins);
            assert_eq!(twins.made(jobs).count(), makes);
            let is_duplicate = makes == 0 && !jobs.is_empty();
            let expected = if is_duplicate { Duplicate(&first[0]) } else { Event(1) };
            assert_eq!(arrival(&new(jobs), &first, &twins), expected, "{twins:?}");
            assert_eq!(arrival(&new(jobs), &[], &twins), Event(0));
        }
    }

    #[test]
    fn the_guard_holds_or_marks_a_body_that_came_before() {
        use ReplayGuard::{Flag, Hold, Off};
        use SameBody::{Nowhere, OtherType, SameType};
        let (runs, marked) = ((None, false), (None, true));
        let held = (Some(HeldReason::SuspectedReplay), false);
        for (guard, body, expected) in [
            (Off, Nowhere, runs),
            (Off, SameType, runs),
            (Hold, Nowhere, runs),
            (Hold, SameType, held),
            (Hold, OtherType, held),
            (Flag, Nowhere, runs),
            (Flag, SameType, marked),
            (Flag, OtherType, held),
        ] {
            assert_eq!(guarded(guard, body, false), expected, "{guard} {body:?}");
            let reused = (Some(HeldReason::IdReused), false);
            assert_eq!(guarded(guard, body, true), reused, "{guard} {body:?}");
        }
    }

    #[test]
    fn a_job_that_is_made_later_is_held_as_accept_would_have_held_it() {
        let (reused, suspected) = (Some(HeldReason::IdReused), Some(HeldReason::SuspectedReplay));
        for (is_variant, repeats, flagged, expected) in [
            (false, false, false, None),
            (false, false, true, None),
            (false, true, false, suspected),
            (false, true, true, None),
            (true, false, false, reused),
            (true, false, true, reused),
            (true, true, false, reused),
            (true, true, true, reused),
        ] {
            assert_eq!(held_at_arrival(is_variant, repeats, flagged), expected);
        }
    }

    #[test]
    fn the_state_that_matters_most_is_told_of_several() {
        assert_eq!(concern(&[], None), None);
        use State::{Dead, Dropped, Held, Ready, Running, Succeeded, Waiting};
        let order = [Held, Dead, Running, Waiting, Ready, Succeeded, Dropped];
        for (nth, state) in order.iter().enumerate() {
            assert_eq!(concern(&[], Some(*state)), Some(*state));
            for less in &order[nth..] {
                assert_eq!(concern(&[*less, *state], None), Some(*state));
                assert_eq!(concern(&[*less], Some(*state)), Some(*state));
            }
        }
    }
}
