//! Real commands: what they are given, how they are read, how they end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

#[path = "../../tests/support/damage.rs"]
pub(crate) mod damage;
#[path = "../../tests/support/needs.rs"]
pub(crate) mod needs;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../tests/support/random.rs"]
mod random;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::message::Key;
use super::message::Refusal;
use super::spawn::NoChild;
use super::*;
use crate::model::{EventType, Facts, Headers, JobId, Timestamp};

/// The facts of an attempt with this body.
pub(crate) fn facts(body: impl Into<Bytes>) -> Facts {
    Facts {
        handler: "fulfil".parse().unwrap(),
        job: JobId::from_bytes([0xab; 16]),
        attempt: 3,
        replays: 1,
        source: "stripe".parse().unwrap(),
        caller: None,
        event_id: "evt_1".parse().unwrap(),
        event_type: EventType::from_raw("invoice.paid"),
        received_at: Timestamp(1_767_225_600_123),
        headers: Headers::new(),
        body: body.into(),
    }
}

fn settings(folder: &Path, argv: &[&str]) -> CommandSettings {
    CommandSettings {
        argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
        cwd: None,
        home: folder.to_owned(),
        env: Vec::new(),
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(60),
        output_bytes: (1024, 1024),
        answer_bytes: None,
        stdin_memory_bytes: 1 << 20,
        values: None,
    }
}

/// Runs one attempt in this process.
async fn run(
    settings: &CommandSettings,
    facts: &Facts,
    end: &Cancellation,
) -> Result<Ended, NoChild> {
    let (settings, facts) = (settings.clone(), facts.clone());
    match tokio::task::spawn_blocking(move || spawn::spawn(&settings, &facts)).await.unwrap() {
        Ok((child, _)) => Ok(attend::attend(&child, end).await),
        Err(none) => Err(none),
    }
}

async fn run_it(settings: &CommandSettings, body: impl Into<Bytes>) -> Result<Ended, NoChild> {
    let (facts, end) = (facts(body), Cancellation::default());
    // A bound for a broken build only: nothing below waits this long.
    tokio::time::timeout(Duration::from_secs(60), run(settings, &facts, &end))
        .await
        .expect("the attempt must end")
}

/// Runs a shell script to an exit.
async fn script(folder: &Path, script: &str, body: impl Into<Bytes>) -> Exited {
    match run_it(&settings(folder, &["/bin/sh", "-c", script]), body).await {
        Ok(Ended::Exited(exited)) => exited,
        other => panic!("{other:?}"),
    }
}

fn stdout(exited: &Exited) -> String {
    String::from_utf8(exited.stdout.head.clone()).unwrap()
}

/// Waits until the process with this number has ended.
fn assert_ends(pid: &str) {
    let Ok(pidfd) = pidfd_open(pid_of(pid), PidfdFlags::empty()) else { return };
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit));
    assert_eq!(ended, Ok(1), "process {pid} lives");
}

fn pid_of(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn the_body_comes_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |count: usize| -> Vec<u8> { (0..count).map(|i| (i * 31 % 251) as u8).collect() };
    for count in [0, 1, 1 << 20, (1 << 20) + 1, 25 << 20] {
        let body = bytes(count);
        let exited = script(folder.path(), "cat >copy", body.clone()).await;
        assert_eq!(exited.status, Status::Code(0));
        assert!(fs::read(folder.path().join("copy")).unwrap() == body, "{count} bytes differ");
    }
}

#[tokio::test]
async fn a_command_may_leave_its_input_unread() {
    let folder = tempfile::tempdir().unwrap();
    for count in [1000, 3 << 20] {
        let exited = script(folder.path(), "exec true", vec![b'x'; count]).await;
        assert_eq!(exited.status, Status::Code(0));
    }
}

