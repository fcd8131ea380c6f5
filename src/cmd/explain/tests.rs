//! The sentences of `explain`, for events and jobs in every state.

#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use super::explanation::Fact;
use super::*;
use crate::config::{self, Config};
use crate::model::{Broken, Outcome, State};
use crate::store::{AttemptRow, EventDetail, EventRow, JobDetail, JobRow, Record, SameBodyEvent};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const JOB: &str = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b";

const CONFIG: &str = r#"
[sources.github]
provider = "github"
secrets = ["env:X"]
[sources.stripe]
provider = "stripe"
secrets = ["env:X"]
[handlers.ci]
source = "github"
events = ["issues", "push"]
command = ["/bin/true"]
[handlers.tell]
source = "github"
events = ["star.*"]
forward = "http://127.0.0.1:1/"
[handlers.pay]
source = "stripe"
events = ["*"]
command = ["/bin/true"]
"#;

fn config() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hooklatch.toml");
    std::fs::write(&path, CONFIG).unwrap();
    config::load(&path).map_err(|problems| format!("{problems:?}")).unwrap()
}

fn at(seconds_ago: i64) -> Timestamp {
    Timestamp(NOW.0 - seconds_ago * 1000)
}

/// A time as seconds relative to now, so that the expected sentences are readable.
fn time(at: Timestamp) -> String {
    format!("T{:+}", (at.0 - NOW.0) / 1000)
}

fn event(source: &str, event_type: &str) -> EventDetail {
    EventDetail {
        event: EventRow {
            source: source.parse().unwrap(),
            event_id: "d-1".parse().unwrap(),
            variant: 0,
            event_type: event_type.to_owned(),
            raw_type: None,
            received_at: at(100),
            body_bytes: 2,
            duplicates: 0,
            last_duplicate_at: None,
            conflicts: 0,
            flagged: false,
            payload_kept: true,
            jobs: BTreeMap::new(),
            handlers: Vec::new(),
        },
        digest: String::new(),
        headers: Vec::new(),
        body: None,
        damaged: false,
        jobs: Vec::new(),
        twins: Vec::new(),
        restores: Vec::new(),
        key: None,
    }
}

fn job(handler: &str, state: State, reason: Option<&str>) -> JobDetail {
    JobDetail {
        job: JobRow {
            job: JOB.parse().unwrap(),
            source: "github".parse().unwrap(),
            event_id: "d-1".parse().unwrap(),
            event_type: "push".to_owned(),
            handler: handler.parse().unwrap(),
            state,
            reason: reason.map(str::to_owned),
            attempt: 1,
            replays: 0,
            created_at: at(100),
            due_at: None,
            settled_at: None,
            paused: false,
            broken: None,
            last_detail: None,
            detail: None,
            group: None,
            behind: false,
            superseded_by: None,
            stopped_at: None,
        },
        former_keys: Vec::new(),
        attempts: vec![AttemptRow {
            number: 1,
            started_at: at(99),
            finished_at: Some(at(98)),
            outcome: Some(Outcome::Failed),
            record: Record { detail: "exit status 3".to_owned(), ..Record::default() },
            late_end: None,
        }],
    }
}

fn explain(detail: &EventDetail) -> Explanation {
    explain_with(detail, "")
}

fn explain_with(detail: &EventDetail, suffix: &str) -> Explanation {
    let config = config();
    Explainer { config: &config, nodes: &[], now: NOW, time, suffix }.explain(detail)
}

/// The next step for the only job of an event, and its command.
fn next_of(job: JobDetail) -> (String, Option<String>) {
    let mut detail = event("github", "push");
    detail.jobs.push(job);
    let next = explain(&detail).handlers.remove(0).job.unwrap().next;
    (next.what, next.command)
}

#[test]
fn each_command_for_a_held_job_names_the_configuration() {
    let mut detail = event("github", "push");
    detail.jobs.push(job("ci", State::Held, Some("unknown outcome")));
    let suffix = " --config /x.toml";
    let next = explain_with(&detail, suffix).handlers.remove(0).job.unwrap().next;
    for way in ["resolve {} --succeeded", "replay --job {}", "resolve {} --failed"] {
        let way = format!("`hooklatch {}{suffix}`", way.replace("{}", JOB));
        assert!(next.what.contains(&way), "{}", next.what);
    }
    assert!(next.command.unwrap().ends_with(suffix));
}

