//! `hooklatch doctor`: what of this machine would keep the promises from being kept, each with the line
//! that fixes it.
//!
//! It changes nothing, opens no database (rule S11: the receiver may have it open) and asks nothing of
//! other machines. What it cannot see, it says so: run as root it sees most.

mod clock;
mod disk;
mod front;
mod people;
mod processes;
mod units;

use std::path::Path;

use anstyle::AnsiColor;
use serde::Serialize;

use crate::cli;
use crate::config::{self, Config, Environment};
use crate::document::Problem;
use crate::exit::{Exit, Failure};

use super::config_check::of_unit;
use super::output::{self, below, count, whole, words_of};
use super::owner;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be looked at.
    Unknown,
    /// It works, and will hurt one day.
    Unwise,
    /// A promise, or every delivery of a source, is at stake.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was looked at, in a word or two.
    check: &'static str,
    verdict: Verdict,
    /// What was seen.
    seen: String,
    /// The line that fixes it.
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Finding { check, verdict: Verdict::Ok, seen: seen.into(), fix: None }
    }

    fn unknown(check: &'static str, seen: impl Into<String>) -> Self {
        Finding { check, verdict: Verdict::Unknown, seen: seen.into(), fix: None }
    }

    fn unwise(check: &'static str, seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { check, verdict: Verdict::Unwise, seen: seen.into(), fix: Some(fix.into()) }
    }

    fn bad(check: &'static str, seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { check, verdict: Verdict::Bad, seen: seen.into(), fix: Some(fix.into()) }
    }
}

/// Looks at everything and prints what was found.
pub(super) fn run(args: &cli::Doctor) -> Result<Exit, Failure> {
    let path = &args.file.config;
    let mut findings = Vec::new();
    let bad = |problem| told(problem, Verdict::Bad);
    match config::load_in_part(path) {
        Ok(config) => {
            findings.extend(config.mistakes().iter().map(bad));
            look(path, &config, &mut findings);
        }
        Err(problems) => {
            findings.extend(problems.iter().map(bad));
            findings.push(clock::synchronised(&[]));
        }
    }
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    match args.format.json {
        true => output::json(&serde_json::json!({ "verdict": worst, "findings": findings }))?,
        false => print(&findings)?,
    }
    Ok(if worst == Verdict::Bad { Exit::No } else { Exit::Ok })
}

fn look(path: &Path, config: &Config, findings: &mut Vec<Finding>) {
    let running = processes::find(config);
    let mut warnings = config.warnings();
    let environment = of_unit(&Environment::capture(), path, "secrets");
    warnings.extend(config.secret_warnings(&environment));
    findings.extend(warnings.iter().map(|warning| told(warning, Verdict::Unwise)));
    if warnings.is_empty() && config.mistakes().is_empty() {
        let (sources, handlers) = (config.source_count() as u64, config.handler_count() as u64);
        let seen = format!("{}, {}", count(sources, "source"), count(handlers, "handler"));
        findings.push(Finding::ok("configuration", seen));
    }
    // It asks `config check`, which would only repeat the mistakes.
    if config.mistakes().is_empty() {
        findings.extend(people::look(path, config, &running));
    }
    let as_root = running.runners.values().any(|runner| runner.owner.0 == 0);
    if !config.runners().is_empty() && (as_root || owner::is_root_alone(&config.store().path)) {
        findings.push(Finding::unwise("handlers", owner::AS_ROOT, owner::NOT_AS_ROOT));
    }
    findings.push(clock::synchronised(&config.shown().sources));
    findings.extend(disk::look(&config.store()));
    findings.extend(running.look());
    findings.extend(units::look(config, &running));
    findings.extend(front::look(config, &running.listening));
}

/// A problem of the configuration as a finding.
fn told(problem: &Problem, verdict: Verdict) -> Finding {
    let Problem { file, line, key, message, help, .. } = problem;
    let line = if *line > 0 { format!(":{line}") } else { String::new() };
    let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
    let seen = format!("{file}{line}: {key}{message}");
    Finding { check: "configuration", verdict, seen, fix: help.clone() }
}

fn print(findings: &[Finding]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for finding in findings {
        let (word, colour) = match finding.verdict {
            Verdict::Ok => ("ok", AnsiColor::Green),
            Verdict::Unknown => ("unknown", AnsiColor::BrightBlack),
            Verdict::Unwise => ("unwise", AnsiColor::Yellow),
            Verdict::Bad => ("BAD", AnsiColor::Red),
        };
        let fix = finding.fix.as_ref().map(|fix| format!("fix: {fix}"));
        rows.push(vec![
            finding.check.into(),
            output::painted(word, colour),
            (&finding.seen).into(),
            fix.unwrap_or_default().into(),
        ]);
    }
    let columns = vec![whole("CHECK"), whole("VERDICT"), words_of("SEEN"), below("FIX")];
    output::listing(columns, rows, false, "nothing was looked at")?;
    let number = |verdict| findings.iter().filter(|one| one.verdict == verdict).count() as u64;
    let (bad, unwise) = (number(Verdict::Bad), number(Verdict::Unwise));
    output::line("")?;
    output::line(match (bad, unwise) {
        (0, 0) => "nothing to fix".to_owned(),
        _ => format!("{bad} bad, {unwise} unwise"),
    })
}
