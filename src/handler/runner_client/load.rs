//! A reload at a runner: it reads its commands again, and can start them in addition to those in use.
//!
//! Must stay true:
//!
//! - The runner can start the commands that the receiver uses, also if a reload is refused. So each Load
//!   names the load that is in use, and the runner keeps its commands.
//! - A command is claimed only over a connection whose runner has read its configuration since the last
//!   reload began. So a connection whose Hello was sent before that is made again.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::model::Name;
use crate::runner::client::Sender;
use crate::runner::message::{CommandDigest, ToRunner};

use super::client::RunnerClient;

/// Why a runner cannot load a configuration. It continues with the commands in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotLoad {
    /// The configuration is wrong, for this reason.
    #[error("cannot load it: {0}")]
    Refused(String),
    /// The runner has read another configuration than the receiver.
    #[error(
        "reads handler {0} otherwise: from another file, by another version of this program, or it \
         was changed this moment (try again)"
    )]
    Otherwise(Name),
    /// The connection was lost before the answer.
    #[error("was lost before it answered (try again)")]
    Lost,
    #[error("did not answer within {} (its log may say why)", humantime::format_duration(*.0))]
    Slow(Duration),
}

/// A configuration that a connected runner has loaded.
#[derive(Debug)]
pub struct RunnerLoad {
    client: RunnerClient,
    line: Sender,
    number: u64,
}

impl RunnerClient {
    /// Asks the runner to read its commands as they are configured now, which must include `commands`. `None` if no
    /// runner is connected: it reads them when it connects. One call at a time.
    ///
    /// # Errors
    /// The runner cannot load them, has read others, or did not answer within `wait`.
    pub(in crate::handler) async fn load(
        &self,
        commands: &[CommandDigest],
        wait: Duration,
    ) -> Result<Option<RunnerLoad>, CannotLoad> {
        let (waiting, answer) = oneshot::channel();
        let (line, number) = {
            let mut state = self.lock();
            state.loads.number += 1;
            let (number, in_use) = (state.loads.number, state.loads.in_use);
            let Some(line) = state.line() else { return Ok(None) };
            state.loads.waiting = Some(waiting);
            line.send_in_background(ToRunner::Load { number, in_use });
            (line, number)
        };
        match timeout(wait, answer).await {
            Ok(Ok(Ok(known))) => match commands.iter().find(|one| !known.contains(one)) {
                Some(other) => Err(CannotLoad::Otherwise(other.handler.clone())),
                None => Ok(Some(RunnerLoad { client: self.clone(), line, number })),
            },
            Ok(Ok(Err(detail))) => Err(CannotLoad::Refused(detail)),
            Ok(Err(_lost)) => Err(CannotLoad::Lost),
            Err(_late) => Err(CannotLoad::Slow(wait)),
        }
    }
}

impl RunnerLoad {
    /// Makes this load the one in use: the next Load keeps its commands and no older ones.
    pub fn put_in_use(self) {
        let mut state = self.client.lock();
        // Over another connection the runner has read its configuration again.
        if state.line().is_some_and(|now| now.is(&self.line)) {
            state.loads.in_use = self.number;
        }
    }
}
