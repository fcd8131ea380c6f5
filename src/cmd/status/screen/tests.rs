#![allow(clippy::unwrap_used)]
use super::*;
use crate::admin::Refusal;
use crate::model::RunnerName;
use crate::store::{MendedPayloads, QuarantinedRow, Stall, Stalled, StoreStatus};
use crate::traffic::{self, CountedSource, Traffic};

/// The digest of the files.
const DIGEST: &str = "digest";

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn at(seconds_ago: i64) -> Timestamp {
    Timestamp(NOW.0 - seconds_ago * 1000)
}

fn traffic() -> Traffic {
    let (name, path) = (name("github"), "/github".to_owned());
    let traffic = Traffic::default();
    let (deadline, secrets, answers) = (None, Vec::new(), false);
    traffic.set_sources(vec![CountedSource { name, path, deadline, secrets, answers }]);
    traffic
}

/// A receiver that serves a source on `/github` with nothing to complain of.
fn well(traffic: &Traffic) -> Status {
    let runner = RunnerStatus {
        name: RunnerName::default(),
        unit: None,
        connected: true,
        incarnation: None,
        running: 0,
        room: Some(256),
        why: None,
    };
    let receiver = ReceiverStatus {
        without_secret: Vec::new(),
        configuration: String::new(),
        version: "1.2.3".to_owned(),
        pid: 7,
        now: NOW,
        started_at: at(3600),
        clock_moved_millis: 3,
        runners: vec![runner],
        traffic: traffic.seen(),
    };
    let disk =
        Disk { free_bytes: Some(9 << 30), floor_bytes: 1, database_bytes: 4096, log_bytes: 0 };
    let store = StoreStatus {
        ready: Vec::new(),
        waiting: Vec::new(),
        running: Vec::new(),
        stuck: Vec::new(),
        blocked: Vec::new(),
        paused: Vec::new(),
        sources: Vec::new(),
        newest_event_at: Some(at(5)),
        last_commit_at: Some(at(5)),
        disk,
        mended: None,
        awaited: Vec::new(),
        nodes: Vec::new(),
        server_warning: None,
        restores: Vec::new(),
    };
    Status { receiver: Some(receiver), refused: None, stalls: Vec::new(), store: Some(store) }
}

fn seen(status: Status) -> Screen {
    let sources = vec![(name("github"), "/github".to_owned())];
    let configuration = Some(DIGEST.to_owned());
    screen(
        status,
        &Site { sources, configuration, store: Path::new("/a b/store.db"), suffix: "" },
        NOW,
    )
}

fn stuck(handler: &str, state: State, jobs: u64) -> StoppedJobs {
    StoppedJobs { handler: name(handler), state, reason: "why".to_owned(), jobs, oldest_at: at(60) }
}

#[test]
fn all_is_well_where_nothing_waits_for_a_person() {
    let traffic = traffic();
    traffic.sources()[0].good(false, at(9), Default::default());
    let screen = seen(well(&traffic));
    assert_eq!((screen.verdict, screen.next.as_str()), (Verdict::Well, "hooklatch events"));
    assert!(screen.why.is_empty() && screen.notes.is_empty(), "{:?}", screen.notes);
    assert_eq!(screen.sources[0].last_good_at, Some(at(9)));
}

#[test]
fn a_stopped_store_is_not_serving_whatever_else_is_there() {
    let mut status = well(&traffic());
    status.receiver = None;
    status.store.as_mut().unwrap().stuck = vec![stuck("a", State::Dead, 2)];
    let screen = seen(status);
    assert_eq!((screen.verdict, screen.next.as_str()), (Verdict::NotServing, "hooklatch serve"));
    assert_eq!(screen.why, ["no receiver runs: the store is stopped", "2 jobs dead"]);
    assert!(screen.notes.is_empty(), "a source is not served by nobody: {:?}", screen.notes);
}

#[test]
fn a_receiver_that_refuses_accepts_is_not_serving() {
    for (space, next) in [(true, "df -h '/a b'"), (false, "hooklatch status")] {
        let mut status = well(&traffic());
        status.refused = Some(Refusal { reason: "broken".to_owned(), space });
        status.store = None;
        let screen = seen(status);
        assert_eq!((screen.verdict, screen.next.as_str()), (Verdict::NotServing, next));
        assert_eq!(screen.why, ["every delivery is answered 503: broken"]);
    }
}

