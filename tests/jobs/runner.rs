//! The runner as a separate process: real processes, a real socket, the receiver's own client.

mod fixture;

use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hooklatch::model::Digest;
use hooklatch::runner::launch::Launch;
use hooklatch::runner::message::{Hello, Refusal, Start, Stream, ToReceiver, ToRunner, VERSION};
use hooklatch::runner::{AskedBy, Captured, Ended, Exited, folder};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use uuid::Uuid;

use crate::support::damage::damages;
use fixture::*;

#[tokio::test]
async fn an_acknowledged_attempt_frees_its_slot() {
    let (site, _runner, mut receiver) = connected("runner_attempts_count = 3").await;
    assert_eq!((receiver.list.free, receiver.list.draining), (3, false));
    assert_eq!(receiver.list.attempts, []);
    let body: Vec<u8> = (0..25_u32 << 20).map(|i| (i * 31 % 251) as u8).collect();
    for (job, body) in [(1, b"body".as_slice()), (2, b""), (3, &body)] {
        receiver.begin("say", job, body).await;
        let printed = [format!("{}  -\n", digest(body)), "oops\n".to_owned()];
        assert_eq!(receiver.printed(job).await, printed);
    }
    receiver.start("say", 4, b"").await;
    receiver.refused(4, Refusal::NoResources).await;
    // The freed slot takes the start that follows the acknowledgement.
    receiver.say.ack(&[key(1)]).await.unwrap();
    receiver.run("say", 5, b"").await;
    for job in [2, 3, 5] {
        receiver.ack(job).await;
    }
    let list = site.receiver(1).await.list;
    assert_eq!((list.free, list.attempts), (3, Vec::new()));
    assert_eq!(site.runs(), 4);
}

#[tokio::test]
async fn a_report_carries_outputs_up_to_their_limit_until_it_is_acknowledged() {
    let (site, _runner, mut receiver) =
        connected("output_head_bytes = \"1 MiB\"\noutput_tail_bytes = \"3 B\"").await;
    const MIB: usize = 1 << 20;
    for (job, [out, err]) in [(1, [0, 0]), (2, [1, 4096]), (3, [4097, 0]), (4, [MIB, MIB])] {
        receiver.begin("chats", job, format!("{out} {err}\n").as_bytes()).await;
        let printed = receiver.printed(job).await;
        assert_eq!(printed.map(|printed| printed.len()), [out, err]);
    }
    receiver.begin("chats", 5, format!("{} 0\n", 2 * MIB).as_bytes()).await;
    let (_, [stdout, _]) = receiver.ended_printing(5).await;
    let kept = (stdout.head.len(), stdout.tail.len(), stdout.total);
    assert_eq!(kept, (MIB, 3, Some(2 * MIB as u64)));
    // After the list, the next receiver gets every report that was not acknowledged.
    for job in [2, 3] {
        receiver.ack(job).await;
    }
    drop(receiver);
    let mut receiver = site.receiver(2).await;
    assert_eq!(receiver.listed(), [1, 4, 5].map(|job| (key(job), true)));
    assert_eq!(receiver.printed(1).await.map(|printed| printed.len()), [0, 0]);
    assert_eq!(receiver.printed(4).await.map(|printed| printed.len()), [MIB, MIB]);
    assert_eq!(receiver.ended_printing(5).await.1[0].total, Some(2 * MIB as u64));
}

