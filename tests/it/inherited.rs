//! What the processes inherit from the process that started them, and what handlers inherit from them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal::SIGHUP};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::support::{PATIENCE, Receiver, Site};

const HANDLER: &str =
    "[handlers.look]\nsource = \"github\"\nevents = [\"*\"]\ncommand = [\"./look\"]\n";

#[test]
fn a_command_has_the_original_file_limit_and_default_signals() {
    let site = Site::new(HANDLER);
    site.script("look", "(ulimit -Sn; grep -E 'SigBlk|SigIgn' /proc/self/status) > \"$SITE/seen\"");
    let serve = site.command(&["serve"]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -Sn 250; trap '' USR1 QUIT CHLD RTMIN+3; exec \"$@\"", "sh"]);
    command.arg(serve.get_program()).args(serve.get_args()).stdin(Stdio::null());
    command.env("HOOKLATCH_CONFIG", site.config()).env_remove("INVOCATION_ID");
    let receiver = Receiver::of(command).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", receiver.pid())).unwrap();
    let open = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(!open.contains(" 250 "), "the receiver has raised its limit: {open}");
    assert_eq!(receiver.github("d-1", "push", "{}").0, 200);
    site.all_jobs(1, "succeeded");
    let seen = site.lines("seen");
    assert_eq!(seen[0], "250");
    for line in &seen[1..] {
        let signals = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        // glibc's posix_spawn ignores the two signals of its threads, 32 and 33, in each child.
        assert_eq!(signals & !(0b11 << 31), 0, "{line}");
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn a_receiver_that_launches_no_runner_cannot_execute_programs() {
    let site = Site::new("");
    let folder = site.path("runners");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    // The number of filters of each thread: the environment of the tests may already have one.
    let filters = |receiver: &Receiver| {
        let tasks = fs::read_dir(format!("/proc/{}/task", receiver.pid())).unwrap();
        let modes = tasks.map(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
            mode.unwrap().trim().parse().unwrap()
        });
        modes.collect::<Vec<u32>>()
    };
    let own = Receiver::of(site.command(&["serve"])).unwrap();
    let before = filters(&own)[0];
    own.stop();
    let filtered = Receiver::of(site.command(&["serve", "--runners", folder.to_str().unwrap()]));
    let after = filters(&filtered.unwrap());
    assert!(after.len() > 2 && after.iter().all(|count| *count > before), "{before} {after:?}");
}

/// The parent holds the signal back, as the kernel does for a program that is executed again.
#[test]
fn a_sighup_before_the_program_begins_reloads_the_configuration() {
    let site = Site::new("");
    let mut serve = site.command(&["serve"]);
    let hang_up = || {
        SigSet::from(SIGHUP).thread_block()?;
        Ok(kill_process(getpid(), Signal::HUP)?)
    };
    // SAFETY: both calls are safe between fork and exec.
    unsafe { serve.pre_exec(hang_up) };
    let receiver = Receiver::of(serve).unwrap();
    receiver
        .log_when(|line| line["message"].as_str().is_some_and(|text| text.starts_with("reloaded")));
    assert_eq!(receiver.stop(), Some(0));
}

/// The configuration is large, so that reading it at the start takes some time.
#[test]
fn a_sighup_during_the_start_does_not_end_the_receiver() {
    let site = Site::new("");
    fs::create_dir(site.path("conf.d")).unwrap();
    let text = "# a comment that is there to be read\n".repeat(25_000);
    for n in 0..8 {
        fs::write(site.path(&format!("conf.d/{n}.toml")), &text).unwrap();
    }
    let serve = site.command(&["serve"]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(site.path("pid"));
    command.arg(serve.get_program()).args(serve.get_args()).stdin(Stdio::null());
    command.env("HOOKLATCH_CONFIG", site.config()).env_remove("INVOCATION_ID");
    let started = std::thread::spawn(move || Receiver::of(command));
    let end = Instant::now() + PATIENCE;
    let pid = loop {
        assert!(
            Instant::now() < end && !started.is_finished(),
            "the receiver was not seen to read"
        );
        let pid = site.lines("pid").first().and_then(|line| line.parse::<i32>().ok());
        let read = |pid: i32| {
            let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse::<usize>().ok()
        };
        match pid.filter(|pid| read(*pid).is_some_and(|bytes| bytes > 2 * text.len())) {
            Some(pid) => break pid,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    kill_process(Pid::from_raw(pid).unwrap(), Signal::HUP).unwrap();
    let receiver = started.join().unwrap();
    let receiver = receiver.unwrap_or_else(|log| panic!("the receiver ended: {log}"));
    receiver
        .log_when(|line| line["message"].as_str().is_some_and(|text| text.starts_with("reloaded")));
    assert_eq!(receiver.stop(), Some(0));
}
