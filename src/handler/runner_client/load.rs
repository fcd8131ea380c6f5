//! A reload at a runner: it reads its commands again, and can start them besides those in use.
//!
//! What must stay true:
//!
//! - The runner starts the commands that the receiver goes by, also if a reload is refused. So each Load
//!   names the load that is in use, and the runner keeps its commands.
//! - A command is claimed only over a connection whose runner has read its configuration since the last
//!   reload began. So a connection whose Hello was said before that is made anew.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::model::Name;
use crate::runner::client::Sender;
use crate::runner::message::CommandDigest;

use super::RunnerClient;

/// Why a runner cannot load a configuration. It goes on with the commands in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotLoad {
    /// Its configuration is wrong, for this reason.
    #[error("cannot load it: {0}")]
    Refused(String),
    /// It has read something else than the receiver.
    #[error(
        "reads handler {0} otherwise: from another file, by another version of this program, or it \
         was changed this moment (try again)"
    )]
    Otherwise(Name),
    /// The connection was lost first.
    #[error("was lost before it answered (try again)")]
    Lost,
    /// No answer in time.
    #[error("did not answer within {} (its log may say why)", humantime::format_duration(*.0))]
    Slow(Duration),
}

type Answer = Result<Vec<CommandDigest>, String>;

/// The loads of a runner.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Of the last one; 0 if there was none.
    number: u64,
    /// The one that the receiver goes by; 0 for what the runner read for the Hello of the connection.
    in_use: u64,
    /// The reload that waits for the runner's answer.
    waiting: Option<oneshot::Sender<Answer>>,
}

impl Loads {
    /// The last load: a connection is as young as the one there was when its Hello was said.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// There is a new connection.
    pub(super) fn connected(&mut self) {
        self.in_use = 0;
    }

    /// The runner's answer. It is thrown away if its reload has given up.
    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        if let Some(waiting) = self.waiting.take_if(|_| number == self.number) {
            drop(waiting.send(answer));
        }
    }

    /// The connection was lost: no answer will come.
    pub(super) fn lost(&mut self) {
        self.waiting = None;
    }
}

/// A configuration that a runner has loaded.
#[derive(Debug)]
pub struct RunnerLoad {
    /// None if no runner is connected: it reads its configuration when it comes.
    loaded: Option<(RunnerClient, Sender)>,
    number: u64,
}

impl RunnerClient {
    /// Asks the runner to read its commands as they are configured now, which must be `commands`. If none
    /// is connected, none is asked: it reads them when it comes. One at a time.
    ///
    /// # Errors
    /// The runner cannot, has read others, or did not answer within `wait`.
    pub(in crate::handler) async fn load(
        &self,
        commands: &[CommandDigest],
        wait: Duration,
    ) -> Result<RunnerLoad, CannotLoad> {
        let (waiting, answer) = oneshot::channel();
        let (line, number, in_use) = {
            let mut state = self.lock();
            let line = state.connection.clone();
            state.loads.number += 1;
            state.loads.waiting = line.is_some().then_some(waiting);
            (line, state.loads.number, state.loads.in_use)
        };
        let Some(line) = line else { return Ok(RunnerLoad::without_runner()) };
        let asking = line.clone();
        // In another task: half a message would spoil the connection.
        tokio::spawn(async move { drop(asking.load(number, in_use).await) });
        match timeout(wait, answer).await {
            Ok(Ok(Ok(known))) => match commands.iter().find(|one| !known.contains(one)) {
                Some(other) => Err(CannotLoad::Otherwise(other.handler.clone())),
                None => Ok(RunnerLoad { loaded: Some((self.clone(), line)), number }),
            },
            Ok(Ok(Err(detail))) => Err(CannotLoad::Refused(detail)),
            Ok(Err(_lost)) => Err(CannotLoad::Lost),
            Err(_late) => Err(CannotLoad::Slow(wait)),
        }
    }
}

impl RunnerLoad {
    pub(in crate::handler) fn without_runner() -> Self {
        RunnerLoad { loaded: None, number: 0 }
    }

    /// Whether a runner is connected and has read it.
    pub fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// The receiver goes by this load from now on: the next Load keeps its commands and no older ones.
    pub fn put_in_use(self) {
        let Some((client, line)) = self.loaded else { return };
        let mut state = client.lock();
        // Over another connection the runner has read its configuration again.
        if state.connection.as_ref().is_some_and(|now| now.is(&line)) {
            state.loads.in_use = self.number;
        }
    }
}
