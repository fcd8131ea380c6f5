//! `hooklatch drill`: the receiver is killed again and again under load, and every event accounted for.
//!
//! Receiver, runner, store, handlers and wire are the real ones, in a folder of the drill's own; only
//! the provider is played. What must stay true: nothing outside of that folder is touched, and no
//! process that the drill has started outlives it.

mod account;
mod ledger;
mod load;
mod process;
mod random;
mod report;
mod site;
mod stage;

use crate::cli;
use crate::clock::Clock;
use crate::control::{Door, Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::EventId;
use crate::store::{EventDetail, EventFilter, JobDetail, Settings};

use super::serve::Signals;
use super::{block_on, output, owner, store};

use account::{Evidence, Job, Stored, account};
use random::Random;
use report::Report;
use site::Site;
use stage::Stage;

/// Runs the drill.
pub(super) fn run(args: &cli::Drill) -> Result<Exit, Failure> {
    let seed = args.seed.map_or_else(random::seed, Ok)?;
    if let Some(folder) = &args.folder {
        owner::assume(&folder.join("hooklatch.db"))?;
    }
    let mut site = Site::new(args.folder.as_deref())?;
    let report = match block_on(drill(args, &site, seed))? {
        Ok(report) => report,
        Err(Ended::Interrupted(signal)) => {
            let message = format!("ended by {signal} before there was anything to account for");
            return Err(Failure::new(Exit::Unavailable, message));
        }
        Err(Ended::Failed(failure)) => {
            site.keep();
            let kept = format!("the folder is kept: {}", site.root().display());
            let help = failure.help.map_or(kept.clone(), |help| format!("{help}; {kept}"));
            return Err(Failure { help: Some(help), ..failure });
        }
    };
    if !report.as_promised {
        site.keep();
    }
    heard(if args.format.json { output::json(&report) } else { tell(&report, &site) })?;
    Ok(if report.as_promised { Exit::Ok } else { Exit::No })
}

fn tell(report: &Report, site: &Site) -> Result<(), Failure> {
    report::print(report)?;
    if site.stays() {
        let config = site.config_path();
        output::line("\nThe store is kept. To look at it:\n")?;
        output::line(format_args!("  hooklatch jobs --config {}", config.display()))?;
    }
    Ok(())
}

/// The drill goes on and its verdict stands where nobody reads it: `hooklatch drill | head -1`.
fn heard(told: Result<(), Failure>) -> Result<(), Failure> {
    told.or_else(|failure| if failure.reader_left { Ok(()) } else { Err(failure) })
}

/// Why there is no report.
enum Ended {
    Interrupted(&'static str),
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Failed(failure)
    }
}

async fn drill(args: &cli::Drill, site: &Site, seed: u64) -> Result<Report, Ended> {
    let mut signals = Signals::register()?;
    if !args.format.json {
        let kills = output::count(u64::from(args.kills), "kill");
        let place = site.root().display();
        let line = format!("{kills} of a receiver with its store in {place}, seed {seed}\n");
        heard(output::line(line))?;
    }
    let clock = Clock::system();
    let mut stage = Stage::set(site, args.kills, clock.clone())?;
    let stormed = tokio::select! {
        stormed = stage.storm(args, Random::new(seed)) => stormed.map_err(Ended::Failed),
        signal = signals.next() => Err(Ended::Interrupted(signal)),
    };
    // The next receiver is who ends what a killed one has left, and it is that one which is stopped.
    let again = match &stormed {
        Err(Ended::Interrupted(_)) => stage.start_again().await,
        _ => Ok(()),
    };
    let stopped = stage.stop();
    stormed?;
    again?;
    stopped?;
    let evidence = Evidence {
        sent: stage.load.sent(),
        stored: stored(&stage.settings, clock).await?,
        ledger: site.ledger()?,
        runner_kills: stage.runner_kills,
    };
    let ledger = account(&evidence);
    let tally = stage.load.tally();
    Ok(Report {
        as_promised: ledger.kept(),
        seed,
        kills: args.kills,
        runner_kills: stage.runner_kills,
        unanswered: tally.unanswered,
        refused: tally.refused,
        ledger,
    })
}

/// Everything in the stopped store.
async fn stored(settings: &Settings, clock: Clock) -> Result<Vec<Stored>, Failure> {
    let mut door = Door::open(settings, clock).await.map_err(store::door_failure)?;
    let listed = Request::Events(EventFilter::default());
    let events = match door.call(listed).await.map_err(store::call_failure)? {
        Reply::Events(events) => events,
        other => return Err(store::unexpected(&other)),
    };
    let mut ids: Vec<EventId> = events.into_iter().map(|event| event.event_id).collect();
    // An id that is there twice is shown twice by one question.
    ids.sort();
    ids.dedup();
    let mut stored = Vec::new();
    for event in ids {
        let show = Request::Show { source: None, event };
        match door.call(show).await.map_err(store::call_failure)? {
            Reply::Show(found) => stored.extend(found.into_iter().map(Stored::from)),
            other => return Err(store::unexpected(&other)),
        }
    }
    door.close().await;
    Ok(stored)
}

impl From<EventDetail> for Stored {
    fn from(found: EventDetail) -> Self {
        let job = |detail: JobDetail| Job {
            handler: detail.job.handler.to_string(),
            state: detail.job.state,
            reason: detail.job.reason,
            attempts: detail.attempts.iter().map(|one| (one.number, one.outcome)).collect(),
        };
        let jobs = found.jobs.into_iter().map(job).collect();
        Stored { event: found.event.event_id.to_string(), jobs }
    }
}