#[tokio::test]
async fn the_environment_is_exactly_this() {
    let folder = tempfile::tempdir().unwrap();
    let own = [("SHOP", "a b=c"), ("LANG", "de_DE.UTF-8"), ("HOOKLATCH_JOB", "forged")];
    let env = own.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let settings = CommandSettings { env, ..settings(folder.path(), &["env"]) };
    let Ok(Ended::Exited(exited)) = run_it(&settings, "").await else { panic!("must run") };
    let out = stdout(&exited);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let home = format!("HOME={}", folder.path().display());
    let expected = [
        home.as_str(),
        "HOOKLATCH_ATTEMPT=3",
        "HOOKLATCH_EVENT_ID=evt_1",
        "HOOKLATCH_EVENT_TYPE=invoice.paid",
        "HOOKLATCH_HANDLER=fulfil",
        "HOOKLATCH_JOB=abababab-abab-abab-abab-abababababab",
        "HOOKLATCH_RECEIVED_AT=2026-01-01T00:00:00.123Z",
        "HOOKLATCH_REPLAY=1",
        "HOOKLATCH_SOURCE=stripe",
        "LANG=de_DE.UTF-8",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SHOP=a b=c",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_caller_is_one_variable_more() {
    let folder = tempfile::tempdir().unwrap();
    let env = vec![("HOOKLATCH_CALLER".to_owned(), "forged".to_owned())];
    let own = CommandSettings { env, ..settings(folder.path(), &["env"]) };
    let caller = Some("shop\tCN=till 7,O=Shop".to_owned());
    let facts = Facts { caller, ..facts("") };
    let Ok(Ended::Exited(exited)) = run(&own, &facts, &Cancellation::default()).await else {
        panic!("must run")
    };
    let out = stdout(&exited);
    let callers: Vec<_> = out.lines().filter(|line| line.starts_with("HOOKLATCH_CALLER")).collect();
    assert_eq!(callers, ["HOOKLATCH_CALLER=shop\tCN=till 7,O=Shop"]);
    assert_eq!(out.lines().count(), 12);
}

#[tokio::test]
async fn kept_headers_are_variables_if_they_can_be_read_in_one_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut headers = Headers::new();
    for (name, value) in [
        ("X-GitHub-Event", "push".as_bytes()),
        ("User-Agent", b"GitHub Hook/1"),
        ("X-Twice", b"1"),
        ("x-twice", b"2"),
        ("X_Twice", b"3"),
        ("X-Raw", b"\xff"),
        ("X-Tab", b"a\tb"),
        ("X-Odd!", b"1"),
    ] {
        headers.push(name, value);
    }
    let env = vec![("HOOKLATCH_HEADER_USER_AGENT".to_owned(), "forged".to_owned())];
    let own = CommandSettings { env, ..settings(folder.path(), &["env"]) };
    let facts = Facts { headers, ..facts("") };
    let wire = serde_json::to_string(&facts).unwrap();
    let facts: Facts = serde_json::from_str(&wire).unwrap();
    let Ok(Ended::Exited(exited)) = run(&own, &facts, &Cancellation::default()).await else {
        panic!("must run")
    };
    let out = stdout(&exited);
    let mut found: Vec<_> =
        out.lines().filter(|line| line.starts_with("HOOKLATCH_HEADER")).collect();
    found.sort_unstable();
    let expected =
        ["HOOKLATCH_HEADER_USER_AGENT=GitHub Hook/1", "HOOKLATCH_HEADER_X_GITHUB_EVENT=push"];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn arguments_are_never_a_shell_line() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["printf", "%s|", "$HOME", "a b", "; exit 9", "*"];
    let Ok(Ended::Exited(exited)) = run_it(&settings(folder.path(), &arguments), "").await else {
        panic!("must run")
    };
    assert_eq!(stdout(&exited), "$HOME|a b|; exit 9|*|");
}

#[tokio::test]
async fn signals_and_descriptors_are_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    // An inherited descriptor without the close-on-exec mark, as systemd's sockets are.
    let inherited = rustix::io::dup(fs::File::open("/dev/null").unwrap()).unwrap();
    assert!(!fcntl_getfd(&inherited).unwrap().contains(FdFlags::CLOEXEC));
    descriptors::mark_all();
    // The third is the listing's own.
    let exited = script(folder.path(), "ls /proc/self/fd", "").await;
    assert_eq!(stdout(&exited), "0\n1\n2\n3\n");
    // The test's own process ignores SIGPIPE.
    let exited = script(folder.path(), "kill -PIPE $$; echo alive", "").await;
    assert_eq!(exited.status, Status::Signal(13));
    let exited = script(folder.path(), "grep SigBlk /proc/self/status", "").await;
    assert_eq!(stdout(&exited), "SigBlk:\t0000000000000000\n");
}

