//! `hooklatch restore`: makes a backup the store, and first prints what the backup cannot know.

use std::path::Path;

use serde_json::json;

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::Name;
use crate::store::{self as kept, RestoreError, RestoreResult};

use super::output::{self, count, local, span, thousands};
use super::{owner, store};

/// Restores, and prints what the operator has to do.
pub(super) fn run(args: &cli::Restore) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    store::need_file(&config)?;
    let settings = config.store();
    // Before the change of user: often only root can read the backup and the files next to it.
    kept::refuse_log(&args.from).map_err(RestoreError::from)?;
    let mut file = owner::open(&args.from)?;
    owner::assume(&settings.path)?;
    let clock = Clock::system();
    let restored = kept::restore(&settings, &args.from, &mut file, args.replace, &clock)?;
    let sources: Vec<_> = config
        .sources
        .iter()
        .map(|source| (&source.name, source.scheme.setup().redeliver.as_deref()))
        .collect();
    let RestoreResult { store, row, backup, aside } = &restored;
    let source = |(name, how): &_| json!({ "source": name, "redeliver": how });
    let json = json!({
        "made_at": row.made_at,
        "restored_at": row.restored_at,
        "sources": sources.iter().map(source).collect::<Vec<_>>(),
        "held": row.held,
        "events": backup.events,
        "newest_event_at": backup.newest_event_at,
        "file": args.from,
        "store": store,
        "from_store": row.from_store,
        "path": settings.path,
        "aside": aside,
    });
    output::either(&args.options.format, &json, || print(args, &settings.path, &sources, &restored))
}

fn print(
    args: &cli::Restore,
    path: &Path,
    sources: &[(&Name, Option<&str>)],
    restored: &RestoreResult,
) -> Result<(), Failure> {
    let RestoreResult { store, row, backup, aside } = restored;
    let (made, at) = (local(row.made_at), local(row.restored_at));
    let length = span(row.restored_at.since(row.made_at));
    let gap = format!("{length}, from {made} to {at}: nothing that came then is known here");
    output::fact("gap", gap)?;
    output::fact("", "have it sent again by hand; what a handler did for it then, it does again:")?;
    for (name, how) in sources {
        let how = how.unwrap_or("see whether its sender can send again");
        output::fact("", format!("{name}: {how}"))?;
    }
    let (events, jobs) = (thousands(backup.events), count(backup.jobs.values().sum(), "job"));
    let newest = backup.newest_event_at.map(|at| format!(", the newest event of {}", local(at)));
    let newest = newest.unwrap_or_default();
    let file = args.from.display();
    output::fact("restored", format!("{file}: {events} events, {jobs}{newest}"))?;
    output::fact("store", format!("{}, now {}", path.display(), store.simple()))?;
    if let Some(aside) = aside {
        output::fact("aside", format!("the store that was there: {}", aside.display()))?;
    }
    if row.held > 0 {
        let held = count(row.held, "job");
        let text = format!("{held} not finished in the backup: they may have run since");
        output::fact("held", text)?;
    }
    let suffix = args.options.suffix();
    let next = if row.held == 0 { "serve" } else { "held --reason restored" };
    output::fact("next", format!("hooklatch {next}{suffix}"))
}
