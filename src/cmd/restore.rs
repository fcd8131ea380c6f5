//! `hooklatch restore`: a backup becomes the store; what it cannot know is said first.

use std::path::{Path, PathBuf};

use serde::Serialize;
use uuid::Uuid;

use crate::cli;
use crate::clock::Clock;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::model::{Name, Timestamp};
use crate::store::{self as kept, OpenError, RestoreError, Restored};

use super::output::{self, count, local, span, thousands};
use super::{backup, owner, store};

/// Restores, and says what is to be done by hand.
pub(super) fn run(args: &cli::Restore) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let settings = config.store();
    // Before the change of user: a backup is often root's alone, and so is what lies beside it.
    kept::refuse_log(&args.from).map_err(|error| failure(error.into()))?;
    let mut file = owner::open(&args.from)?;
    owner::assume(&settings.path)?;
    let restored =
        kept::restore(&settings, &mut file, args.replace, &Clock::system()).map_err(failure)?;
    let report = report(&config, &args.from, restored);
    match args.format.json {
        true => output::json(&report)?,
        false => people(&report, &output::config_suffix(&args.file.config))?,
    }
    Ok(Exit::Ok)
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// Between the two times nothing is known of what came.
    made_at: Timestamp,
    restored_at: Timestamp,
    /// What each source's provider can send again.
    sources: Vec<SourceLine>,
    /// Jobs that were not finished, and wait for a person.
    held: u64,
    events: u64,
    newest_event_at: Option<Timestamp>,
    file: PathBuf,
    store: Uuid,
    from_store: Uuid,
    path: PathBuf,
    aside: Option<PathBuf>,
    #[serde(skip)]
    jobs: String,
}

#[derive(Debug, Serialize)]
struct SourceLine {
    source: Name,
    redeliver: Option<String>,
}

fn report(config: &Config, from: &Path, restored: Restored) -> Report {
    let redeliver = |name: &Name| {
        let setup = config.scheme_of(name).map(|scheme| scheme.setup());
        let redeliver = setup.and_then(|setup| setup.redeliver.clone());
        SourceLine { source: name.clone(), redeliver }
    };
    let Restored { store, row, backup, aside } = restored;
    Report {
        made_at: row.made_at,
        restored_at: row.restored_at,
        sources: config.sources().map(|(name, _)| redeliver(name)).collect(),
        held: row.held,
        events: backup.events,
        newest_event_at: backup.newest_event_at,
        file: from.to_owned(),
        store,
        from_store: row.from_store,
        path: config.store().path,
        aside,
        jobs: backup::jobs(&backup.jobs),
    }
}

fn people(report: &Report, suffix: &str) -> Result<(), Failure> {
    let say = |about: &str, text: String| output::line(format_args!("{about:<10}{text}"));
    let (made, restored) = (local(report.made_at), local(report.restored_at));
    let length = span(report.restored_at.since(report.made_at));
    say(
        "gap",
        format!("{length}, from {made} to {restored}: nothing that came then is known here"),
    )?;
    say(
        "",
        "have it sent again by hand; what a handler did for it then, it does again:".to_owned(),
    )?;
    for line in &report.sources {
        let how = line.redeliver.as_deref().unwrap_or("see whether its sender can send again");
        say("", format!("{}: {how}", line.source))?;
    }
    let (events, jobs) = (thousands(report.events), &report.jobs);
    let newest = report.newest_event_at.map(|at| format!(", the newest event of {}", local(at)));
    let newest = newest.unwrap_or_default();
    say("restored", format!("{}: {events} events, {jobs}{newest}", report.file.display()))?;
    say("store", format!("{}, now {}", report.path.display(), report.store.simple()))?;
    if let Some(aside) = &report.aside {
        say("aside", format!("the store that was there: {}", aside.display()))?;
    }
    if report.held > 0 {
        let held = count(report.held, "job");
        say("held", format!("{held} not finished in the backup: they may have run since"))?;
    }
    let next = match report.held {
        0 => format!("hooklatch serve{suffix}"),
        _ => format!("hooklatch held --reason restored{suffix}"),
    };
    say("next", next)
}

fn failure(error: RestoreError) -> Failure {
    let exit = match &error {
        RestoreError::Exists { .. } | RestoreError::Backup(_) => Exit::WrongState,
        RestoreError::NoSpace { .. } | RestoreError::NotEnded { .. } => Exit::Io,
        RestoreError::Store(_) => Exit::Unavailable,
    };
    let help = match &error {
        RestoreError::Store(OpenError::Locked { .. }) => {
            Some("the receiver may not run while its store is replaced")
        }
        _ => None,
    };
    let failure = Failure::new(exit, error.to_string());
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}