#[tokio::test]
async fn an_unread_report_is_in_memory_once() {
    const ENDS: u8 = 100;
    let (site, runner, mut receiver) = connected("output_head_bytes = \"200 KB\"").await;
    receiver.run("chats", 0, b"200000 0\n").await;
    let before = runner.anonymous_kib();
    for job in 1..=ENDS {
        receiver.start("chats", job, b"200000 0\n").await;
    }
    let have_ended = async {
        while site.ledger().matches("\"exit\"").count() <= usize::from(ENDS) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patient(have_ended).await;
    let grown = runner.anonymous_kib() - before;
    // The runner keeps 20 MB until they are acknowledged.
    assert!((19_000..30_000).contains(&grown), "{grown} KiB");
}

#[tokio::test]
async fn a_command_outlives_its_receiver_and_reports_to_the_next() {
    let (site, _runner, mut first) = connected("").await;
    first.begin("wait", 1, b"").await;
    drop(first);
    let mut second = site.receiver(2).await;
    assert_eq!(second.listed(), [(key(1), false)]);
    site.release().await;
    second.exits(1, 7).await;
    drop(second);
    // Not acknowledged, so reported again.
    let mut third = site.receiver(3).await;
    assert_eq!(third.listed(), [(key(1), true)]);
    let (end, [stdout, _]) = third.ended_printing(1).await;
    assert_eq!((end, text(stdout)), (exited(7), "went\n".to_owned()));
    third.ack(1).await;
    assert_eq!(site.receiver(3).await.list.attempts, []);
}

#[tokio::test]
async fn a_command_times_out_while_no_receiver_is_connected() {
    let (site, _runner, mut first) = connected("").await;
    first.begin("slow", 1, b"").await;
    drop(first);
    let mut second = site.receiver(2).await;
    second.reports(1, signalled(15, AskedBy::TimeOut)).await;
}

#[tokio::test]
async fn a_cancelled_command_gets_sigterm() {
    let (_site, _runner, mut receiver) = connected("").await;
    receiver.begin("wait", 1, b"").await;
    receiver.say.send(ToRunner::Kill { key: key(1) }).await.unwrap();
    receiver.reports(1, signalled(15, AskedBy::Cancelled)).await;
}

#[tokio::test]
async fn a_report_counts_memory_and_cpu_of_the_command_and_its_children() {
    let (_site, _runner, mut receiver) = connected("").await;
    let mut took = async |handler: &str, job| {
        receiver.begin(handler, job, b"").await;
        match receiver.hear().await.0 {
            ToReceiver::Ended { end, .. } => match *end {
                Ended::Exited(Exited { usage, .. }) => usage,
                lost => panic!("{lost:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let (little, much) = (took("say", 1).await, took("large", 2).await);
    // The kernel counts what the runner's process had when it forked.
    assert!((100_000..80_000_000).contains(&little.memory_bytes), "{little:?}");
    assert!(much.memory_bytes > 100_000_000, "{much:?}");
    assert!(much.cpu_millis > little.cpu_millis, "{much:?} {little:?}");
}

#[tokio::test]
async fn a_receiver_reads_the_output_of_a_running_command() {
    let (site, _runner, mut receiver) =
        connected("output_head_bytes = \"3 B\"\noutput_tail_bytes = \"2 B\"").await;
    receiver.begin("prints", 1, b"").await;
    let printed = |head: &[u8], tail: &[u8], total| {
        Some(Captured { head: head.into(), tail: tail.into(), total: Some(total) })
    };
    assert_eq!(receiver.peek(1, Stream::Stderr).await, printed(b"", b"", 0));
    receiver.until_printed(1, 8).await;
    assert_eq!(receiver.peek(1, Stream::Stdout).await, printed(b"abc", b"gh", 8));
    assert_eq!(receiver.peek(2, Stream::Stdout).await, None);
    site.release().await;
    receiver.ended(1).await;
    assert_eq!(receiver.peek(1, Stream::Stdout).await, printed(b"abc", b"12", 10));
}

#[tokio::test]
async fn a_stale_receiver_and_another_store_are_denied() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let mut young = site.receiver(5).await;
    let denied = site.denied(&hello(STORE, 4)).await;
    assert!(denied.starts_with(&format!("epoch 4 of store {STORE}")), "{denied}");
    young.begin("wait", 1, b"").await;
    let other_store = hello(Uuid::from_bytes([2; 16]), 9);
    let denied = site.denied(&other_store).await;
    assert!(denied.starts_with("this runner has 1 attempts of store"), "{denied}");
    let older = Hello { version: VERSION - 1, ..other_store.clone() };
    let denied = site.denied(&older).await;
    let spoken = format!("the receiver speaks version {}", VERSION - 1);
    assert!(denied.starts_with(&spoken), "{denied}");
    // The connected receiver is not disturbed.
    site.release().await;
    young.ended(1).await;
    young.ack(1).await;
    // The runner holds nothing of the first store any more, so it accepts another.
    site.connect_as(&other_store).await.unwrap();
}

#[tokio::test]
async fn an_unread_start_of_a_dead_receiver_is_listed_or_never_runs() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    // The runner is stopped while one receiver writes and dies and the next one connects.
    let first = site.receiver(1).await;
    runner.signal(Signal::STOP);
    first.start("say", 1, &[b'x'; 1000]).await;
    drop(first);
    let second = tokio::spawn(async move { (site.receiver(2).await, site) });
    tokio::task::yield_now().await;
    runner.signal(Signal::CONT);
    let (mut second, site) = patient(second).await.unwrap();
    // Either the start was read before the second receiver connected, and then the list has it, or it
    // was dropped.
    if second.listed().is_empty() {
        second.run("say", 1, b"").await;
        assert_eq!(site.runs(), 1);
    }
}

#[tokio::test]
async fn a_replaced_connection_starts_nothing() {
    let (site, _runner, mut first) = connected("").await;
    // The same epoch: a receiver that reconnects.
    let mut second = site.receiver(1).await;
    assert_eq!(second.list.attempts, []);
    let _cut = first.say.start(first.start_of("say", 1, b""), b"").await;
    first.until_closed().await;
    second.run("say", 1, b"").await;
    second.ack(1).await;
    assert_eq!(site.runs(), 1);
}

#[tokio::test]
async fn a_refused_start_never_runs() {
    let (site, _runner, mut receiver) = connected("").await;
    receiver.start("nothing", 1, b"").await;
    receiver.refused(1, Refusal::UnknownHandler).await;
    let start = receiver.start_of("say", 1, b"");
    let other = Start { configuration: Digest([1; 32]), ..start.clone() };
    receiver.say.start(other, b"").await.unwrap();
    receiver.refused(1, Refusal::OtherDigest).await;
    let other = Start {
        incarnation: "00000000-0000-0000-0000-000000000000/00000000000000000000000000000000"
            .parse()
            .unwrap(),
        ..start.clone()
    };
    receiver.say.start(other, b"").await.unwrap();
    receiver.refused(1, Refusal::OtherIncarnation).await;
    receiver.say.start(start, b"another body").await.unwrap();
    receiver.refused(1, Refusal::BadBody).await;
    receiver.start("broken", 1, b"").await;
    receiver.refused(1, Refusal::CannotStart).await;
    assert_eq!(site.runs(), 0);
    // A refused start takes no place in the table: the job can still be started.
    receiver.begin("wait", 1, b"").await;
    receiver.start("wait", 1, b"").await;
    receiver.refused(1, Refusal::Busy).await;
    assert_eq!(site.receiver(2).await.list.attempts.len(), 1);
}

#[tokio::test]
async fn the_runner_adopts_and_reaps_orphaned_processes() {
    let (_site, runner, mut receiver) = connected("").await;
    // The child leaves the process group of its command, and so outlives it.
    receiver.begin("orphan", 1, b"").await;
    let (end, [stdout, _]) = receiver.ended_printing(1).await;
    assert_eq!(end, exited(3));
    let orphan = text(stdout).trim().to_owned();
    let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap();
    let parent = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(1).unwrap();
    assert_eq!(parent, runner.0.id().to_string());
    let orphan = Pid::from_raw(orphan.parse().unwrap()).unwrap();
    kill_process(orphan, Signal::KILL).unwrap();
    // A signal finds no reaped process. Polling: no event announces it.
    let reaped = async {
        while test_kill_process(orphan).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patient(reaped).await;
}

#[tokio::test]
async fn each_connection_reads_the_configuration_from_disk() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let file = site.path("hooklatch.toml");
    let mut receiver = site.receiver(1).await;
    let text = fs::read_to_string(&file).unwrap().replace("sha256sum; echo oops", "echo new");
    fs::write(&file, &text).unwrap();
    // An open connection keeps the configuration that it began with.
    receiver.start("say", 1, b"").await;
    receiver.refused(1, Refusal::OtherDigest).await;
    let mut receiver = site.receiver(1).await;
    receiver.begin("say", 1, b"").await;
    assert_eq!(receiver.printed(1).await[1], "new\n");
    receiver.ack(1).await;
    // A configuration with an error changes nothing.
    let start = receiver.start_of("say", 1, b"");
    fs::write(&file, text + "[nonsense]").unwrap();
    let mut receiver = site.receiver(1).await;
    receiver.say.start(start, b"").await.unwrap();
    receiver.started(1).await;
    receiver.ended(1).await;
    assert_eq!(site.runs(), 2);
}

#[tokio::test]
async fn a_truncated_start_runs_nothing() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let frame = |message: &ToRunner, body: &[u8]| {
        let header = serde_json::to_vec(message).unwrap();
        let lengths = [header.len(), body.len()].map(|n| (n as u32).to_be_bytes());
        [lengths.as_flattened(), &header, body].concat()
    };
    let greeting = frame(&ToRunner::Hello(hello(STORE, 1)), b"");
    let start = site.receiver(1).await.start_of("say", 1, b"body");
    let start = frame(&ToRunner::Start(Box::new(start)), b"body");
    for cut in [1, 8, 20, start.len() - 4, start.len() - 1] {
        let mut stream = site.stream();
        stream.write_all(&greeting).unwrap();
        stream.write_all(&start[..cut]).unwrap();
        drop(stream);
        assert_eq!(site.receiver(1).await.list.attempts, [], "{cut}");
    }
    let mut receiver = site.receiver(1).await;
    receiver.run("say", 1, b"body").await;
    assert_eq!(site.runs(), 1);
}

#[tokio::test]
async fn the_next_runner_kills_and_reports_the_commands_of_a_dead_one() {
    let (site, runner, mut receiver) = connected("").await;
    for job in [1, 2] {
        receiver.run("say", job, b"").await;
    }
    receiver.ack(2).await;
    receiver.begin("wait", 3, b"").await;
    let dead = receiver.list.incarnation;
    runner.kill();
    receiver.until_closed().await;

    let _runner = site.runner(&[]);
    let mut receiver = site.receiver(1).await;
    assert_ne!(receiver.list.incarnation, dead);
    assert_eq!(receiver.list.answers_for, [dead]);
    assert_eq!(receiver.listed(), [(key(1), true), (key(3), true)]);
    assert!(site.fifo_has_no_reader());
    // The outputs were in the dead runner's memory.
    let without = (exited(0), [Captured::default(), Captured::default()]);
    assert_eq!(receiver.ended_printing(1).await, without);
    let lost = Ended::Lost("its runner died while it ran".to_owned());
    assert_eq!(receiver.ended(3).await, lost);
    for job in [1, 3] {
        receiver.ack(job).await;
    }
    assert_eq!(site.receiver(1).await.list.attempts, []);
}

/// The next runner begins whatever has happened to the ledger. It says of an attempt what was, or that it is lost; and
/// it does not answer for a dead runner whose attempt it lacks, as that would prove that the attempt never started.
#[tokio::test]
async fn a_damaged_ledger_proves_of_no_attempt_that_it_never_started() {
    for damage in damages(12) {
        let (site, runner, mut receiver) = connected("").await;
        for job in [1, 2] {
            receiver.run("say", job, b"").await;
        }
        receiver.ack(2).await;
        receiver.begin("wait", 3, b"").await;
        let dead = receiver.list.incarnation;
        runner.kill();
        receiver.until_closed().await;
        let whole = fs::read(site.ledger_path()).unwrap();
        let damaged = damage.of(&whole);
        // Cut at the end of a line, it is as it once was.
        let is_earlier = damaged.ends_with(b"\n") && whole.starts_with(&damaged);
        fs::write(site.ledger_path(), damaged).unwrap();

        let _runner = site.runner(&[]);
        let mut receiver = site.receiver(1).await;
        let listed = receiver.listed();
        for job in [1, 3] {
            let is_lost = listed.iter().all(|(one, _)| *one != key(job));
            let proves = is_lost && receiver.list.answers_for.contains(&dead);
            assert!(is_earlier || !proves, "{damage:?}: attempt {job} never started");
        }
        for (one, has_ended) in &listed {
            let job = (1..=3).find(|job| key(*job) == *one).expect("an attempt that never was");
            assert!(*has_ended, "{damage:?}: attempt {job} runs");
            let end = receiver.ended(job).await;
            let is_known = job != 3 && end == exited(0);
            assert!(is_known || matches!(end, Ended::Lost(_)), "{damage:?}: {job}: {end:?}");
        }
        if listed.iter().all(|(one, _)| *one != key(3)) {
            receiver.say.send(ToRunner::Search { key: key(3) }).await.unwrap();
            let gone = receiver.hear().await.0;
            assert!(matches!(gone, ToReceiver::Gone { key: of } if of == key(3)), "{gone:?}");
        }
        assert!(site.fifo_has_no_reader(), "{damage:?}");
    }
}

#[tokio::test]
async fn the_ledger_finds_a_command_that_cleared_its_environment() {
    let (site, runner, mut receiver) = connected("").await;
    receiver.begin("shed", 1, b"").await;
    // The command reads this line after it has cleared its environment.
    site.release().await;
    runner.kill();
    let _runner = site.runner(&[]);
    assert_eq!(site.receiver(1).await.listed(), [(key(1), true)]);
    assert!(site.fifo_has_no_reader());
}

#[tokio::test]
async fn a_search_kills_the_processes_of_an_unlisted_attempt() {
    let (site, _runner, mut receiver) = connected("").await;
    // As left by a runner whose ledger is lost.
    let left = |job: u8| {
        let mut command = Command::new("sleep");
        command.arg("1000").env("HOOKLATCH_JOB", key(job).job.to_string());
        command.env("HOOKLATCH_ATTEMPT", "1").process_group(0).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let (mut sought, mut other) = (left(41), left(42));
    receiver.begin("wait", 43, b"").await;
    // A search for a listed attempt kills nothing and gets no reply.
    for job in [43, 41, 49] {
        receiver.say.send(ToRunner::Search { key: key(job) }).await.unwrap();
    }
    let mut gone = Vec::new();
    for _ in 0..2 {
        match receiver.hear().await.0 {
            ToReceiver::Gone { key } => gone.push(key),
            other => panic!("{other:?}"),
        }
    }
    gone.sort();
    assert_eq!(gone, [key(41), key(49)]);
    assert_eq!(sought.wait().unwrap().signal(), Some(9));
    assert_eq!(other.try_wait().unwrap(), None);
    other.kill().unwrap();
    other.wait().unwrap();
    site.release().await;
    receiver.exits(43, 7).await;
}

#[tokio::test]
async fn a_second_runner_for_a_store_exits() {
    let site = Site::new("");
    let _runner = site.runner(&[]);
    let output = site.command(Path::new(PROGRAM), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another runner works in"));
    // Another store has another runner.
    let other = site.path("other.db");
    let _other = site.runner(&["--store", other.to_str().unwrap()]);
    assert!(Path::new(&folder::of(&other)).exists());
}

#[tokio::test]
async fn a_draining_runner_waits_for_its_commands_and_their_acknowledgements() {
    let (site, runner, mut first) = connected("").await;
    first.begin("wait", 1, b"").await;
    runner.signal(Signal::TERM);
    first.draining(true).await;
    first.start("say", 2, b"").await;
    first.refused(2, Refusal::Draining).await;
    drop(first);
    // A receiver that starts now can still collect.
    let mut second = site.receiver(2).await;
    assert!(second.list.draining);
    site.release().await;
    second.exits(1, 7).await;
    second.say.ack(&[key(1)]).await.unwrap();
    assert_eq!(runner.exit_code().await, Some(0));
    assert_eq!(site.runs(), 1);
}

#[tokio::test]
async fn a_second_sigterm_ends_commands_and_the_ledger_keeps_their_results() {
    let (site, runner, mut receiver) = connected("").await;
    receiver.begin("wait", 1, b"").await;
    runner.signal(Signal::TERM);
    receiver.hear().await;
    runner.signal(Signal::TERM);
    assert_eq!(runner.exit_code().await, Some(0));
    let _runner = site.runner(&[]);
    site.receiver(1).await.reports(1, signalled(15, AskedBy::Stop)).await;
}

#[tokio::test]
async fn the_drain_limit_kills_commands_and_the_ledger_keeps_their_results() {
    let (site, runner, mut receiver) = connected("runner_drain_millis = \"100ms\"").await;
    // The command ignores SIGTERM.
    receiver.begin("deaf", 1, b"").await;
    site.release().await;
    runner.signal(Signal::TERM);
    assert_eq!(runner.exit_code().await, Some(0));
    assert!(site.fifo_has_no_reader());
    let _runner = site.runner(&[]);
    site.receiver(1).await.reports(1, signalled(9, AskedBy::Stop)).await;
}

#[tokio::test]
async fn a_command_outlives_the_upgrade_of_its_runner() {
    let (site, mut runner, mut first) =
        connected("output_head_bytes = \"3 B\"\noutput_tail_bytes = \"2 B\"").await;
    first.run("say", 1, b"").await;
    first.begin("prints", 2, b"").await;
    first.begin("slow", 3, b"").await;
    // `slow` reaches its time-out while `prints` waits.
    first.until_printed(2, 8).await;
    for upgrade in 0..2 {
        runner.upgrade(&mut first).await;
        let mut next = site.receiver(1).await;
        assert_eq!(next.list.incarnation, first.list.incarnation);
        assert_eq!((next.list.free, next.list.draining), (253, false));
        assert_eq!(next.list.answers_for, []);
        assert_eq!(next.listed()[..2], [(key(1), true), (key(2), false)], "{upgrade}");
        let (end, [_, stderr]) = next.ended_printing(1).await;
        assert_eq!(end, exited(0), "{upgrade}");
        assert_eq!((stderr.head, stderr.tail), (b"oop".to_vec(), b"s\n".to_vec()));
        first = next;
    }
    let second = site.command(Path::new(PROGRAM), &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(69), "its lock is lost");
    first.reports(3, signalled(15, AskedBy::TimeOut)).await;
    site.release().await;
    let (end, [stdout, _]) = first.ended_printing(2).await;
    assert_eq!(end, exited(0));
    let whole = Captured { head: b"abc".to_vec(), tail: b"12".to_vec(), total: Some(10) };
    assert_eq!(stdout, whole);
    // A new command inherits none of the descriptors that the upgrade handed over.
    first.begin("look", 4, b"").await;
    first.exits(4, 4).await;
    for job in 1..=4 {
        first.ack(job).await;
    }
    first.begin("wait", 5, b"").await;
    first.say.send(ToRunner::Kill { key: key(5) }).await.unwrap();
    first.reports(5, signalled(15, AskedBy::Cancelled)).await;
}

#[tokio::test]
async fn an_upgrade_keeps_long_outputs_complete() {
    let (site, mut runner, mut receiver) = connected("output_head_bytes = \"300 KiB\"").await;
    receiver.run("chats", 1, b"300000 0\n").await;
    receiver.begin("prints-much", 2, b"").await;
    receiver.until_printed(2, 300_000).await;
    runner.upgrade(&mut receiver).await;
    let mut receiver = site.receiver(2).await;
    assert_eq!(receiver.printed(1).await[0].len(), 300_000);
    site.release().await;
    let output = receiver.printed(2).await[0].clone();
    assert_eq!((output.len(), &output[299_999..]), (300_002, "\x0012"));
}

#[tokio::test]
async fn a_program_that_fails_the_upgrade_check_is_not_executed() {
    let site = Site::new("");
    let program = site.own_program();
    let mut runner = site.runner_of(&program, &[]);
    let mut receiver = site.receiver(1).await;
    receiver.begin("wait", 1, b"").await;
    let file = site.path("hooklatch.toml");
    let text = fs::read_to_string(&file).unwrap();
    // First the file is not a program, then the program rejects the configuration.
    fs::rename(&program, site.path("aside")).unwrap();
    fs::write(&program, "no program").unwrap();
    runner.fails_to_upgrade();
    fs::remove_file(&program).unwrap();
    fs::rename(site.path("aside"), &program).unwrap();
    fs::write(&file, text.clone() + "[nonsense]").unwrap();
    runner.fails_to_upgrade();
    fs::write(&file, text).unwrap();
    // The connection is still the same.
    site.release().await;
    receiver.exits(1, 7).await;
    receiver.ack(1).await;
    runner.signal(Signal::USR2);
    runner.listens();
}

#[tokio::test]
async fn a_sigterm_before_the_new_program_begins_stops_it_gracefully() {
    let site = Site::new("");
    let runner = site.runner_of(&site.own_program(), &[]);
    site.replace_program(&format!(
        "#!/bin/sh\n[ \"$HOOKLATCH_RUNNER_STATE\" = rehearsal ] || kill -TERM $$\nexec {PROGRAM} \"$@\"\n"
    ));
    runner.signal(Signal::USR2);
    assert_eq!(runner.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_failed_execution_leaves_the_old_program_as_it_was() {
    let site = Site::new("");
    let program = site.own_program();
    let mut runner = site.runner_of(&program, &[]);
    let mut receiver = site.receiver(1).await;
    receiver.begin("wait", 1, b"").await;
    site.replace_program("#!/bin/sh\nexec rm \"$0\"\n");
    runner.fails_to_upgrade();
    receiver.draining(true).await;
    receiver.draining(false).await;
    // What a failed execution had changed is restored: SIGPIPE (13) is ignored, and commands inherit no
    // descriptors.
    let ignored = runner.status("SigIgn:");
    assert_eq!(u64::from_str_radix(&ignored, 16).unwrap() >> 12 & 1, 1, "{ignored}");
    // SIGTERM (15) is no longer held.
    let held = runner.status("SigBlk:");
    assert_eq!(u64::from_str_radix(&held, 16).unwrap() >> 14 & 1, 0, "{held}");
    receiver.begin("look", 2, b"").await;
    receiver.exits(2, 4).await;
    site.release().await;
    receiver.exits(1, 7).await;
}

#[tokio::test]
async fn a_hundred_commands_use_less_than_4_mib() {
    let (_site, runner, mut receiver) = connected("").await;
    for job in 0..100 {
        receiver.begin("idle", job, b"body").await;
    }
    let own = runner.anonymous_kib();
    // With the pages of the optimised program it is `cargo bench --bench runner` that holds 8 MiB.
    assert!(own < 4 * 1024, "{own} KiB");
    for job in 0..100 {
        receiver.say.send(ToRunner::Kill { key: key(job) }).await.unwrap();
        receiver.ended(job).await;
    }
}

#[tokio::test]
async fn an_idle_runner_exits_after_its_last_acknowledgement() {
    let site = Site::new("runner_idle_millis = \"100ms\"");
    let runner = site.runner(&["--leave-when-idle"]);
    let mut receiver = site.receiver(1).await;
    receiver.begin("wait", 1, b"").await;
    drop(receiver);
    site.release().await;
    // Its report was not acknowledged, so the runner stays.
    let mut receiver = site.receiver(1).await;
    receiver.ended(1).await;
    receiver.ack(1).await;
    drop(receiver);
    assert_eq!(runner.exit_code().await, Some(0));
    assert!(!site.folder().join("socket").exists());
    // Its ledger proves that no command is left.
    let _runner = site.runner(&["--leave-when-idle"]);
    let list = site.receiver(1).await.list;
    assert_eq!((list.attempts.len(), list.answers_for.len()), (0, 1));
}

#[tokio::test]
async fn a_launched_runner_leads_its_session_and_exits_when_idle() {
    let site = Site::new("runner_idle_millis = \"100ms\"");
    let launch = site.launch();
    let refused = Launch { inside_a_unit: true, ..launch.clone() }.run().unwrap_err();
    assert!(refused.to_string().contains("hooklatch runner --config"), "{refused}");
    tokio::task::spawn_blocking(move || launch.run().unwrap()).await.unwrap();
    // `run` returns when it listens.
    let mut receiver = site.receiver(1).await;
    let runner = site.listener();
    assert_eq!(rustix::process::getsid(Some(runner)).unwrap(), runner);
    let streams = [0, 1].map(|n| format!("/proc/{}/fd/{n}", runner.as_raw_pid()));
    let streams = streams.map(|stream| fs::read_link(stream).unwrap());
    assert_eq!(streams, ["/dev/null", "/dev/null"].map(PathBuf::from));
    receiver.run("say", 1, b"").await;
    receiver.ack(1).await;
    let exit = Exit::of(runner);
    drop(receiver);
    exit.wait();
}

#[tokio::test]
async fn a_stopping_runner_removes_its_socket_before_it_releases_its_lock() {
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    let site = Site::new("");
    let runner = site.runner(&[]);
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let flags = WatchFlags::DELETE | WatchFlags::CLOSE_WRITE;
    inotify::add_watch(&watch, site.folder(), flags).unwrap();
    runner.signal(Signal::TERM);
    assert_eq!(runner.exit_code().await, Some(0));
    let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = events.next() {
        let name = event.file_name().unwrap().to_str().unwrap().to_owned();
        seen.push((name, event.events().contains(ReadFlags::DELETE)));
    }
    // Closing its file releases the lock.
    let position = |name: &str, gone| seen.iter().position(|one| *one == (name.to_owned(), gone));
    let (socket, lock) = (position("socket", true), position("lock", false));
    assert!(socket.is_some() && socket < lock, "{seen:?}");
}

#[tokio::test]
async fn a_second_launch_leaves_the_log_readable() {
    let site = Site::new("");
    let launch = site.launch();
    for _ in 0..2 {
        let launch = launch.clone();
        tokio::task::spawn_blocking(move || launch.run().unwrap()).await.unwrap();
    }
    let runner = site.listener();
    let exit = Exit::of(runner);
    kill_process(runner, Signal::TERM).unwrap();
    exit.wait();
    let log = fs::read_to_string(site.path("runner.log")).unwrap();
    assert!(log.contains("another runner works in") && log.contains("left"), "{log:?}");
    assert!(log.lines().all(|line| line.starts_with("{") || line.starts_with("error")), "{log:?}");
}

#[tokio::test]
async fn an_upgrade_that_cannot_write_the_ledger_is_undone() {
    let (site, mut runner, mut receiver) = connected("").await;
    receiver.begin("wait", 1, b"").await;
    // Like a full disk, this folder prevents the rewrite of the ledger.
    let obstacle = site.folder().join("new-ledger");
    fs::create_dir(&obstacle).unwrap();
    runner.fails_to_upgrade();
    fs::remove_dir(&obstacle).unwrap();
    receiver.draining(true).await;
    receiver.draining(false).await;
    runner.upgrade(&mut receiver).await;
    let mut receiver = site.receiver(1).await;
    site.release().await;
    receiver.exits(1, 7).await;
}

#[tokio::test]
async fn a_denial_names_the_ledger_to_remove() {
    let site = Site::new("");
    let runner = site.runner(&[]);
    let mut first = site.receiver(5).await;
    first.begin("wait", 1, b"").await;
    let others = [hello(Uuid::from_bytes([2; 16]), 9), hello(STORE, 4)];
    let mut details = Vec::new();
    for hello in &others {
        details.push(site.denied(hello).await);
    }
    // The message says to stop the runner and to remove the file.
    runner.signal(Signal::TERM);
    first.hear().await;
    runner.signal(Signal::TERM);
    assert_eq!(runner.exit_code().await, Some(0));
    let ledger = site.ledger_path();
    for detail in details {
        assert!(detail.contains(&format!("rm {}", ledger.display())), "{detail}");
    }
    fs::remove_file(ledger).unwrap();
    let _runner = site.runner(&[]);
    for hello in &others {
        let list = site.connect_as(hello).await.unwrap().list;
        assert_eq!((list.attempts.len(), list.answers_for.len()), (0, 0));
    }
}

#[tokio::test]
async fn a_runner_that_lost_its_ledger_has_another_incarnation_next_time() {
    let site = Site::new("");
    let runner = site.runner_of(&site.own_program(), &[]);
    let mut first = site.receiver(1).await;
    first.run("say", 1, b"").await;
    // Removes the ledger between the old program and the new one.
    site.replace_program(&format!(
        "#!/bin/sh\n[ \"$HOOKLATCH_RUNNER_STATE\" = rehearsal ] || rm {}/ledger-*\nexec {PROGRAM} \"$@\"\n",
        site.folder().display()
    ));
    runner.signal(Signal::USR2);
    // A receiver would take an attempt that it does not list for one that never started.
    assert_eq!(runner.exit_code().await, Some(74));
    let _runner = site.runner(&[]);
    let list = site.receiver(1).await.list;
    assert_ne!(list.incarnation, first.list.incarnation);
    assert!(!list.answers_for.contains(&first.list.incarnation));
}