#[test]
fn what_stands_still_comes_first_and_is_said_once() {
    let with = |what, refused: Option<&str>| {
        let mut status = well(&traffic());
        let refusal = |reason: &str| Refusal { reason: reason.to_owned(), space: false };
        status.refused = refused.map(refusal);
        status.stalls = vec![Stall { what, why: "no room".to_owned(), since: at(90) }];
        status.store.as_mut().unwrap().stuck = vec![stuck("a", State::Held, 1)];
        seen(status)
    };
    let screen = with(Stalled::Payloads, None);
    assert_eq!((screen.verdict, &*screen.next), (Verdict::NeedsAPerson, "hooklatch doctor"));
    assert_eq!(screen.why, ["claimed jobs do not begin: no room (for 1m)", "1 job held"]);
    let screen = with(Stalled::Pages, None);
    assert_eq!((screen.verdict, &*screen.next), (Verdict::NeedsAPerson, "hooklatch doctor --deep"));
    let damaged = "a page of the database is damaged; restore a backup: no room (for 1m)";
    assert_eq!(screen.why, [damaged, "1 job held"]);
    let screen = with(Stalled::Commits, Some("no answer"));
    assert_eq!(screen.verdict, Verdict::NotServing);
    assert_eq!(screen.why, ["every delivery is answered 503: no answer", "1 job held"]);
}

#[test]
fn damage_comes_before_what_stands_still() {
    let mut status = well(&traffic());
    let (what, why) = (Stalled::Claims, "no room".to_owned());
    status.stalls = vec![Stall { what, why, since: at(90) }];
    let reason = HeldReason::PayloadDamaged.as_str().to_owned();
    let damaged = StoppedJobs { reason, ..stuck("a", State::Held, 2) };
    status.store.as_mut().unwrap().stuck = vec![stuck("a", State::Held, 1), damaged];
    let screen = seen(status);
    assert_eq!(
        screen.why,
        [
            "the stored payload of 2 jobs is damaged: let it be sent again",
            "no job can run: no room (for 1m)",
            "3 jobs held"
        ]
    );
    assert_eq!(screen.next, "hooklatch held --reason payload-damaged");
}

#[test]
fn what_was_mended_is_said_without_a_need_for_a_person() {
    let mut status = well(&traffic());
    let mended = MendedPayloads { payloads: 2, last_at: at(90) };
    status.store.as_mut().unwrap().mended = Some(mended);
    let screen = seen(status);
    assert_eq!(screen.verdict, Verdict::Well);
    let note =
        "2 damaged payloads were mended by later deliveries, the last one 1m ago: check the disk";
    assert_eq!(screen.notes, [note]);
    assert_eq!(screen.next, "hooklatch doctor --deep");
}

#[test]
fn events_that_the_database_has_lost_are_said() {
    let mut status = well(&traffic());
    let row = |lost| RestoredRow {
        from_store: Default::default(),
        made_at: at(9),
        restored_at: at(9),
        held: 0,
        lost,
    };
    status.store.as_mut().unwrap().restores = vec![row(0), row(17)];
    let screen = seen(status);
    let said = "the database has gone back and lacks 17 accepted events: let them be sent again";
    assert_eq!(screen.notes, [said]);
    assert_eq!(screen.next, "journalctl -u hooklatch -g 'an accepted event is lost'");
}

#[test]
fn held_jobs_come_before_dead_ones_and_the_command_shows_just_them() {
    let with = |stuck: Vec<StoppedJobs>| {
        let mut status = well(&traffic());
        status.store.as_mut().unwrap().stuck = stuck;
        seen(status)
    };
    let one = with(vec![stuck("a", State::Held, 1), stuck("b", State::Dead, 3)]);
    assert_eq!(one.verdict, Verdict::NeedsAPerson);
    assert_eq!(one.why, ["1 job held", "3 jobs dead"]);
    assert_eq!(one.next, "hooklatch held --handler a");
    let two = with(vec![stuck("a", State::Held, 1), stuck("b", State::Held, 1)]);
    assert_eq!(two.next, "hooklatch held");
    let dead = with(vec![stuck("b", State::Dead, 3)]);
    assert_eq!(dead.next, "hooklatch dead --handler b");
}

