//! A reload as the admin socket knows it: who asks, who answers, and what the answer says.
//!
//! The receiver's process reads the configuration: the socket only passes requests to its task, one after the other.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::failure::Failure;
use crate::limits::Change;
use crate::model::{Name, RunnerName};

/// What a reload has changed. Everything here is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The main file that was read.
    pub file: String,
    /// The sources that are others now.
    pub sources: Names,
    /// The handlers that are others now.
    pub handlers: Names,
    /// The limits that have another value now.
    pub limits: Vec<Change>,
    /// The secrets that were read anew.
    pub secrets: Vec<SecretRead>,
    /// The unfinished jobs of each handler that is gone: they are held, where they do not run.
    pub orphaned: Vec<(Name, u64)>,
    /// The runners, and whether each has read its commands: one that is not connected does when it comes.
    pub runners: Vec<RunnerTold>,
}

/// What became of the sources, or of the handlers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The names that were not there before.
    pub added: Vec<Name>,
    /// The names that are configured otherwise than before.
    pub changed: Vec<Name>,
    /// The names that are not there any more.
    pub gone: Vec<Name>,
}

/// A secret that was read anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRead {
    /// Where it is, as written.
    pub reference: String,
    /// Whose it is: `source NAME` or `handler NAME`.
    pub of: String,
    /// Whether it is another than before; nothing where the runner has read it, which does not tell.
    pub changed: Option<bool>,
    /// Why reading it anew finds nothing new before a restart, where that is so.
    pub stays: Option<String>,
}

/// A runner in a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerTold {
    /// Its name.
    pub name: RunnerName,
    /// Whether it runs its commands as they are configured now; if not, it will when it comes.
    pub loaded: bool,
}

/// A request to read the configuration again. Its caller waits for the answer.
#[derive(Debug)]
pub struct ReloadAsked(oneshot::Sender<Result<Reloaded, Failure>>);

impl ReloadAsked {
    /// Answers. The caller may be gone.
    pub fn answer(self, answer: Result<Reloaded, Failure>) {
        let _ = self.0.send(answer);
    }
}

/// Asks and waits, in line behind earlier requests and until the receiver has started.
pub(super) async fn ask(receiver: &mpsc::Sender<ReloadAsked>) -> Result<Reloaded, Failure> {
    let (ask, answer) = oneshot::channel();
    let stopping = || Failure::unavailable("the receiver is stopping: nothing was reloaded");
    receiver.send(ReloadAsked(ask)).await.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())?
}

impl fmt::Display for Names {
    /// `added a, changed b`, or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (name, what)) in self.all().enumerate() {
            write!(f, "{}{what} {name}", if nth > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Names {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Each with what became of it.
    pub fn all(&self) -> impl Iterator<Item = (&Name, &'static str)> {
        let all = [(&self.added, "added"), (&self.changed, "changed"), (&self.gone, "removed")];
        all.into_iter().flat_map(|(names, what)| names.iter().map(move |name| (name, what)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn who_asks_before_reloads_are_taken_waits_and_is_answered() {
        let (reloads, mut taken) = mpsc::channel(1);
        let early = reloads.clone();
        let mut early = tokio::spawn(async move { ask(&early).await });
        // It has asked before a task takes it: nothing else runs on this thread meanwhile.
        tokio::task::yield_now().await;
        tokio::select! {
            asked = taken.recv() => asked.unwrap().answer(Err(Failure::unavailable("told"))),
            refused = &mut early => panic!("refused: {refused:?}"),
        }
        assert_eq!(early.await.unwrap().unwrap_err().message, "told");
        drop(taken);
        assert!(ask(&reloads).await.unwrap_err().message.contains("stopping"));
    }
}
