//! The rights of two connections at a table, which would be a race from outside.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::{Digest, JobId};
use crate::runner::message::VERSION;
use crate::runner::tests::facts;
use crate::runner::{CommandSettings, Exited, Status, Usage, incarnation};
use uuid::Uuid;

struct Bench {
    _folder: tempfile::TempDir,
    table: Table,
}

const CONFIGURATION: Digest = Digest([7; 32]);

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, inherited) = Ledger::open(folder.path()).unwrap();
    let settings = CommandSettings {
        argv: vec!["true".to_owned()],
        cwd: None,
        home: "/".into(),
        env: Vec::new(),
        timeout: std::time::Duration::MAX,
        grace: std::time::Duration::MAX,
        output_bytes: (0, 0),
        answer_bytes: None,
        stdin_memory_bytes: 0,
        values: None,
    };
    let name = "fulfil".parse().unwrap();
    let command = Configured { name, digest: CONFIGURATION, settings };
    let incarnation = incarnation::new().unwrap();
    let table = Table::new(RunnerName::default(), incarnation, vec![command], 9, ledger, inherited)
        .unwrap();
    Bench { _folder: folder, table }
}

impl Bench {
    fn admit(&self, peer: &Peer, epoch: u64) -> Result<(), String> {
        let store = Uuid::from_bytes([1; 16]);
        self.table.admit(&Hello { version: VERSION, store, epoch, runner: None }, peer, None)
    }

    fn start(&self, peer: &Peer, job: u8, attempt: u32) -> Result<(), Refusal> {
        let mut facts = facts("");
        (facts.job, facts.attempt) = (JobId::from_bytes([job; 16]), attempt);
        let incarnation = self.table.lock().incarnation;
        let (configuration, body) = (CONFIGURATION, Digest([0; 32]));
        let start = Start { incarnation, configuration, body, facts };
        self.table.start(peer, &start).map(drop).map_err(|(reason, _)| reason)
    }
}

fn key(job: u8, attempt: u32) -> Key {
    Key { job: JobId::from_bytes([job; 16]), attempt }
}

#[test]
fn only_the_admitted_receiver_changes_anything() {
    let bench = bench();
    let ((first, _first), (second, _second)) = (Peer::new(), Peer::new());
    assert_eq!(bench.start(&first, 1, 1), Err(Refusal::StaleEpoch), "before its Hello");
    bench.admit(&first, 1).unwrap();
    assert_eq!(bench.start(&first, 1, 1), Ok(()));
    bench.admit(&second, 2).unwrap();
    // Its Start and its Ack were written while it was admitted, and are read now.
    assert_eq!(bench.start(&first, 2, 1), Err(Refusal::StaleEpoch));
    bench.table.settle(key(1, 1), Ended::Lost(String::new()));
    bench.table.ack(&first, key(1, 1));
    assert!(!bench.table.is_empty());
    assert!(bench.admit(&first, 1).is_err());
    // Its end is not the second one's.
    bench.table.disconnect(&first);
    assert_eq!(bench.start(&second, 2, 1), Ok(()));
    bench.table.ack(&second, key(1, 1));
    bench.table.ack(&second, key(1, 1));
    assert_eq!(bench.table.lock().attempts.len(), 1);
}

#[test]
fn a_job_has_one_attempt_whatever_its_number() {
    let bench = bench();
    let (peer, _queue) = Peer::new();
    bench.admit(&peer, 1).unwrap();
    assert_eq!(bench.start(&peer, 1, 1), Ok(()));
    for attempt in [1, 2] {
        assert_eq!(bench.start(&peer, 1, attempt), Err(Refusal::Busy));
    }
    // Settled and not acknowledged, it may still be judged.
    bench.table.settle(key(1, 1), Ended::Lost(String::new()));
    assert_eq!(bench.start(&peer, 1, 2), Err(Refusal::Busy));
    bench.table.ack(&peer, key(1, 1));
    assert_eq!(bench.start(&peer, 1, 2), Ok(()));
    // Nothing is forgotten while it runs.
    bench.table.ack(&peer, key(1, 2));
    assert_eq!(bench.table.lock().attempts.len(), 1);
}

#[test]
fn a_receiver_that_does_not_read_is_cut_and_nothing_is_lost() {
    let bench = bench();
    let (peer, queue) = Peer::new();
    bench.admit(&peer, 1).unwrap();
    assert_eq!(bench.start(&peer, 1, 1), Ok(()));
    while bench.table.lock().admitted.is_some() {
        bench.table.set_draining(false);
    }
    drop(queue);
    bench.table.settle(key(1, 1), exited());
    let (next, mut queue) = Peer::new();
    bench.admit(&next, 1).unwrap();
    let first = queue.try_recv().unwrap();
    let Outgoing::Message(ToReceiver::HelloOk(list)) = first else { panic!("{first:?}") };
    assert!(list.attempts[0].ended);
    let second = queue.try_recv().unwrap();
    assert!(matches!(second, Outgoing::End(end) if end == key(1, 1)), "{second:?}");
}

fn exited() -> Ended {
    Ended::Exited(Exited::without_outputs(Status::Code(0), None, Usage::default()))
}

#[test]
fn an_end_is_sent_until_its_ack_and_not_after_it() {
    let bench = bench();
    let (peer, _queue) = Peer::new();
    bench.admit(&peer, 1).unwrap();
    assert_eq!(bench.start(&peer, 1, 1), Ok(()));
    assert!(bench.table.end(key(1, 1)).is_none(), "it runs");
    bench.table.settle(key(1, 1), exited());
    for _ in 0..2 {
        let (message, _) = bench.table.end(key(1, 1)).unwrap();
        assert!(matches!(message, ToReceiver::Ended { key: of, .. } if of == key(1, 1)));
    }
    bench.table.ack(&peer, key(1, 1));
    assert!(bench.table.end(key(1, 1)).is_none());
}