#[test]
fn commands_that_cannot_run_need_a_person_and_their_runner_is_named() {
    let with = |name: &str, why: Option<&str>| {
        let mut status = well(&traffic());
        let runners = &mut status.receiver.as_mut().unwrap().runners;
        let name: RunnerName = name.parse().unwrap();
        let unit = (!name.is_default()).then(|| name.unit());
        let broken = RunnerStatus {
            connected: false,
            why: why.map(str::to_owned),
            name,
            unit,
            ..runners[0].clone()
        };
        *runners = vec![broken, runners[0].clone()];
        seen(status)
    };
    let broken = with("default", Some("no such user"));
    assert_eq!(broken.verdict, Verdict::NeedsAPerson);
    assert_eq!(broken.why, ["no command can run: no such user"]);
    assert_eq!(broken.next, "hooklatch runner");
    let deploy = with("deploy", Some("no such socket"));
    assert_eq!(deploy.why, ["no command of runner deploy can run: no such socket"]);
    assert_eq!(deploy.next, "systemctl status hooklatch-runner@deploy.service");
    assert_eq!(with("default", None).verdict, Verdict::Well, "it has only just started");
}

#[test]
fn what_strangers_send_is_shown_and_wakes_nobody() {
    let traffic = traffic();
    traffic.sources()[0].good(false, at(9), Default::default());
    let reason = "bad_signature";
    let refusal = traffic::Refusal { answer: "rejected", reason, shown: reason, unproven: true };
    traffic.sources()[0].refused(refusal, at(5));
    traffic.unknown_path("/githb", at(4));
    let screen = seen(well(&traffic));
    assert_eq!(screen.verdict, Verdict::Well);
    assert_eq!(screen.notes, ["source github refused its last delivery (bad_signature)"]);
    assert_eq!(screen.next, "hooklatch events --rejected --source github");
    assert_eq!(screen.unknown_paths[0].nearest.as_deref(), Some("/github"));
}

#[test]
fn a_source_has_the_last_word_of_store_and_receiver() {
    let traffic = traffic();
    let reason = "bad_signature";
    let refusal = traffic::Refusal { answer: "rejected", reason, shown: reason, unproven: true };
    traffic.sources()[0].refused(refusal, at(5));
    let mut status = well(&traffic);
    let failure = QuarantinedRow {
        id: 1,
        source: name("github"),
        received_at: at(5),
        address: None,
        reason: "bad_signature".to_owned(),
        detail: "no secret matches".to_owned(),
        unproven_event_id: None,
        body_bytes: 1,
        body_kept: true,
    };
    let word = |source: &str, failure: Option<QuarantinedRow>| SourceActivity {
        source: name(source),
        event: Some(("e1".parse().unwrap(), at(100))),
        secret_matched_at: Some(at(2)),
        quarantined: failure.iter().count() as u64,
        failure,
    };
    status.store.as_mut().unwrap().sources =
        vec![word("github", Some(failure)), word("gone", None)];
    let screen = seen(status);
    let [github, gone] = &screen.sources[..] else { panic!("{:?}", screen.sources) };
    assert_eq!((github.last_good_at, github.quarantined), (Some(at(2)), 1));
    let reason = &github.last_failure.as_ref().unwrap().reason;
    assert_eq!(reason, "bad_signature: no secret matches");
    assert!(screen.notes.is_empty(), "a good one came later: {:?}", screen.notes);
    assert_eq!((&gone.path, gone.served), (&None, false));
}

#[test]
fn a_source_that_the_receiver_does_not_know_yet_is_named() {
    let screen = seen(well(&Traffic::default()));
    assert_eq!(screen.notes, ["source github is configured and not served: reload"]);
    assert_eq!(screen.verdict, Verdict::Well);
}

#[test]
fn a_pause_and_a_moved_clock_are_worth_a_word() {
    let mut status = well(&traffic());
    status.receiver.as_mut().unwrap().clock_moved_millis = -3_600_000;
    let store = status.store.as_mut().unwrap();
    store.newest_event_at = Some(Timestamp(NOW.0 + 3_600_000));
    store.paused = vec![PausedRow { handler: name("a"), since: at(9) }];
    let screen = seen(status);
    assert_eq!(
        screen.notes,
        [
            "handler a is paused",
            "the clock has moved by -3600 s since the receiver's start",
            "the newest event lies in the future: the clock was set back",
        ]
    );
    assert_eq!((screen.verdict, screen.next.as_str()), (Verdict::Well, "hooklatch resume a"));
}

