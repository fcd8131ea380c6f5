//! The messages between receiver and runner, and the version of their protocol.
//!
//! Additions are optional fields. A change that an older peer could misunderstand raises [`VERSION`];
//! [`OLDEST`] is the oldest version that this program accepts.

mod outputs;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Ended;
use crate::model::{Digest, Facts, Incarnation, JobId, Name, RunnerName};

pub use outputs::{Extent, Outputs};

/// The newest version of the protocol that this program speaks.
pub const VERSION: u32 = 5;

/// The oldest version that it accepts.
pub const OLDEST: u32 = 5;

/// An attempt of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub job: JobId,
    pub attempt: u32,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "attempt {} of job {}", self.attempt, self.job)
    }
}

/// The receiver's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest version of the protocol that the receiver speaks.
    pub version: u32,
    /// The store's random id, so that attempts of two stores are never confused (R16).
    pub store: Uuid,
    /// Every receiver that starts raises it (R3).
    pub epoch: u64,
    /// The runner that the receiver wants; without a name any runner may answer.
    pub runner: Option<RunnerName>,
}

/// One attempt to start. The frame's body is the event's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// The runner that the claim was made for (R5).
    pub incarnation: Incarnation,
    /// The digest of the handler's configuration, as the receiver has it.
    #[serde(with = "hex")]
    pub configuration: Digest,
    #[serde(with = "hex")]
    pub body: Digest,
    /// The event's facts, without the body.
    pub facts: Facts,
}

impl Start {
    pub fn key(&self) -> Key {
        Key { job: self.facts.job, attempt: self.facts.attempt }
    }
}

/// One of a command's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A message of the receiver.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToRunner {
    /// The first message, sent once.
    Hello(Hello),
    /// Start this attempt with the frame's body.
    Start(Box<Start>),
    /// Send one output of an attempt, which may still run, as it is now.
    Peek { key: Key, stream: Stream },
    /// End a running attempt: SIGTERM, the grace, SIGKILL.
    Kill { key: Key },
    /// End all that still runs of this attempt, which is not in this runner's list, and report when nothing
    /// does: a runner that no other answers for has left it.
    Search { key: Key },
    /// The attempt's outcome is committed and no Start of it will ever be sent again: forget it (R9).
    Ack { key: Key },
    /// Read the commands as they are configured now. From now on a Start may name them and those of load
    /// `in_use`, and no others.
    Load {
        /// The load's number, from 1, and never used twice over one connection.
        number: u64,
        /// The load whose commands the receiver uses; 0 for the commands read for its Hello.
        in_use: u64,
    },
}

/// A message of the runner.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToReceiver {
    /// The receiver is admitted, and every other connection has been cut.
    HelloOk(Box<HelloOk>),
    /// The receiver is not admitted; `detail` is the reason and what fixes it, for the operator.
    Denied { detail: String },
    /// The attempt runs.
    Started { key: Key },
    /// The attempt never began and never will (R8); `detail` is for the operator.
    Refused { key: Key, reason: Refusal, detail: String },
    /// The attempt has ended. The frame's body has its outputs. Sent once over each connection, until the Ack.
    Ended {
        key: Key,
        /// The end without its outputs.
        end: Box<Ended>,
        /// The place of its outputs in the body.
        outputs: Outputs,
    },
    /// The answer to a Peek.
    Peeked {
        key: Key,
        stream: Stream,
        /// The place of the output in the body. `None` if the runner does not have the attempt.
        output: Option<Extent>,
    },
    /// The answer to a Search: nothing of the attempt lives any more.
    Gone { key: Key },
    /// The runner takes no attempts any more, or takes them again.
    Draining { draining: bool },
    /// The answer to a Load: these commands are read and can be started.
    Loaded { number: u64, commands: Vec<CommandDigest> },
    /// The answer to a Load: the runner cannot, and starts the commands that it had. `detail` has every problem,
    /// for the operator.
    NotLoaded { number: u64, detail: String },
}

/// A command that a runner can start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDigest {
    pub handler: Name,
    #[serde(with = "hex")]
    pub configuration: Digest,
}

/// The runner's answer to an admitted receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloOk {
    /// The runner that the next claims are made for.
    pub incarnation: Incarnation,
    /// It takes no Start any more.
    pub draining: bool,
    /// How many more attempts it can have now.
    pub free: u32,
    /// The dead runners that it answers for: an attempt of theirs that is not listed never started.
    pub answers_for: Vec<Incarnation>,
    /// Every attempt that it has, its own and those of the dead runners.
    pub attempts: Vec<Listed>,
}

/// An attempt that a runner has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub key: Key,
    /// Whether it has ended. Its [`ToReceiver::Ended`] follows.
    pub ended: bool,
}

/// Why an attempt was not started. Each reason proves that the attempt never began (R8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The runner's configuration has no such command.
    UnknownHandler,
    /// The runner's configuration of the command is different.
    OtherDigest,
    /// The claim was made for another runner.
    OtherIncarnation,
    /// The runner has an attempt of the job.
    Busy,
    /// The runner takes no Start any more.
    Draining,
    /// The table is full, or the machine has no room for another process.
    NoResources,
    /// The connection has been cut in favour of another.
    StaleEpoch,
    /// The program or its folder is at fault.
    CannotStart,
    /// A value of the event is not what the runner's configuration of the command allows.
    Values,
    /// The body does not have the announced digest.
    BadBody,
    /// No runner has the Start or will get it. The receiver concludes this; no runner sends it.
    NotReceived,
}

/// The form of digests in JSON.
mod hex {
    use super::Digest;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(digest: &Digest, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(digest)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Digest, D::Error> {
        let bytes = data_encoding::HEXLOWER.decode(String::deserialize(d)?.as_bytes());
        let bytes = bytes.map_err(Error::custom)?.try_into();
        bytes.map(Digest).map_err(|_| Error::custom("a digest has 32 bytes"))
    }
}
