//! Checks the systemd units of the receiver and the runners for settings that would kill handlers or
//! leave the port closed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::limits::{Limits, Unit};

use super::finding::Finding;
use super::machine::{Machine, Process};

/// A folder that exists while systemd runs as the service manager (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// A property of a unit (systemd.kill(5), systemd.service(5)), the value that it must have, and the effect
/// of another value.
type Rule = (&'static str, &'static str, &'static str);

/// Rules for a runner's unit, which must not end the runner's commands.
const RUNNER: [Rule; 2] = [
    ("KillMode", "mixed", "a stop signals every command"),
    ("OOMPolicy", "continue", "one command out of memory ends all the others"),
];

/// Rules for every unit: a crash must not leave the port closed permanently.
const RESTARTS: [Rule; 2] = [
    ("Restart", "always", "it may stay stopped"),
    ("StartLimitIntervalUSec", "0", "after a few quick crashes systemd leaves it stopped"),
];

pub(super) fn check(machine: &Machine<'_>) -> Vec<Finding> {
    if !Path::new(SYSTEMD).exists() {
        return vec![Finding::unknown("no systemd runs here: nothing starts it again")];
    }
    let receiver = machine.receiver.as_ref();
    let drain = Limits::duration(machine.config.limits().runner_drain_millis);
    let mut findings = Vec::new();
    for runner in machine.runners.values() {
        match runner.unit() {
            Some(unit) => findings.extend(judge(unit, properties(unit).as_deref(), Some(drain))),
            None if receiver.is_some_and(|receiver| receiver.unit().is_some()) => {
                findings.push(Finding::unwise(
                    format!(
                        "the runner (pid {}) is in no unit: nothing starts it again",
                        runner.pid
                    ),
                    "systemctl enable --now hooklatch-runner.socket",
                ))
            }
            // The receiver launched it, and is not in a unit either.
            None => {}
        }
    }
    match receiver.map(Process::unit) {
        Some(Some(unit)) => findings.extend(judge(unit, properties(unit).as_deref(), None)),
        Some(None) => findings.push(Finding::unwise(
            "the receiver is in no unit: nothing starts it again",
            "systemctl enable --now hooklatch.socket hooklatch.service",
        )),
        None => {}
    }
    if findings.is_empty() && receiver.is_some() {
        findings.push(Finding::ok("always restarted, and no stop kills a command"));
    }
    findings
}

/// The properties of a unit, as systemd prints them: `KEY=VALUE` lines.
fn properties(unit: &str) -> Option<String> {
    let output = Command::new("systemctl").args(["show", unit]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks one unit. `drain` is `Some` for a runner's unit: how long the runner waits for its commands when
/// it is stopped.
fn judge(unit: &str, properties: Option<&str>, drain: Option<Duration>) -> Vec<Finding> {
    let Some(properties) = properties else {
        return vec![Finding::unknown(format!("systemctl does not know {unit}"))];
    };
    let value = |key: &str| {
        let mut values = properties.lines().filter_map(|line| line.strip_prefix(key));
        values.find_map(|rest| rest.strip_prefix('=')).unwrap_or_default()
    };
    let finding = |bad: bool, seen: String, line: &str| {
        let (seen, fix) =
            (format!("{unit}: {seen}"), format!("systemctl edit {unit}, and write: {line}"));
        if bad { Finding::bad(seen, fix) } else { Finding::unwise(seen, fix) }
    };
    let broken = |bad: bool, rules: [Rule; 2]| {
        // An older systemd does not know every property, so an empty value passes.
        let fits = |(property, wanted, _): &Rule| ["", *wanted].contains(&value(property));
        let rules = rules.into_iter().filter(|rule| !fits(rule));
        let fault = |(property, wanted, effect): Rule| {
            let section = if property == "StartLimitIntervalUSec" { "Unit" } else { "Service" };
            let line = format!("[{section}] {}={wanted}", property.replace("USec", "Sec"));
            finding(bad, format!("{property}={}: {effect}", value(property)), &line)
        };
        rules.map(fault).collect::<Vec<_>>()
    };
    let mut findings = Vec::new();
    if let Some(drain) = drain {
        findings.extend(broken(true, RUNNER));
        for tie in ["BindsTo", "PartOf"] {
            if value(tie).contains("hooklatch") {
                let seen = format!("{tie}={}: it is stopped with that", value(tie));
                findings.push(finding(true, seen, "[Unit] without it"));
            }
        }
        // A service of type notify extends its stop timeout while it stops. No timeout, or `infinity`, does not parse.
        let timeout = humantime::parse_duration(value("TimeoutStopUSec"));
        if value("Type") != "notify" && timeout.is_ok_and(|timeout| timeout <= drain) {
            let text = Unit::Millis.show(u64::try_from(drain.as_millis()).unwrap_or(u64::MAX));
            let seen = format!("TimeoutStopSec is not longer than runner_drain_millis ({text})");
            let line = format!("[Service] TimeoutStopSec={}", drain.as_secs() + 60);
            findings.push(finding(true, seen, &line));
        }
    }
    findings.extend(broken(false, RESTARTS));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_unit_that_would_kill_commands_is_reported_with_its_fix() {
        let good = "KillMode=mixed\nOOMPolicy=continue\nTimeoutStopUSec=11min\nRestart=always\n\
                    RestartUSec=100ms\nStartLimitIntervalUSec=0\nBindsTo=\nPartOf=\n";
        let drain = Duration::from_secs(600);
        assert_eq!(judge("r.service", Some(good), Some(drain)), []);
        let notifies = format!("{good}Type=notify\n");
        assert_eq!(judge("r.service", Some(&notifies), Some(drain * 3)), [], "it extends its stop");
        let wrong = "KillMode=control-group\nOOMPolicy=stop\nTimeoutStopUSec=1min 30s\nRestart=no\n\
                     StartLimitIntervalUSec=10s\nBindsTo=hooklatch.service\nPartOf=\n";
        let found = judge("r.service", Some(wrong), Some(drain));
        let fixes: Vec<_> = found.iter().filter_map(|one| one.fix.as_deref()).collect();
        assert_eq!(found.len(), 6, "{found:#?}");
        for wanted in [
            "KillMode=mixed",
            "OOMPolicy=continue",
            "TimeoutStopSec=660",
            "Restart=always",
            "StartLimitIntervalSec=0",
        ] {
            assert!(fixes.iter().any(|fix| fix.contains(wanted)), "{wanted}: {fixes:?}");
        }
        assert_eq!(judge("s.service", Some(wrong), None).len(), 2, "a receiver has no commands");
    }
}