#[test]
fn an_accepted_event_states_why_and_how_often_it_was_repeated() {
    let mut detail = event("stripe", "invoice.paid");
    assert_eq!(
        explain(&detail).arrival,
        ["accepted T-100: its signature was good, and its id was new to source stripe"]
    );
    detail.event.duplicates = 3;
    detail.event.last_duplicate_at = Some(at(7));
    detail.event.conflicts = 1;
    detail.event.payload_kept = false;
    assert_eq!(
        explain(&detail).arrival[1..],
        [
            "delivered again 3 times, the last T-7: answered as a duplicate of the delivery of T-100, and nothing was run for it",
            "1 duplicate had another body under the same signed id: kept as evidence, not run",
            "its payload has been deleted by retention: it cannot run again",
        ]
    );
}

#[test]
fn jobs_that_retention_removed_cannot_be_replayed() {
    let mut detail = event("github", "push");
    detail.event.payload_kept = false;
    detail.event.jobs = [(State::Succeeded, 1)].into();
    let all = explain(&detail);
    assert_eq!(
        all.arrival[1..],
        [
            "its payload has been deleted by retention: it cannot run again",
            "its jobs were removed with the payload, as they had ended: succeeded",
        ]
    );
    let next = all.handlers[0].next.as_ref().unwrap();
    assert_eq!(next.what, "no job any more: where it had one, that has ended, and was removed");
    assert_eq!(next.command, None);
    // The same if no handler of the current configuration wants the event.
    detail.event.event_type = "ping".to_owned();
    assert!(explain(&detail).next.is_none());
}

#[test]
fn the_replay_guard_states_its_decision_and_the_reason() {
    assert_eq!(
        explain(&event("stripe", "invoice.paid")).replay_guard,
        "not needed: the signature covers the event id"
    );
    let mut detail = event("github", "push");
    assert_eq!(
        explain(&detail).replay_guard,
        "passed: no earlier event of the source has the same signed body"
    );
    let twin = |seconds_ago| SameBodyEvent {
        event_id: "d-0".parse().unwrap(),
        event_type: "push".to_owned(),
        received_at: at(seconds_ago),
    };
    detail.twins = vec![twin(50)];
    assert!(explain(&detail).replay_guard.starts_with("passed"), "the other event came later");
    detail.twins = vec![twin(200)];
    detail.jobs = vec![job("ci", State::Held, Some("suspected replay"))];
    assert_eq!(
        explain(&detail).replay_guard,
        "held: the same signed body came first as event d-0 of type push, T-200, and the id is not signed, so this may be a replay"
    );
    detail.jobs.clear();
    assert!(explain(&detail).replay_guard.ends_with("there was no job to hold"));
    detail.event.flagged = true;
    assert!(explain(&detail).replay_guard.starts_with("let it run, marked: the same signed body"));
    detail.event.flagged = false;
    detail.event.variant = 1;
    assert_eq!(explain(&detail).replay_guard, "not asked: a reused id holds every job by itself");
    assert!(explain(&event("gone", "push")).replay_guard.starts_with("not known"));
}

#[test]
fn each_handler_of_the_source_states_why_it_matched_or_not() {
    let mut detail = event("github", "issues.opened");
    detail.jobs.push(job("ci", State::Succeeded, None));
    let all = explain(&detail);
    let [ci, tell] = &all.handlers[..] else { panic!("{:?}", all.handlers) };
    assert_eq!(ci.why, "its events include \"issues\", which matches issues.opened");
    assert!(ci.wants && ci.job.is_some() && ci.next.is_none());
    assert_eq!(tell.why, "none of its events matches issues.opened: \"star.*\"");
    assert!(!tell.wants && tell.job.is_none() && tell.next.is_none());
    assert_eq!(
        ci.job.as_ref().unwrap().attempts,
        ["attempt 1, T-99: failed after 1.0 s: exit status 3"]
    );
}

#[test]
fn a_handler_added_later_is_distinguished_from_a_removed_one() {
    let mut detail = event("github", "push");
    detail.jobs.push(job("old", State::Held, Some("handler gone")));
    let all = explain(&detail);
    let ci = all.handlers[0].next.as_ref().unwrap();
    let wanted = "hooklatch replay d-1 --source github --handler ci";
    assert_eq!(ci.command.as_deref(), Some(wanted));
    assert_eq!(all.handlers[2].why, "the configuration no longer has it");
    assert!(all.next.is_none());
}

#[test]
fn an_unwanted_event_suggests_the_command_that_makes_a_job() {
    let mut detail = event("github", "fork");
    detail.event.event_id = "$(reboot)".parse().unwrap();
    let next = explain(&detail).next.unwrap();
    assert!(next.what.starts_with("nothing: no handler wants it"));
    let command = next.command.unwrap();
    assert_eq!(command, "hooklatch replay '$(reboot)' --source github --handler HANDLER");
}