#[tokio::test]
async fn a_command_leads_its_own_group_and_starts_at_home() {
    let folder = tempfile::tempdir().unwrap();
    let exited = script(folder.path(), "echo $$; cut -d' ' -f5 /proc/$$/stat; pwd -P", "").await;
    let out = stdout(&exited);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], lines[1]);
    assert_eq!(Path::new(lines[2]), folder.path().canonicalize().unwrap());
    let cwd = Some("/".into());
    let elsewhere = CommandSettings { cwd, ..settings(folder.path(), &["/bin/pwd"]) };
    let Ok(Ended::Exited(exited)) = run_it(&elsewhere, "").await else { panic!("must run") };
    assert_eq!(stdout(&exited), "/\n");
}

#[tokio::test]
async fn ten_megabytes_of_output_block_no_command_and_both_ends_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let text = "echo begin; head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2; echo end";
    let exited = script(folder.path(), text, "").await;
    assert_eq!(exited.status, Status::Code(0));
    assert_eq!((exited.stdout.total, exited.stderr.total), (Some(10_000_010), Some(10_000_000)));
    assert_eq!((exited.stdout.head.len(), exited.stdout.tail.len()), (1024, 1024));
    assert!(exited.stdout.head.starts_with(b"begin\n\0"));
    assert!(exited.stdout.tail.ends_with(b"\0end\n"));
}

#[tokio::test]
async fn an_answer_is_kept_whole_up_to_its_limit_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    for (printed, head, tail) in [(0, 0, 0), (300_000, 300_000, 0), (300_001, 300_000, 1)] {
        let text = format!("head -c {printed} /dev/zero; head -c {printed} /dev/zero >&2");
        let base = settings(folder.path(), &["/bin/sh", "-c", &text]);
        let settings = CommandSettings { answer_bytes: Some(300_000), ..base };
        let Ok(Ended::Exited(exited)) = run_it(&settings, "").await else { panic!("must run") };
        let Captured { head: got, tail: end, total } = exited.stdout;
        assert_eq!((got.len(), end.len(), total), (head, tail, Some(printed)));
        let most = usize::try_from(printed.min(1024)).unwrap();
        assert_eq!((exited.stderr.head.len(), exited.stderr.tail.len()), (most, most));
    }
}

#[tokio::test]
async fn a_grandchild_with_the_pipe_does_not_hold_the_attempt() {
    let folder = tempfile::tempdir().unwrap();
    // It leaves the group, keeps both outputs, and the command goes on once it has.
    let text = "mkfifo left; setsid sh -c 'echo $$ >left; exec sleep 1000' & cat left";
    let exited = script(folder.path(), text, "").await;
    assert_eq!(exited.status, Status::Code(0));
    kill_process(pid_of(&stdout(&exited)), Signal::KILL).expect("it must still live");
}

#[tokio::test]
async fn a_grandchild_that_writes_on_does_not_hold_the_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let text = "mkfifo left; setsid sh -c 'echo $$ >left; exec yes' & cat left >pid";
    let exited = script(folder.path(), text, "").await;
    assert_eq!(exited.status, Status::Code(0));
    // The pipe it writes to is closed, so a SIGPIPE ends it.
    assert_ends(&fs::read_to_string(folder.path().join("pid")).unwrap());
}

#[tokio::test]
async fn background_work_in_the_group_ends_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let exited = script(folder.path(), "sleep 1000 & echo $!", "").await;
    assert_eq!(exited.status, Status::Code(0));
    assert_ends(&stdout(&exited));
}

#[tokio::test]
async fn no_process_of_the_group_lives_when_the_end_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    // It takes the kernel some time to end what holds this much memory.
    let text = "mkfifo held; (head -c 200000000 /dev/zero; echo >held; exec sleep 1000) | \
        tail -c 200000000 & read line <held; echo $!";
    let exited = script(folder.path(), text, "").await;
    assert_eq!(exited.status, Status::Code(0));
    let pid = Pid::from_raw(stdout(&exited).trim().parse().unwrap()).unwrap();
    assert_eq!(orphaned::living(pid), None, "it lives");
}

