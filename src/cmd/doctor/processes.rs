//! Checks the versions, limits and control groups of the running receiver and runners.

use std::fs;

use crate::handler::runner_client::RunnerStatus;

use super::finding::Finding;
use super::machine::{Machine, Process};

/// The hard limit on open files in the packaged unit; the receiver raises its soft limit to it. Each
/// connection takes one, and a flood of slow connections takes thousands.
const OPEN_FILES: u64 = 65_536;

pub(super) fn receiver(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(Process { pid, .. }) = &machine.receiver else {
        return vec![Finding::unknown("none runs: what only a running one shows was not checked")];
    };
    let ours = env!("CARGO_PKG_VERSION");
    vec![match machine.status.as_ref().map(|status| &status.version) {
        None => {
            Finding::unknown(format!("pid {pid}, which does not answer this user (run as root)"))
        }
        Some(version) if version != ours => Finding::unwise(
            format!("pid {pid} is version {version}, this command {ours}"),
            "systemctl restart hooklatch.service",
        ),
        Some(_) => Finding::ok(format!("pid {pid}, version {ours}")),
    }]
}

pub(super) fn runners(machine: &Machine<'_>) -> Vec<Finding> {
    let views = machine.status.iter().flat_map(|status| &status.runners);
    views.map(runner).collect()
}

fn runner(view: &RunnerStatus) -> Finding {
    let (name, unit) = (&view.name, view.name.unit());
    if view.connected {
        return Finding::ok(format!("{name}: connected, {} running", view.running));
    }
    let why = view.why.as_deref().unwrap_or("not connected yet");
    let socket = unit.replace(".service", ".socket");
    let fix = format!("systemctl start {socket} {unit}");
    Finding::bad(format!("{name}: no command can run: {why}"), fix)
}

pub(super) fn control_groups(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(receiver) = &machine.receiver else { return Vec::new() };
    let runners = &machine.runners;
    let together = runners.values().filter_map(|runner| together(receiver, runner));
    let mut findings: Vec<_> = together.collect();
    if findings.is_empty() && !runners.is_empty() {
        findings.push(Finding::ok("a stop of the receiver ends no runner"));
    }
    findings
}

/// Reports a receiver and a runner in one unit: stopping a service ends its whole control group
/// (systemd.kill(5)), including the runner with every command.
fn together(receiver: &Process, runner: &Process) -> Option<Finding> {
    let unit = receiver.unit().filter(|_| receiver.group == runner.group)?;
    let seen = format!("{unit} holds receiver and runner: its stop ends every running command");
    let fix = "run `hooklatch runner` as a unit of its own: hooklatch-runner.service";
    Some(Finding::bad(seen, fix))
}

pub(super) fn open_files(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(receiver) = &machine.receiver else { return Vec::new() };
    let limits = fs::read_to_string(format!("/proc/{}/limits", receiver.pid));
    let soft = limits.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    vec![match soft {
        None => Finding::unknown("the receiver's limit cannot be read (run as root)"),
        Some(soft) if soft < OPEN_FILES => Finding::unwise(
            format!("{soft} at most: a slow flood of connections could shut every client out"),
            format!("LimitNOFILE={OPEN_FILES} in the receiver's unit, or ulimit -Hn {OPEN_FILES}"),
        ),
        Some(soft) => Finding::ok(format!("{soft} at most")),
    }]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Verdict;
    use super::*;

    fn process(group: &str) -> Process {
        Process { pid: 1, uid: 0, group: Some(group.to_owned()) }
    }

    #[test]
    fn receiver_and_runner_in_one_service_is_bad() {
        let one = "/system.slice/web.service";
        let found = together(&process(one), &process(one)).unwrap();
        assert_eq!(found.verdict, Verdict::Bad);
        assert!(found.seen.contains("web.service"), "{}", found.seen);
        assert_eq!(together(&process(one), &process("/system.slice/run.service")), None);
        let session = "/user.slice/session-1.scope";
        assert_eq!(together(&process(session), &process(session)), None);
    }
}
