//! Checks the PostgreSQL server that `storage.url` names, and what makes this machine a node of it.

use crate::clock::Clock;
use crate::config::Environment;
use crate::store::postgres::{self, Admin, Connection, HistoryStatus, Severity};

use super::super::of_unit::of_unit;
use super::super::runtime::block_on;
use super::finding::{Finding, Verdict};
use super::machine::Machine;

pub(super) fn check(machine: &Machine<'_>) -> Vec<Finding> {
    let environment = of_unit(&Environment::capture(), machine.path, "secrets");
    let node = match machine.config.cluster_node(&environment) {
        Ok(Some(node)) => node,
        Ok(None) => return Vec::new(),
        Err(problems) => {
            return problems.iter().map(|one| Finding::of(one, Verdict::Bad)).collect();
        }
    };
    let looked = block_on(async {
        let connection = Connection::open(&node.target).await.map_err(|error| error.to_string())?;
        postgres::check(&connection, &Clock::system()).await
    });
    let found = match looked {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => return vec![finding(Verdict::Bad, &why)],
        Err(failure) => return vec![Finding::unknown(failure.message)],
    };
    if found.is_empty() {
        return vec![Finding::ok(format!("it is what a store needs; this is node {}", node.name))];
    }
    let of = |found: &postgres::Finding| {
        let verdict = match found.severity {
            Severity::Refused | Severity::Unready => Verdict::Bad,
            Severity::Warned => Verdict::Unwise,
        };
        finding(verdict, &found.text)
    };
    found.iter().map(of).collect()
}

/// What stands still in the running receiver, and what the server has warned it of.
pub(super) fn receiver(machine: &Machine<'_>) -> Vec<Finding> {
    let stalls = machine.stalls.iter().map(|stall| finding(Verdict::Bad, &stall.to_string()));
    let warning = machine.warning.iter();
    let warning = warning
        .map(|text| Finding::unwise(format!("the server warns: {text}"), "see the server's log"));
    stalls.chain(warning).collect()
}

/// Says of which history the rows are, and names each node that a roll call waits for. What keeps the database from
/// being read is a finding of [`check`].
pub(super) fn history(machine: &Machine<'_>) -> Vec<Finding> {
    let environment = of_unit(&Environment::capture(), machine.path, "secrets");
    let Ok(Some(target)) = machine.config.database(&environment) else { return Vec::new() };
    let admin = Admin::new(target, machine.config.limits(), Clock::system());
    let Ok(Ok(Some(history))) = block_on(admin.history()) else { return Vec::new() };
    let HistoryStatus { system, timeline, store, awaited } = history;
    let known = format!("system {system}, timeline {timeline}, store {store}");
    let awaited = awaited.iter().map(|node| Finding::unwise(node.to_string(), node.help()));
    [Finding::ok(known)].into_iter().chain(awaited).collect()
}

/// The store's texts end with what to do, behind a semicolon.
fn finding(verdict: Verdict, text: &str) -> Finding {
    match text.rsplit_once("; ") {
        Some((seen, fix)) => Finding::new(verdict, seen, Some(fix.to_owned())),
        None => Finding::new(verdict, text, None),
    }
}