#[test]
fn a_handler_that_cannot_run_is_the_first_thing_said() {
    let with = |tries: u32| {
        let mut status = well(&traffic());
        let receiver = status.receiver.as_mut().unwrap();
        receiver.traffic.broken = vec![Broken {
            handler: name("work"),
            cause: "program /work: not found".to_owned(),
            tries,
            since: at(40),
            source: name("github"),
            event_id: "d(1)".parse().unwrap(),
            next_try_at: Timestamp(NOW.0 + 32_000),
        }];
        status.store.as_mut().unwrap().stuck = vec![stuck("a", State::Held, 1)];
        seen(status)
    };
    let certain = with(6);
    assert_eq!(certain.why, ["handler work cannot run", "1 job held"]);
    assert_eq!(
        (certain.verdict, certain.next.as_str()),
        (Verdict::NeedsAPerson, "hooklatch explain 'd(1)'")
    );
    let early = with(5);
    assert_eq!(
        (&early.why[..], &early.notes[..]),
        (&["1 job held".to_owned()][..], &["handler work cannot run".to_owned()][..])
    );
    assert_eq!(early.broken.len(), 1);
}

#[test]
fn a_source_that_refuses_everything_since_its_last_good_delivery_is_named() {
    let (traffic, reason) = (traffic(), "bad_signature");
    let source = &traffic.sources()[0];
    let refusal = traffic::Refusal { answer: "rejected", reason, shown: reason, unproven: true };
    source.refused(refusal, at(90));
    source.good(false, at(80), Default::default());
    assert!(seen(well(&traffic)).notes.is_empty(), "a good delivery came after it");
    for ago in [7, 6, 5] {
        source.refused(refusal, at(ago));
    }
    let screen = seen(well(&traffic));
    assert_eq!(screen.notes, ["source github refused its last 3 deliveries (bad_signature)"]);
    assert_eq!((screen.verdict, screen.sources[0].refused_in_a_row), (Verdict::Well, 3));
}

#[test]
fn files_that_differ_from_what_is_in_force_need_a_reload() {
    let traffic = traffic();
    let of = |version: &str, digest: &str| {
        let mut status = well(&traffic);
        let receiver = status.receiver.as_mut().unwrap();
        (receiver.version, receiver.configuration) = (version.to_owned(), digest.to_owned());
        seen(status)
    };
    let own = env!("CARGO_PKG_VERSION");
    let differs = of(own, "another");
    assert!(differs.reload_needed && differs.verdict == Verdict::Well);
    assert_eq!(differs.notes, ["the files differ from the configuration in force"]);
    assert_eq!(differs.next, "hooklatch reload");
    // The digests of two versions cannot be compared, and an earlier receiver has none.
    for (version, digest) in [(own, DIGEST), ("1.2.3", "another"), (own, "")] {
        let same = of(version, digest);
        assert!(!same.reload_needed && same.notes.is_empty(), "{version} {digest}");
    }
}

#[test]
fn nodes_that_lack_a_handler_or_have_it_with_other_keys_are_named() {
    let node = |own: &str, keys: Option<&[(&str, &str)]>| {
        let handler = keys.map(|keys| NodeHandler {
            handler: name("email"),
            sources: vec!["github".to_owned()],
            differs: true,
            keys: keys.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        });
        NodeRow {
            id: Default::default(),
            name: own.to_owned(),
            state: "active".to_owned(),
            machine: String::new(),
            version: String::new(),
            sessions: 1,
            seen_at: NOW,
            silent_millis: 0,
            running: 0,
            connections: 3,
            awaited: false,
            outdated: false,
            lacks: if handler.is_none() { vec![name("email"), name("sms")] } else { Vec::new() },
            handlers: handler.into_iter().collect(),
        }
    };
    let with = |nodes: Vec<NodeRow>| {
        let mut status = well(&traffic());
        status.store.as_mut().unwrap().nodes = nodes;
        seen(status)
    };
    let screen = with(vec![
        node("a", Some(&[("cwd", "/srv"), ("timeout", "30s")])),
        node("b", Some(&[("timeout", "10s")])),
        node("c", Some(&[("timeout", "30s")])),
        node("d", None),
    ]);
    assert_eq!(
        screen.notes,
        [
            "node d lacks handlers email and sms: an event that d accepts gets no job for them",
            "handler email: cwd /srv on a, none on b and c; timeout 30s on a and c, 10s on b",
        ]
    );
    assert_eq!((screen.verdict, screen.next.as_str()), (Verdict::Well, "hooklatch node list"));
    let unpublished = with(vec![node("a", Some(&[])), node("b", Some(&[]))]);
    let said = "handler email: the nodes differ in what they do not publish, such as values of env";
    assert_eq!(unpublished.notes, [said]);
}
