//! Kills the receiver, the runner, or one after the other at every fail point, and checks the promises
//! against the ledger that the handlers write.
//!
//! Where an outcome may be lost, only one event is in progress, so that the expected result is exact. A release build
//! has no fail points, and so it does not have these tests.

mod answers;
mod case;
mod conditions;
mod deaths;
mod keeping;
mod keys;
mod lists;
mod triggers;
mod values;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;

use hooklatch::crash::PANIC;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::support::{runner, stripe_event, stripe_header};
use case::{Case, delivered, delivered_with, must_die};
use deaths::Left::Known;
use deaths::{
    BETWEEN_TWO_EVENTS, Death, OF_A_REQUEST_WITH_A_KEY, OF_ITS_RUNNER, OF_THE_NEXT_RECEIVER,
    OF_THE_NEXT_RUNNER, OF_THE_RECEIVER, OF_THE_RUNNER,
};

/// Runs a test for each death, three at a time because a case mostly waits. Reports all that fail.
fn each(deaths: &[Death], live_through: impl Fn(Death) + Sync) {
    let (left, failed) = (Mutex::new(deaths.iter()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().next().copied();
    let work = || {
        while let Some(death) = next() {
            let name = format!("{} {}", death.0, death.1);
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name(name.clone());
                let run = thread.spawn_scoped(scope, || live_through(death)).unwrap();
                if run.join().is_err() {
                    failed.lock().unwrap().push(name);
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}

/// The receiver dies with several events in progress; the next receiver must finish all of them.
fn receiver_dies(death: Death) {
    let case = Case::new(death);
    let ids = ["evt_1_20", "evt_2_0", "evt_3_50", "evt_4_0", "evt_5_10"];
    let first = case.start();
    let to = &first;
    let unanswered: Vec<&str> = std::thread::scope(|scope| {
        let deliver = |id| scope.spawn(move || (!delivered(to, id)).then_some(id));
        let deliveries = ids.map(deliver);
        deliveries.into_iter().filter_map(|delivery| delivery.join().unwrap()).collect()
    });
    must_die(first);
    let second = case.start();
    for id in unanswered {
        assert!(delivered(&second, id));
    }
    case.must_hold(second, &ids.map(|id| (id, Known)));
}

/// The receiver dies with one event in progress, and then its runner.
fn receiver_and_runner_die(death: Death) {
    let case = Case::new(death);
    let first = case.start();
    let answered = delivered(&first, "evt_1_20");
    must_die(first);
    case.kill_runner();
    let second = case.start();
    assert!(answered || delivered(&second, "evt_1_20"));
    assert!(delivered(&second, "evt_2_0"));
    case.must_hold(second, &[("evt_1_20", death.2), ("evt_2_0", Known)]);
}

/// The receiver dies between two events of a handler that runs one at a time. With `then_runner` its
/// runner dies after it.
fn receiver_dies_between(death: Death, then_runner: bool) {
    let case = Case::one_by_one(death);
    let ids = ["evt_1_300", "evt_2_0", "evt_3_0"];
    let first = case.start();
    for id in ids {
        assert!(delivered(&first, id));
    }
    must_die(first);
    if then_runner {
        case.kill_runner();
    }
    let second = case.start();
    case.must_hold(second, &ids.map(|id| (id, death.2)));
}

/// The receiver dies at its start, while a command of an earlier receiver runs. With `then_runner` its
/// runner dies after it.
fn next_receiver_dies(death: Death, then_runner: bool) {
    let case = Case::new(death);
    // A command that must be cut off runs longer than any test.
    let running = if then_runner { "evt_0_100000" } else { "evt_0_400" };
    case.leave_running(running);
    match case.try_start() {
        Some(second) => must_die(second),
        None => assert!(case.token.exists(), "it does not start"),
    }
    if then_runner {
        case.kill_runner();
    }
    let third = case.start();
    assert!(delivered(&third, "evt_1_0"));
    let left = if then_runner { death.2 } else { Known };
    case.must_hold(third, &[(running, left), ("evt_1_0", Known)]);
}

/// The runner dies with an event in progress. With `then_receiver` the receiver dies after it.
fn runner_dies(death: Death, then_receiver: bool) {
    let case = Case::new(death);
    let receiver = case.start();
    assert!(delivered(&receiver, "evt_1_100"));
    let receiver = case.runner_must_die(receiver, then_receiver);
    assert!(delivered(&receiver, "evt_2_0"));
    case.must_hold(receiver, &[("evt_1_100", death.2), ("evt_2_0", Known)]);
}

/// Like [`runner_dies`], for a runner that starts after another one died during a command.
fn next_runner_dies(death: Death, then_receiver: bool) {
    let case = Case::new(death);
    case.leave_running("evt_0_100000");
    case.kill_runner();
    let receiver = case.start();
    let receiver = case.runner_must_die(receiver, then_receiver);
    assert!(delivered(&receiver, "evt_1_0"));
    case.must_hold(receiver, &[("evt_0_100000", death.2), ("evt_1_0", Known)]);
}

#[test]
fn after_any_receiver_death_each_event_succeeds_exactly_once() {
    each(OF_THE_RECEIVER, receiver_dies);
    each(OF_THE_NEXT_RECEIVER, |death| next_receiver_dies(death, false));
}

#[test]
fn after_receiver_and_runner_deaths_only_cut_off_attempts_are_unknown() {
    each(OF_THE_RECEIVER, receiver_and_runner_die);
    each(OF_THE_NEXT_RECEIVER, |death| next_receiver_dies(death, true));
}

#[test]
fn after_a_receiver_death_between_two_events_each_runs_once() {
    each(BETWEEN_TWO_EVENTS, |death| receiver_dies_between(death, false));
    each(BETWEEN_TWO_EVENTS, |death| receiver_dies_between(death, true));
}

#[test]
fn after_any_runner_death_only_unrecorded_outcomes_are_unknown() {
    each(OF_THE_RUNNER, |death| runner_dies(death, false));
    each(OF_THE_NEXT_RUNNER, |death| next_runner_dies(death, false));
}

#[test]
fn a_receiver_death_after_a_runner_death_adds_no_unknown_outcome() {
    each(OF_THE_RUNNER, |death| runner_dies(death, true));
    each(OF_THE_NEXT_RUNNER, |death| next_runner_dies(death, true));
}

#[test]
fn after_any_death_a_caller_gets_the_one_answer_or_an_unknown_outcome() {
    each(OF_A_REQUEST_WITH_A_KEY, |death| answers::receiver_dies(death, false));
    each(OF_A_REQUEST_WITH_A_KEY, |death| answers::receiver_dies(death, true));
    each(OF_ITS_RUNNER, answers::runner_dies);
}

/// The padding of a body: small enough for the socket buffer of a runner that does not read, large enough
/// that computing its digest gives the next receiver a chance to be admitted first.
const PADDING_BYTES: usize = 64 * 1024;

#[test]
fn a_panic_in_one_request_does_not_affect_the_others() {
    // Enough connections for every worker to have some: a connection stays on one worker.
    const OTHERS: usize = 16;
    let case = Case::new((PANIC, OTHERS + 1, Known));
    let receiver = case.start();
    let begun = |number: usize| {
        let body = stripe_event(&format!("evt_{number}_0"), "invoice.paid", "");
        let head = format!(
            "POST /stripe HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n\
             Content-Length: {}\r\n{}\r\n",
            body.len(),
            stripe_header(&body, 0)
        );
        let mut stream = TcpStream::connect(receiver.address).unwrap();
        stream.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        (stream, body)
    };
    let mut others: Vec<_> = (0..OTHERS).map(begun).collect();
    let read = |stream: &mut TcpStream| {
        let mut answer = String::new();
        let _reset = stream.take(12).read_to_string(&mut answer);
        answer
    };
    for (stream, _) in &mut others {
        assert_eq!(read(stream), "HTTP/1.1 100");
    }
    let (mut panicking, _) = begun(OTHERS);
    let mut answer = String::new();
    let _reset = panicking.read_to_string(&mut answer);
    assert_eq!(answer, "", "its connection is closed");
    assert!(case.token.exists());
    receiver.log_when(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("a panic")
            && line["location"].as_str().is_some_and(|at| at.contains("crash.rs"))
    });
    for (stream, body) in &mut others {
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("HTTP/1.1 200 OK"), "{answer}");
    }
    assert!(delivered(&receiver, "evt_99_0"), "the receiver must continue to serve");
    case.site.all_jobs(OTHERS + 1, "succeeded");
    assert_eq!(receiver.stop(), Some(0));
}

/// The receiver dies after it sent a Start, and the stopped runner reads it only when the next receiver is
/// connected. The test cannot control which connection the runner reads first, so it runs several times.
#[test]
fn a_dead_receivers_start_does_not_run_in_addition_to_its_successors() {
    each(&[("receiver.sent.Start", 2, Known); 6], |death| {
        let case = Case::new(death);
        let first = case.start();
        assert!(delivered(&first, "evt_0_0"));
        case.site.all_jobs(1, "succeeded");
        let runner = runner::runner(&case.site.store()).unwrap();
        let runner = pidfd_open(runner, PidfdFlags::empty()).unwrap();
        pidfd_send_signal(&runner, Signal::STOP).unwrap();
        let answered = delivered_with(&first, "evt_1_100", PADDING_BYTES);
        must_die(first);
        let second = case.start();
        case.until(|| has_pending_connection(&runner::socket(&case.site.store())));
        assert!(answered || delivered_with(&second, "evt_1_100", PADDING_BYTES));
        assert!(delivered(&second, "evt_2_0"));
        pidfd_send_signal(&runner, Signal::CONT).unwrap();
        case.must_hold(second, &[("evt_0_0", Known), ("evt_1_100", Known), ("evt_2_0", Known)]);
    });
}

/// Whether a connection to this socket is not accepted yet (proc_pid_net(5): its state is 2).
fn has_pending_connection(socket: &Path) -> bool {
    let text = fs::read_to_string("/proc/net/unix").unwrap();
    let mut sockets = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    sockets.any(|fields| fields.last() == socket.to_str().as_ref() && fields[5] == "02")
}
