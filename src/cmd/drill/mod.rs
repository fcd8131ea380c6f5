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

use std::time::Duration;

use crate::cli;
use crate::clock::Clock;
use crate::control::{Door, Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::{EventId, State};
use crate::store::{EventDetail, EventFilter, JobFilter, Settings};

use super::serve::Signals;
use super::{block_on, output, store};

use account::{Evidence, Job, Stored, account};
use load::Load;
use process::{Process, Receiver};
use random::Random;
use report::{Progress, Report};
use site::Site;

/// Most events between two kills that are answered 2xx; by chance none at all, so that a receiver is
/// killed while it still recovers.
const MOST_BETWEEN_KILLS: u64 = 50;

/// How long the handlers may take without writing a line before what is open counts as unfinished.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the drill looks whether every job has settled.
const GLANCE: Duration = Duration::from_millis(100);

/// Runs the drill.
pub(super) fn run(args: &cli::Drill) -> Result<Exit, Failure> {
    let seed = args.seed.map_or_else(random::seed, Ok)?;
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
    if args.format.json {
        output::json(&report)?;
    } else {
        report::print(&report)?;
        if site.stays() {
            let config = site.config_path();
            output::line(format_args!("\nThe store is kept. To look at it:\n"))?;
            output::line(format_args!("  hooklatch jobs --config {}", config.display()))?;
        }
    }
    Ok(if report.as_promised { Exit::Ok } else { Exit::No })
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

/// What a drill has started, and stops.
struct Stage<'a> {
    site: &'a Site,
    settings: Settings,
    clock: Clock,
    load: Load,
    receiver: Option<Receiver>,
    runner_kills: usize,
    progress: Progress,
}

async fn drill(args: &cli::Drill, site: &Site, seed: u64) -> Result<Report, Ended> {
    let mut signals = Signals::register()?;
    if !args.format.json {
        let kills = output::count(u64::from(args.kills), "kill");
        let place = site.root().display();
        output::line(format_args!(
            "{kills} of a receiver with its store in {place}, seed {seed}\n"
        ))?;
    }
    let clock = Clock::system();
    let mut stage = Stage {
        site,
        settings: site.config()?.store(),
        load: Load::start(site.provider()?, clock.clone()),
        clock,
        receiver: None,
        runner_kills: 0,
        progress: Progress::new(args.kills),
    };
    let stormed = tokio::select! {
        stormed = stage.storm(args, Random::new(seed)) => stormed.map_err(Ended::Failed),
        signal = signals.next() => Err(Ended::Interrupted(signal)),
    };
    if matches!(stormed, Err(Ended::Interrupted(_))) && stage.receiver.is_none() {
        // The next receiver is who ends what a killed one has left, and it is that one which is stopped.
        stage.start().await?;
    }
    let stopped = stage.stop();
    stormed?;
    stopped?;
    let evidence = Evidence {
        sent: stage.load.sent(),
        stored: stored(&stage.settings, stage.clock.clone()).await?,
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

impl Stage<'_> {
    /// The kills, and then the time that all needs to come to its end.
    async fn storm(&mut self, args: &cli::Drill, mut random: Random) -> Result<(), Failure> {
        self.start().await?;
        for _ in 0..args.kills {
            self.more(random.below(MOST_BETWEEN_KILLS)).await?;
            // Both choices are made in every run, so that one seed means the same kills.
            let (runner_too, between) = (random.below(2) == 0, random.below(10));
            if args.runner_kills && runner_too && self.kill_runner()? {
                self.more(between).await?;
            }
            if let Some(receiver) = self.receiver.take() {
                receiver.kill()?;
            }
            self.progress.killed();
            self.start().await?;
        }
        let progress = &self.progress;
        self.load.finish(|tally| progress.saw(tally)).await?;
        self.settle().await
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let receiver = Receiver::start(self.site).await?;
        self.load.find(receiver.address);
        self.receiver = Some(receiver);
        Ok(())
    }

    async fn more(&self, answers: u64) -> Result<(), Failure> {
        let answers = usize::try_from(answers).unwrap_or(usize::MAX);
        self.load.more(answers, |tally| self.progress.saw(tally)).await
    }

    /// Kills the runner. False where there is none, as before the first command.
    fn kill_runner(&mut self) -> Result<bool, Failure> {
        let Some(runner) = Process::runner(&self.settings.path) else { return Ok(false) };
        if !runner.kill() {
            return Err(Failure::new(Exit::Unavailable, "the runner does not die"));
        }
        self.runner_kills += 1;
        Ok(true)
    }

    /// Waits until no job is to run any more, or no handler gets on any more.
    async fn settle(&self) -> Result<(), Failure> {
        self.progress.settles(&self.load.tally());
        let mut written = self.site.ledger_bytes();
        let mut end = self.clock.monotonic() + PATIENCE;
        let mut door = self.door().await?;
        while open_jobs(&mut door).await? && self.clock.monotonic() < end {
            let now = self.site.ledger_bytes();
            if now > written {
                written = now;
                end = self.clock.monotonic() + PATIENCE;
            }
            tokio::time::sleep(GLANCE).await;
        }
        door.close().await;
        Ok(())
    }

    async fn door(&self) -> Result<Door, Failure> {
        Door::open(&self.settings, self.clock.clone()).await.map_err(store::door_failure)
    }

    /// Stops what the drill has started: first the receiver, so that nobody starts a runner again.
    fn stop(&mut self) -> Result<(), Failure> {
        self.progress.done();
        let stopped = match self.receiver.take() {
            Some(receiver) => receiver.stop(),
            None => Ok(()),
        };
        if let Some(runner) = Process::runner(&self.settings.path)
            && !runner.stop()
        {
            return Err(Failure::new(Exit::Unavailable, "the runner does not end"));
        }
        stopped
    }
}

/// Whether any job is to run, or runs.
async fn open_jobs(door: &mut Door) -> Result<bool, Failure> {
    for state in [State::Ready, State::Running, State::Waiting] {
        let filter = JobFilter { state: Some(state), limit: Some(1), ..JobFilter::default() };
        match door.call(Request::Jobs(filter)).await.map_err(store::call_failure)? {
            Reply::Jobs(jobs) if jobs.is_empty() => {}
            Reply::Jobs(_) => return Ok(true),
            other => return Err(store::unexpected(&other)),
        }
    }
    Ok(false)
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
        let job = |detail: crate::store::JobDetail| Job {
            handler: detail.job.handler.to_string(),
            state: detail.job.state,
            reason: detail.job.reason,
            attempts: detail.attempts.iter().map(|one| (one.number, one.outcome)).collect(),
        };
        let jobs = found.jobs.into_iter().map(job).collect();
        Stored { event: found.event.event_id.to_string(), jobs }
    }
}
