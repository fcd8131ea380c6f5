//! `hooklatch audit`: who has changed what.

use crate::cli::{self, Listing};
use crate::exit::{Exit, Failure};
use crate::store::{AuditFilter, AuditRow, AuditSubject};

use super::ids::{self, Short};
use super::output::{self, below, count, cut, local, whole, words_of};
use super::{jobs, store};

/// Lists changes, newest first.
pub(super) fn run(args: &cli::Audit) -> Result<Exit, Failure> {
    let Listing { options, wide, limit } = &args.listing;
    let since = jobs::since(args.since)?;
    let filter = AuditFilter { verb: args.verb, since, limit: Some(*limit), before: None };
    let config = store::load(options)?;
    let (rows, short) = store::with_client(&config, async |client| {
        let rows = store::audit(client, filter).await?;
        let named = |AuditRow { subject, .. }: &AuditRow| {
            let job = subject.job.map(|job| job.to_string());
            job.into_iter().chain(subject.event.as_ref().map(ToString::to_string))
        };
        let ids = rows.iter().flat_map(named).collect();
        let short = ids::shorten(client, ids, &args.listing).await?;
        Ok((rows, short))
    })?;
    let row = |row: &AuditRow| {
        vec![
            whole("TIME", local(row.at)),
            words_of("WHO", who(row)),
            words_of("VERB", row.verb),
            whole("#", row.count),
            cut("SUBJECT", 8, subject(&row.subject, &short)),
            below("REASON", said(row)),
        ]
    };
    output::rows(&options.format, &rows, row, *wide, "nothing was changed")
}

pub(super) fn who(row: &AuditRow) -> String {
    match &row.name {
        Some(name) => format!("{name} (user {})", row.uid),
        None => format!("user {}", row.uid),
    }
}

/// The narrowest thing that names it.
pub(super) fn subject(subject: &AuditSubject, short: &Short) -> String {
    let AuditSubject { job, event, handler, source, state, refused_for, node, jobs, .. } = subject;
    let job = job.map(|job| format!("job {}", short.of(job)));
    let event = event.as_ref().map(|event| format!("event {}", short.of(event)));
    let handler = handler.as_ref().map(|handler| format!("handler {handler}"));
    let source = source.as_ref().map(|source| format!("source {source}"));
    let many = state.map(|state| format!("{} {state}", count(jobs.len() as u64, "job")));
    let node = node.as_ref().map(|node| format!("node {node}"));
    let found = job.or(event).or(handler).or(source).or(refused_for.clone()).or(node).or(many);
    found.unwrap_or_default()
}

/// The result where it is not simply done, and the reason.
pub(super) fn said(row: &AuditRow) -> String {
    let result = Some(&row.result).filter(|result| *result != "done").cloned();
    let parts: Vec<String> = result.into_iter().chain(row.reason.clone()).collect();
    parts.join("; ")
}
