//! A reload's part that is the runner's: it reads its commands first, and runs them when all is well.
//!
//! In two steps, so that what one side refuses changes nothing on the other: [`Link::load`] has the
//! runner read its commands and keep them aside, and [`Loaded::put_to_use`] has it run them. What must
//! stay true: a command is claimed only over a connection whose runner has read its configuration since
//! the last reload began. So a connection is used only where its Hello was said after that; one that was
//! made in between is made anew, and the runner reads again.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::fixed::Change;
use crate::model::Name;
use crate::runner::client::Sender;
use crate::runner::message::Known;

use super::Link;

/// Why a runner does not go along with a reload. It goes on with what it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotLoad {
    /// It cannot have what is configured, for this reason.
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

type Answer = Result<(Vec<Known>, Vec<Change>), String>;

/// The loads of a link.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Of the last one; 0 where there was none.
    number: u64,
    /// Who waits for the runner's answer to it.
    waiting: Option<oneshot::Sender<Answer>>,
}

impl Loads {
    /// The last load: a connection is as young as the one there was when its Hello was said.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The runner's answer; one that nobody waits for any more is thrown away.
    pub(super) fn answer(&mut self, number: u64, answer: Answer) {
        if let Some(waiting) = self.waiting.take_if(|_| number == self.number) {
            drop(waiting.send(answer));
        }
    }

    /// Nobody will answer.
    pub(super) fn lost(&mut self) {
        self.waiting = None;
    }
}

/// What a runner has read, and where it waits to be told to use it.
#[derive(Debug)]
pub struct Loaded {
    /// Nothing where no runner is connected: it will read them when it comes.
    line: Option<Sender>,
    number: u64,
    kept: Vec<Change>,
}

impl Link {
    /// Asks the runner to read its commands as they are configured now, and to keep them aside: these,
    /// as the receiver has read them. Where none is connected nobody is asked: it reads them when it
    /// comes. One at a time.
    ///
    /// # Errors
    /// The runner cannot, has read others, or did not answer within `wait`.
    pub(in crate::handler) async fn load(
        &self,
        commands: &[Known],
        wait: Duration,
    ) -> Result<Loaded, CannotLoad> {
        let (line, number, answer) = {
            let mut state = self.lock();
            state.loads.number += 1;
            let (waiting, answer) = oneshot::channel();
            state.loads.waiting = state.line.is_some().then_some(waiting);
            (state.line.clone(), state.loads.number, answer)
        };
        let Some(line) = line else { return Ok(Loaded::by_nobody()) };
        let asking = line.clone();
        // Beside whoever asks: half a message would spoil the connection.
        tokio::spawn(async move { drop(asking.load(number).await) });
        match timeout(wait, answer).await {
            Ok(Ok(Ok((known, kept)))) => match commands.iter().find(|one| !known.contains(one)) {
                Some(other) => Err(CannotLoad::Otherwise(other.handler.clone())),
                None => Ok(Loaded { line: Some(line), number, kept }),
            },
            Ok(Ok(Err(detail))) => Err(CannotLoad::Refused(detail)),
            Ok(Err(_lost)) => Err(CannotLoad::Lost),
            Err(_late) => Err(CannotLoad::Slow(wait)),
        }
    }
}

impl Loaded {
    /// No runner is connected.
    pub(in crate::handler) fn by_nobody() -> Self {
        Loaded { line: None, number: 0, kept: Vec::new() }
    }

    /// Whether a runner has read it; where not, it does so when it comes.
    pub fn is_there(&self) -> bool {
        self.line.is_some()
    }

    /// The limits that the runner keeps from its start on and that are configured otherwise now.
    pub fn kept(&self) -> &[Change] {
        &self.kept
    }

    /// Has the runner run it: whatever is asked of it after this has returned is asked of that.
    pub async fn put_to_use(self) {
        let Some(line) = self.line else { return };
        if let Err(error) = line.use_loaded(self.number).await {
            tracing::debug!(%error, "lost the runner in a reload: it reads anew when it comes back");
        }
    }
}