#[tokio::test]
async fn every_exit_status_and_signal_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    for code in [0, 1, 65, 75, 126, 127, 137, 255] {
        let exited = script(folder.path(), &format!("exit {code}"), "").await;
        assert_eq!((exited.status, exited.asked_by), (Status::Code(code), None));
    }
    for signal in [9, 11, 15] {
        let exited = script(folder.path(), &format!("kill -{signal} $$"), "").await;
        assert_eq!((exited.status, exited.asked_by), (Status::Signal(signal), None));
    }
}

#[tokio::test]
async fn a_command_that_ended_is_reaped() {
    let folder = tempfile::tempdir().unwrap();
    let exited = script(folder.path(), "echo $$", "").await;
    let stat = fs::read_to_string(format!("/proc/{}/stat", stdout(&exited).trim()));
    assert!(!stat.is_ok_and(|stat| stat.contains(") Z ")));
}

#[tokio::test]
async fn the_first_reason_to_end_stands() {
    let cancellation = Cancellation::default();
    cancellation.cancel(AskedBy::Cancelled);
    cancellation.cancel(AskedBy::Stop);
    assert_eq!(cancellation.cancelled().await, AskedBy::Cancelled);
}

/// Runs a script with a time-out long enough for a shell to begin, and the given grace.
async fn timed_out(text: &str, grace: Duration) -> Exited {
    let folder = tempfile::tempdir().unwrap();
    let timeout = Duration::from_secs(1);
    let base = settings(folder.path(), &["/bin/sh", "-c", text]);
    match run_it(&CommandSettings { timeout, grace, ..base }, "").await {
        Ok(Ended::Exited(exited)) => exited,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn at_the_time_out_the_exit_status_counts() {
    let minute = Duration::from_secs(60);
    let (zero, rejects, silent) = tokio::join!(
        timed_out("trap 'exit 0' TERM; sleep 1000", minute),
        timed_out("trap 'exit 65' TERM; sleep 1000", minute),
        timed_out("sleep 1000", minute),
    );
    let by = Some(AskedBy::TimeOut);
    assert_eq!((zero.status, zero.asked_by), (Status::Code(0), by));
    assert_eq!((rejects.status, rejects.asked_by), (Status::Code(65), by));
    assert_eq!((silent.status, silent.asked_by), (Status::Signal(15), by));
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed_with_the_whole_group() {
    let text = "trap '' TERM; sleep 1000 & echo $!; wait";
    let exited = timed_out(text, Duration::from_millis(100)).await;
    assert_eq!((exited.status, exited.asked_by), (Status::Signal(9), Some(AskedBy::TimeOut)));
    assert_ends(&stdout(&exited));
}

#[tokio::test]
async fn a_cancelled_command_may_end_well() {
    let folder = tempfile::tempdir().unwrap();
    let text = "trap 'echo stopping; exit 3' TERM; sleep 1000 & echo >begun; wait";
    let settings = settings(folder.path(), &["/bin/sh", "-c", text]);
    let cancellation = Cancellation::default();
    let fifo = folder.path().join("begun");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let canceller = async {
        tokio::task::spawn_blocking(move || fs::read(fifo)).await.unwrap().unwrap();
        cancellation.cancel(AskedBy::Stop);
    };
    let facts = facts("");
    let (ended, ()) = tokio::join!(run(&settings, &facts, &cancellation), canceller);
    let Ok(Ended::Exited(exited)) = ended else { panic!("{ended:?}") };
    assert_eq!((exited.status, exited.asked_by), (Status::Code(3), Some(AskedBy::Stop)));
    assert_eq!(stdout(&exited), "stopping\n");
}

#[tokio::test]
async fn a_failed_start_names_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    // Written by another process: a descriptor open for writing here could slip into some other
    // test's child for a moment, and the file would be "busy".
    let file = |name: &str, text: &str, mode: &str| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        let writer = "echo \"$0\" >\"$1\"; chmod $2 \"$1\"";
        let wrote = Command::new("/bin/sh").args(["-c", writer, text, &path, mode]).status();
        assert!(wrote.unwrap().success());
        path
    };
    let plain = file("plain", "#!/bin/sh", "644");
    let no_line = file("no-line", "echo never a shell line", "755");
    let no_shell = file("no-shell", "#!/nowhere/sh", "755");
    let long = "x".repeat(200 * 1024);
    let home = folder.path().to_str().unwrap();
    for (argv, cwd, parts) in [
        (vec!["/nowhere/program"], "/", ["/nowhere/program", "No such file"]),
        (vec!["hooklatch-no-such"], "/", ["hooklatch-no-such", "in no folder of PATH"]),
        (vec!["./nowhere"], "/", ["./nowhere", "No such file"]),
        (vec![&plain], "/", [&plain, "Permission denied"]),
        (vec![home], "/", [home, "Permission denied"]),
        (vec![&no_line], "/", [&no_line, "'#!'"]),
        (vec![&no_shell], "/", [&no_shell, "interpreter"]),
        (vec!["true"], "/nowhere", ["working directory /nowhere", "No such file"]),
        (vec!["true"], &plain, ["working directory", "not a directory"]),
        (vec!["true", &long], "/", ["true", "too long"]),
        (vec![], "/", ["the command", "is empty"]),
    ] {
        let cwd = Some(cwd.into());
        let settings = CommandSettings { cwd, ..settings(folder.path(), &argv) };
        let ended = run_it(&settings, "body").await;
        let Err(NoChild::Refused(Refusal::CannotStart, reason)) = &ended else {
            panic!("{argv:?}: {ended:?}")
        };
        assert!(parts.iter().all(|part| reason.contains(part)), "{argv:?}: {reason}");
    }
    let path = vec![("PATH".to_owned(), format!("/nowhere:{home}"))];
    let settings = CommandSettings { env: path, ..settings(folder.path(), &["plain"]) };
    let ended = run_it(&settings, "").await;
    let Err(NoChild::Refused(Refusal::CannotStart, reason)) = ended else { panic!("{ended:?}") };
    assert!(reason.ends_with("plain is not executable"), "{reason}");
}

#[tokio::test]
async fn orphaned_processes_of_a_dead_runner_are_found_and_ended() {
    let job = crate::random::job_id(Timestamp(0));
    let begin = |job: JobId, attempt: u32, text: &str| {
        let mut child = Command::new("/bin/sh")
            .args(["-c", text])
            .env("HOOKLATCH_JOB", job.to_string())
            .env("HOOKLATCH_ATTEMPT", attempt.to_string())
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut pids = String::new();
        child.stdout.take().unwrap().read_to_string(&mut pids).unwrap();
        (child, pids)
    };
    // One sheds its environment and stays in the group, one leaves the group and keeps it.
    let text = "env -i sleep 1000 >/dev/null & echo $!; mkfifo FIFO; \
        setsid sh -c 'echo $$ >FIFO; exec sleep 1000 >/dev/null' & cat FIFO; \
        exec sleep 1000 >/dev/null";
    let folder = tempfile::tempdir().unwrap();
    let text = text.replace("FIFO", folder.path().join("left").to_str().unwrap());
    let (mut leftover, pids) = begin(job, 2, &text);
    let others = [(job, 1), (crate::random::job_id(Timestamp(0)), 2)];
    let others = others.map(|(job, attempt)| begin(job, attempt, "exec sleep 1000 >/dev/null").0);
    assert_eq!(pids.lines().count(), 2, "{pids}");

    let key = Key { job, attempt: 2 };
    assert_eq!(orphaned::end(&[(key, None)], Duration::from_secs(30)), []);
    pids.lines().for_each(assert_ends);
    leftover.wait().unwrap();
    for mut other in others {
        assert!(other.try_wait().unwrap().is_none(), "another attempt's process was ended");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

#[test]
fn a_search_that_sees_no_process_proves_nothing() {
    const CHILD: &str = "HOOKLATCH_TEST_WITHOUT_PROC";
    let key = Key { job: JobId::from_bytes([7; 16]), attempt: 1 };
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(orphaned::end(&[(key, None)], Duration::ZERO), [key]);
        return;
    }
    assert_eq!(orphaned::end(&[(key, None)], Duration::ZERO), []);
    // In a separate mount namespace, if the user may make one.
    let hide = "mount -t tmpfs tmpfs /proc 2>/dev/null || exit 77; exec \"$0\" --exact \"$1\"";
    let test = "runner::tests::a_search_that_sees_no_process_proves_nothing";
    let output = Command::new("unshare")
        .args(["-m", "/bin/sh", "-c", hide])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(CHILD, "1")
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(101) => panic!("{output:?}"),
        other => {
            eprintln!("{other:?}");
            needs::missing("mounts", "run as root with CAP_SYS_ADMIN");
        }
    }
}
