//! `hooklatch doctor`: finds settings of this machine that would break a promise, and prints a fix for
//! each.
//!
//! Must stay true: it changes no setting, opens the store only where all payloads are to be compared and no receiver
//! runs (S11), and contacts no other machine but that of `storage.url`. As root it can check the most; it reports what it
//! cannot check as unknown.

mod clock;
mod database;
mod disk;
mod finding;
mod machine;
mod payloads;
mod permissions;
mod processes;
mod tls;
mod units;

use anstyle::AnsiColor;
use serde_json::json;

use crate::cli;
use crate::config::{self, Environment};
use crate::exit::{Exit, Failure};

use super::config_check::contents;
use super::of_unit::of_unit;
use super::output::{self, below, whole, words_of};
use super::owner;
use finding::{Finding, Verdict};
use machine::Machine;

type Check = fn(&Machine<'_>) -> Vec<Finding>;

/// Every check, in the order of the output.
const CHECKS: [(&str, Check); 17] = [
    ("configuration", configuration),
    ("permissions", permissions::check),
    ("handlers", handlers),
    ("clock", clock::check),
    ("database", database::check),
    ("history", database::history),
    ("moving", database::receiver),
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
pub(super) fn run(args: &cli::Doctor) -> Result<Exit, Failure> {
    let cli::Doctor { deep, options } = args;
    let path = options.config();
    let findings: Vec<Finding> = match config::load_in_part(path) {
        Ok(config) => {
            let machine = Machine::new(path, &config);
            let found = CHECKS.iter().flat_map(|(name, check)| {
                check(&machine).into_iter().map(|found| Finding { check: name, ..found })
            });
            let mut found: Vec<Finding> = found.collect();
            // The last one: root becomes the store's owner for it, who sees less.
            if *deep {
                found.push(Finding {
                    check: "payloads",
                    ..payloads::check(&config, options.json())
                });
            }
            found
        }
        Err(problems) => {
            let bad = problems.iter().map(|problem| Finding {
                check: "configuration",
                ..Finding::of(problem, Verdict::Bad)
            });
            let clock = Finding { check: "clock", ..clock::judge(clock::read(), &[]) };
            bad.chain([clock]).collect()
        }
    };
    let worst = findings.iter().map(|one| one.verdict).max().unwrap_or(Verdict::Ok);
    output::either(&options.format, &json!({ "verdict": worst, "findings": findings }), || {
        print(&findings)
    })?;
    Ok(Exit::answer(worst != Verdict::Bad))
}

fn print(findings: &[Finding]) -> Result<(), Failure> {
    let row = |finding: &Finding| {
        let (word, colour) = match finding.verdict {
            Verdict::Ok => ("ok", AnsiColor::Green),
            Verdict::Unknown => ("unknown", AnsiColor::BrightBlack),
            Verdict::Unwise => ("unwise", AnsiColor::Yellow),
            Verdict::Bad => ("BAD", AnsiColor::Red),
        };
        let fix = finding.fix.as_ref().map(|fix| format!("fix: {fix}")).unwrap_or_default();
        vec![
            whole("CHECK", finding.check),
            whole("VERDICT", output::painted(word, colour)),
            words_of("SEEN", &finding.seen),
            below("FIX", fix),
        ]
    };
    output::listing(findings.iter().map(row).collect(), false, "nothing was checked")?;
    let number = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
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
        findings.push(Finding::ok(contents(config)));
    }
    findings
}

fn handlers(machine: &Machine<'_>) -> Vec<Finding> {
    let runners = &machine.runners;
    let as_root = runners.values().any(|runner| runner.uid == 0)
        || owner::is_root_alone(&machine.config.store().path);
    if machine.config.runners().is_empty() || !as_root {
        return Vec::new();
    }
    vec![Finding::unwise(owner::AS_ROOT, owner::NOT_AS_ROOT)]
}