#[test]
fn every_job_state_states_the_next_step() {
    let begins = |job: JobDetail, what: &str, command: Option<&str>| {
        let (said, typed) = next_of(job);
        assert!(said.starts_with(what), "{said}");
        assert_eq!(typed, command.map(|command| format!("hooklatch {command}")), "{said}");
    };
    let replay = format!("replay --job {JOB}");
    let look = "show d-1 --source github";
    begins(job("ci", State::Ready, None), "runs as soon as", None);
    let follow = "show d-1 --source github --follow";
    begins(job("ci", State::Running, None), "attempt 1 runs", Some(follow));
    begins(job("ci", State::Succeeded, None), "nothing: it is done", None);
    begins(job("ci", State::Dropped, Some("superseded")), "nothing: it was taken out", None);
    for (reason, advice) in [
        ("unknown outcome", "check whether it did its work"),
        ("suspected replay", "the same signed body came before"),
        ("id reused", "another body came under this id before"),
        ("cancelled", "its command was cancelled while it ran"),
        ("restored", "it may have run after the state that was put back"),
        ("handler gone", "its handler is not configured any more"),
    ] {
        let what = format!("nothing until you decide: {advice}");
        begins(job("ci", State::Held, Some(reason)), &what, Some(look));
    }
    let (said, _) = next_of(job("ci", State::Held, Some("unknown outcome")));
    for way in ["resolve {} --succeeded", "replay --job {}", "resolve {} --failed"] {
        let way = format!("`hooklatch {}`", way.replace("{}", JOB));
        assert!(said.contains(&way), "{said}");
    }
    begins(job("ci", State::Dead, Some("rejected")), "nothing by itself", Some(&replay));

    let mut waiting = job("ci", State::Waiting, None);
    waiting.job.due_at = Some(Timestamp(NOW.0 + 40_000));
    begins(waiting.clone(), "attempt 2, of 5 that count, in 40 s (T+40)", None);
    waiting.job.due_at = Some(at(1));
    begins(waiting.clone(), "attempt 2, of 5 that count, now that it is due", None);
    waiting.job.paused = true;
    begins(waiting, "waits until its handler is resumed", Some("resume ci"));
}

#[test]
fn without_its_payload_a_job_can_only_be_dropped() {
    let mut detail = event("github", "push");
    detail.event.payload_kept = false;
    detail.jobs.push(job("ci", State::Dead, Some("payload gone")));
    let next = explain(&detail).handlers.remove(0).job.unwrap().next;
    assert_eq!(next.command, Some(format!("hooklatch drop {JOB}")));
}

#[test]
fn a_job_of_a_broken_handler_states_the_cause_and_the_next_try() {
    let mut detail = event("github", "push");
    let mut broken = job("ci", State::Ready, None);
    broken.job.broken = Some(Broken {
        handler: "ci".parse().unwrap(),
        cause: "exit status 127: command not found".to_owned(),
        tries: 7,
        since: at(60),
        source: "github".parse().unwrap(),
        event_id: "d-1".parse().unwrap(),
        next_try_at: Timestamp(NOW.0 + 32_000),
    });
    detail.jobs = vec![broken];
    let handlers = explain(&detail).handlers;
    let job = handlers.iter().find_map(|handler| handler.job.as_ref()).unwrap();
    let wanted = "tries again in 32 s: exit status 127: command not found";
    assert_eq!((job.next.what.as_str(), job.next.at), (wanted, Some(Timestamp(NOW.0 + 32_000))));
}

#[test]
fn each_part_of_an_explanation_has_its_heading() {
    let mut detail = event("github", "push");
    detail.event.duplicates = 1;
    detail.event.last_duplicate_at = Some(at(7));
    detail.jobs.push(job("ci", State::Held, Some("unknown outcome")));
    let shown = paragraphs(&explain(&detail));
    let begins = |facts: &[Fact]| -> Vec<String> {
        facts.iter().map(|(about, text)| format!("{about}|{text:.20}")).collect()
    };
    let shown: Vec<_> = shown.iter().map(|facts| begins(facts)).collect();
    let job = format!("job|{JOB:.20}");
    let [about, ci, tell] = &shown[..] else { panic!("{shown:?}") };
    let arrival =
        ["event|d-1 of type push, so", "arrival|accepted T-100: its ", "|delivered again 1 ti"];
    assert_eq!(about[..3], arrival);
    assert_eq!(about[3..], ["|replay guard: passed"]);
    let attempt = "|attempt 1, T-99: fai";
    let next = ["next|nothing until you de", "|hooklatch show d-1 -"];
    assert_eq!(ci[..], ["handler|ci wants it: its eve", &job, attempt, next[0], next[1]]);
    assert_eq!(tell[..], ["handler|tell does not want i"]);
}
