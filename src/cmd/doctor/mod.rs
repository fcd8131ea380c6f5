//! `hooklatch doctor`: finds settings of this machine that would break a promise, and prints a fix for
//! each.
//!
//! Must stay true: it changes no setting, does not open the database, because the receiver may have it
//! open (S11), and contacts no other machine. As root it can check the most; it reports what it cannot
//! check as unknown.

mod clock;
mod disk;
mod finding;
mod machine;
mod permissions;
mod processes;
mod tls;
mod units;

use anstyle::AnsiColor;
use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::config::{self, Environment};
use crate::exit::{Exit, Failure};

use super::config_check::of_unit;
use super::output::{self, below, count, whole, words_of};
use super::owner;
use finding::{Finding, Verdict};
use machine::Machine;

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

/// A finding with the name of its check.
#[derive(Serialize)]
struct Checked {
    check: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

impl Checked {
    fn new(check: &'static str, finding: Finding) -> Self {
        Checked { check, finding }
    }
}

/// Runs every check and prints the findings.
pub(super) fn run(args: &cli::Options) -> Result<Exit, Failure> {
    let path = args.config();
    let findings: Vec<Checked> = match config::load_in_part(path) {
        Ok(config) => {
            let machine = Machine::new(path, &config);
            let mut findings = Vec::new();
            for (name, check) in CHECKS {
                findings.extend(check(&machine).into_iter().map(|found| Checked::new(name, found)));
            }
            findings
        }
        Err(problems) => {
            let bad = |problem| Checked::new("configuration", Finding::of(problem, Verdict::Bad));
            let clock = Checked::new("clock", clock::judge(clock::status(), ""));
            problems.iter().map(bad).chain([clock]).collect()
        }
    };
    let worst = findings.iter().map(|one| one.finding.verdict).max().unwrap_or(Verdict::Ok);
    output::either(&args.format, &json!({ "verdict": worst, "findings": findings }), || {
        print(&findings)
    })?;
    Ok(if worst == Verdict::Bad { Exit::No } else { Exit::Ok })
}

fn print(findings: &[Checked]) -> Result<(), Failure> {
    let row = |Checked { check, finding }: &Checked| {
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
    let number = |verdict| findings.iter().filter(|one| one.finding.verdict == verdict).count();
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
