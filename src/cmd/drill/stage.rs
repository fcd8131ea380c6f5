//! The drill's storm: what is started, killed at random moments, and stopped in the end.

use std::time::Duration;

use crate::cli;
use crate::clock::Clock;
use crate::cmd::store;
use crate::control::{Door, Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::State;
use crate::store::{JobFilter, Settings};

use super::load::Load;
use super::process::{Process, Receiver};
use super::random::Random;
use super::report::Progress;
use super::site::Site;

/// Most events between two kills that are answered 2xx; by chance none at all, so that a receiver is
/// killed while it still recovers.
const MOST_BETWEEN_KILLS: u64 = 50;

/// How long the handlers may take without writing a line before what is open counts as unfinished.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the drill looks whether every job has settled.
const GLANCE: Duration = Duration::from_millis(100);

/// What a drill has started, and stops.
pub(super) struct Stage<'a> {
    site: &'a Site,
    pub(super) settings: Settings,
    clock: Clock,
    pub(super) load: Load,
    receiver: Option<Receiver>,
    pub(super) runner_kills: usize,
    progress: Progress,
}

impl<'a> Stage<'a> {
    /// Sets the stage; the clients wait for the first receiver.
    pub(super) fn set(site: &'a Site, kills: u16, clock: Clock) -> Result<Self, Failure> {
        Ok(Stage {
            site,
            settings: site.config()?.store(),
            load: Load::start(site.provider()?, clock.clone()),
            clock,
            receiver: None,
            runner_kills: 0,
            progress: Progress::new(kills),
        })
    }

    /// The kills, and then the time that all needs to come to its end.
    pub(super) async fn storm(
        &mut self,
        args: &cli::Drill,
        mut random: Random,
    ) -> Result<(), Failure> {
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

    /// Starts the receiver again where a kill was not yet followed by a start.
    pub(super) async fn start_again(&mut self) -> Result<(), Failure> {
        if self.receiver.is_none() { self.start().await } else { Ok(()) }
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
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
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
