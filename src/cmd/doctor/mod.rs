//! `hooklatch doctor`: finds settings of this machine that would break a promise, and prints a fix for
//! each.
//!
//! Must stay true: it changes no setting, does not open the database, because the receiver may have it
//! open (S11), and contacts no other machine. As root it can check the most; it reports what it cannot
//! check as unknown.

mod clock;
mod disk;
mod permissions;
mod processes;
mod tls;
mod units;

use std::path::Path;

use anstyle::AnsiColor;
use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::config::{self, Config, Environment};
use crate::document::Problem;
use crate::exit::{Exit, Failure};

use super::config_check::of_unit;
use super::output::{self, below, count, whole, words_of};
use super::owner;
use processes::Running;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// No problem was found.
    Ok,
    /// The check was not possible.
    Unknown,
    /// It works now, but can cause harm later.
    Unwise,
    /// It breaks a promise, or makes every delivery of a source fail.
    Bad,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    verdict: Verdict,
    /// What the check found, as a lower-case fragment.
    seen: String,
    /// The command or the line that fixes it.
    fix: Option<String>,
}

impl Finding {
    fn new(verdict: Verdict, seen: impl Into<String>, fix: Option<String>) -> Self {
        let seen = seen.into();
        Finding { verdict, seen, fix }
    }

    fn ok(seen: impl Into<String>) -> Self {
        Finding::new(Verdict::Ok, seen, None)
    }

    fn unknown(seen: impl Into<String>) -> Self {
        Finding::new(Verdict::Unknown, seen, None)
    }

    fn unwise(seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding::new(Verdict::Unwise, seen, Some(fix.into()))
    }

    fn bad(seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding::new(Verdict::Bad, seen, Some(fix.into()))
    }

    /// The finding for a problem of the configuration.
    fn of(problem: &Problem, verdict: Verdict) -> Self {
        let mut seen = problem.file.clone();
        if problem.line > 0 {
            seen += &format!(":{}", problem.line);
        }
        if !problem.key.is_empty() {
            seen += &format!(": {}", problem.key);
        }
        Finding::new(verdict, format!("{seen}: {}", problem.message), problem.help.clone())
    }
}

/// The input of the checks.
struct Machine<'a> {
    /// The path of the configuration.
    path: &'a Path,
    config: &'a Config,
    running: Running,
}

type Check = fn(&Machine<'_>) -> Vec<Finding>;

/// Every check, in the order of the output.
const CHECKS: [(&str, Check); 14] = [
    ("configuration", configuration),
    ("permissions", permissions::check),
    ("handlers", handlers),
    ("clock", clock::check),
    ("file system", disk::file_system),
    ("space", disk::space),
    ("flush", disk::flush),
    ("receiver", processes::receiver),
    ("open files", processes::open_files),
    ("runner", processes::runners),
    ("control groups", processes::control_groups),
    ("units", units::check),
    ("TLS", tls::check),
    ("proxy", tls::proxy),
];

/// Runs every check and prints the findings.
pub(super) fn run(args: &cli::Overview) -> Result<Exit, Failure> {
    let path = &args.file.config;
    let findings: Vec<(&str, Finding)> = match config::load_in_part(path) {
        Ok(config) => {
            let machine = Machine { path, config: &config, running: processes::find(&config) };
            let mut findings = Vec::new();
            for (name, check) in CHECKS {
                findings.extend(check(&machine).into_iter().map(|finding| (name, finding)));
            }
            findings
        }
        Err(problems) => {
            let bad = |problem| ("configuration", Finding::of(problem, Verdict::Bad));
            problems.iter().map(bad).chain([("clock", clock::judge(clock::status(), ""))]).collect()
        }
    };
    let worst = findings.iter().map(|(_, one)| one.verdict).max().unwrap_or(Verdict::Ok);
    if args.format.json {
        let found = |(check, one): &(&str, Finding)| json!({ "check": check, "verdict": one.verdict, "seen": one.seen, "fix": one.fix });
        let findings: Vec<_> = findings.iter().map(found).collect();
        output::json(&json!({ "verdict": worst, "findings": findings }))?;
    } else {
        print(&findings)?;
    }
    Ok(if worst == Verdict::Bad { Exit::No } else { Exit::Ok })
}

fn print(findings: &[(&str, Finding)]) -> Result<(), Failure> {
    let row = |(check, finding): &(&str, Finding)| {
        let (word, colour) = match finding.verdict {
            Verdict::Ok => ("ok", AnsiColor::Green),
            Verdict::Unknown => ("unknown", AnsiColor::BrightBlack),
            Verdict::Unwise => ("unwise", AnsiColor::Yellow),
            Verdict::Bad => ("BAD", AnsiColor::Red),
        };
        let fix = finding.fix.as_ref().map(|fix| format!("fix: {fix}")).unwrap_or_default();
        vec![check.into(), output::painted(word, colour), (&finding.seen).into(), fix.into()]
    };
    let columns = vec![whole("CHECK"), whole("VERDICT"), words_of("SEEN"), below("FIX")];
    output::listing(columns, findings.iter().map(row).collect(), false, "nothing was checked")?;
    let number = |verdict| findings.iter().filter(|(_, one)| one.verdict == verdict).count();
    output::line("")?;
    output::line(match (number(Verdict::Bad), number(Verdict::Unwise)) {
        (0, 0) => "nothing to fix".to_owned(),
        (bad, unwise) => format!("{bad} bad, {unwise} unwise"),
    })
}

fn configuration(machine: &Machine<'_>) -> Vec<Finding> {
    let config = machine.config;
    let environment = of_unit(&Environment::capture(), machine.path, "secrets");
    let mut warnings = config.warnings();
    warnings.extend(config.secret_warnings(&environment));
    let bad = config.mistakes().iter().map(|mistake| Finding::of(mistake, Verdict::Bad));
    let unwise = warnings.iter().map(|warning| Finding::of(warning, Verdict::Unwise));
    let mut findings: Vec<_> = bad.chain(unwise).collect();
    if findings.is_empty() {
        let (sources, handlers) = (config.source_count() as u64, config.handler_count() as u64);
        let (sources, handlers) = (count(sources, "source"), count(handlers, "handler"));
        findings.push(Finding::ok(format!("{sources}, {handlers}")));
    }
    findings
}

fn handlers(machine: &Machine<'_>) -> Vec<Finding> {
    let runners = &machine.running.runners;
    let as_root = runners.values().any(|runner| runner.uid == 0)
        || owner::is_root_alone(&machine.config.store().path);
    if machine.config.runners().is_empty() || !as_root {
        return Vec::new();
    }
    vec![Finding::unwise(owner::AS_ROOT, owner::NOT_AS_ROOT)]
}
