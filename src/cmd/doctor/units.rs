//! The units under which receiver and runners run: settings that would kill handlers, or close the door.

use std::path::Path;
use std::process::Command;

use crate::config::Config;
use crate::limits::{Limits, Unit};

use super::Finding;
use super::processes::Running;

const CHECK: &str = "units";

/// Where a running systemd shows itself (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// What is asked of a unit, in systemd's names (systemd.kill(5), systemd.service(5)).
const ASKED: &str =
    "Type,KillMode,OOMPolicy,TimeoutStopUSec,Restart,StartLimitIntervalUSec,BindsTo,PartOf";

pub(super) fn look(config: &Config, running: &Running) -> Vec<Finding> {
    if !Path::new(SYSTEMD).exists() {
        return vec![Finding::unknown(CHECK, "no systemd runs here: nothing starts it again")];
    }
    let mut found = Vec::new();
    let drain = Limits::duration(config.limits().runner_drain_millis);
    for runner in running.runners.values() {
        match runner.unit() {
            Some(unit) => found.extend(ask(unit, |said| runner_unit(unit, said, drain))),
            None if running.receiver.as_ref().is_some_and(|one| one.unit().is_some()) => {
                let seen = format!(
                    "the runner (pid {}) is in no unit: nothing starts it again",
                    runner.pid
                );
                found.push(Finding::unwise(
                    CHECK,
                    seen,
                    "systemctl enable --now hooklatch-runner.socket",
                ));
            }
            None => {}
        }
    }
    if let Some(receiver) = &running.receiver {
        match receiver.unit() {
            Some(unit) => found.extend(ask(unit, |said| restarts(unit, said))),
            None => {
                let seen = "the receiver is in no unit: nothing starts it again";
                found.push(Finding::unwise(
                    CHECK,
                    seen,
                    "systemctl enable --now hooklatch.socket hooklatch.service",
                ));
            }
        }
    }
    if found.is_empty() && running.receiver.is_some() {
        found.push(Finding::ok(CHECK, "restarted whatever happens, and no stop kills a command"));
    }
    found
}

/// Asks systemd for a unit's settings and judges them.
fn ask(unit: &str, judge: impl FnOnce(&[(String, String)]) -> Vec<Finding>) -> Vec<Finding> {
    let asked = Command::new("systemctl").args(["show", unit, "--property", ASKED]).output();
    match asked {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            let pair = |line: &str| {
                line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
            };
            judge(&said.lines().filter_map(pair).collect::<Vec<_>>())
        }
        Ok(_) | Err(_) => {
            vec![Finding::unknown(CHECK, format!("systemctl does not tell of {unit}"))]
        }
    }
}

fn value<'a>(said: &'a [(String, String)], key: &str) -> &'a str {
    said.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
}

fn drop_in(unit: &str, line: &str) -> String {
    format!("systemctl edit {unit}, and write: {line}")
}

fn runner_unit(unit: &str, said: &[(String, String)], drain: std::time::Duration) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut bad = |seen: String, line: &str| {
        found.push(Finding::bad(CHECK, format!("{unit}: {seen}"), drop_in(unit, line)));
    };
    if value(said, "KillMode") != "mixed" {
        let mode = value(said, "KillMode");
        bad(format!("KillMode={mode}: a stop signals every command"), "[Service] KillMode=mixed");
    }
    if value(said, "OOMPolicy") == "stop" || value(said, "OOMPolicy") == "kill" {
        let seen = "one command out of memory ends all the others".to_owned();
        bad(seen, "[Service] OOMPolicy=continue");
    }
    for tie in ["BindsTo", "PartOf"] {
        if value(said, tie).contains("hooklatch") {
            bad(
                format!("{tie}={}: it is stopped with that", value(said, tie)),
                "[Unit] without it",
            );
        }
    }
    // One that systemd listens to says by itself that its stop goes on.
    if value(said, "Type") != "notify"
        && let Some(stop) = span(value(said, "TimeoutStopUSec"))
        && stop <= drain
    {
        let drain_text = Unit::Millis.show(u64::try_from(drain.as_millis()).unwrap_or(u64::MAX));
        let seen = format!("TimeoutStopSec is not longer than runner_drain_millis ({drain_text})");
        bad(seen, &format!("[Service] TimeoutStopSec={}", drain.as_secs() + 60));
    }
    found.extend(restarts(unit, said));
    found
}

/// What a crash loop must not do: leave the port closed for good.
fn restarts(unit: &str, said: &[(String, String)]) -> Vec<Finding> {
    let mut found = Vec::new();
    if value(said, "Restart") != "always" {
        let seen = format!("{unit}: Restart={}", value(said, "Restart"));
        found.push(Finding::unwise(CHECK, seen, drop_in(unit, "[Service] Restart=always")));
    }
    if span(value(said, "StartLimitIntervalUSec")).is_some_and(|limit| !limit.is_zero()) {
        let seen = format!("{unit}: after a few quick crashes systemd leaves it stopped");
        found.push(Finding::unwise(CHECK, seen, drop_in(unit, "[Unit] StartLimitIntervalSec=0")));
    }
    found
}

/// A time as `systemctl show` prints it: `1min 30s`; none for `infinity`.
fn span(text: &str) -> Option<std::time::Duration> {
    match text {
        "" | "infinity" => None,
        "0" => Some(std::time::Duration::ZERO),
        text => humantime::parse_duration(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn said(lines: &[&str]) -> Vec<(String, String)> {
        let pairs = lines.iter().map(|line| line.split_once('=').unwrap());
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_runners_unit_that_would_kill_commands_is_told_with_the_line_that_mends_it() {
        let good = said(&[
            "KillMode=mixed",
            "OOMPolicy=continue",
            "TimeoutStopUSec=11min",
            "Restart=always",
            "StartLimitIntervalUSec=0",
            "BindsTo=",
            "PartOf=",
        ]);
        let drain = Duration::from_secs(600);
        assert_eq!(runner_unit("r.service", &good, drain), []);
        let told = [&good[..], &said(&["Type=notify"])].concat();
        assert_eq!(runner_unit("r.service", &told, drain * 3), [], "it says that its stop goes on");
        let wrong = said(&[
            "KillMode=control-group",
            "OOMPolicy=stop",
            "TimeoutStopUSec=1min 30s",
            "Restart=no",
            "StartLimitIntervalUSec=10s",
            "BindsTo=hooklatch.service",
            "PartOf=",
        ]);
        let found = runner_unit("r.service", &wrong, drain);
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
    }
}
