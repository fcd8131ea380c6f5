//! The messages between receiver and runner, and the version of their protocol.
//!
//! Additions are optional fields. A change that an older peer could misunderstand raises [`VERSION`];
//! [`OLDEST`] is the oldest version that this program accepts.

mod outputs;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Ended;
use super::incarnation::Incarnation;
use crate::model::{
    Digest, EventId, EventType, Facts, Headers, JobId, Name, RunnerName, Timestamp,
};

pub use outputs::{Extent, Outputs};

/// The protocol of this program.
pub const VERSION: u32 = 3;

/// The oldest protocol that this program still understands.
pub const OLDEST: u32 = 3;

/// Largest header of what a receiver says, in bytes: a Start, whose texts are all bounded by the model
/// and come to less than 2 KiB.
pub(crate) const TO_RUNNER_BYTES: u64 = 64 * 1024;

/// Largest header of a runner's message, in bytes: a list of 10,000 attempts (the maximum of
/// `runner_attempts_count`) of some 200 bytes each, and of 1,000 incarnations.
pub(crate) const TO_RECEIVER_BYTES: u64 = 4 * 1024 * 1024;

/// Largest body of a frame in bytes: the largest that any source may be configured to take.
pub(crate) const BODY_BYTES: u64 = 100 * 1024 * 1024;

/// An attempt of a job: what every message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub job: JobId,
    /// The attempt's number.
    pub attempt: u32,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "attempt {} of job {}", self.attempt, self.job)
    }
}

/// Who knocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest protocol that the receiver speaks.
    pub version: u32,
    /// The store's random id: two histories never meet (R16).
    pub store: Uuid,
    /// Raised by every receiver that starts (R3).
    pub epoch: u64,
    /// The runner that the receiver means; without a name any runner may answer.
    pub runner: Option<RunnerName>,
}

/// One attempt to start. The event's body is the frame's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// The runner that the claim was made for (R5).
    pub incarnation: Incarnation,
    /// Which attempt.
    pub key: Key,
    /// Whose command line.
    pub handler: Name,
    /// Of that handler's configuration, as the receiver has it.
    #[serde(with = "hex")]
    pub configuration: Digest,
    #[serde(with = "hex")]
    pub body: Digest,
    /// How often the operator has put the job back.
    pub replays: u32,
    /// The source the event came through.
    pub source: Name,
    /// The client whose request the event is, if the source names its clients.
    pub caller: Option<String>,
    /// The event's id.
    pub event_id: EventId,
    /// The event's type, or `?`.
    pub event_type: String,
    /// When the delivery arrived.
    pub received_at: Timestamp,
}

impl Start {
    /// The start of an attempt with these facts.
    pub fn new(
        incarnation: Incarnation,
        configuration: Digest,
        body: Digest,
        facts: &Facts,
    ) -> Self {
        Start {
            incarnation,
            key: Key { job: facts.job, attempt: facts.attempt },
            handler: facts.handler.clone(),
            configuration,
            body,
            replays: facts.replays,
            source: facts.source.clone(),
            caller: facts.caller.clone(),
            event_id: facts.event_id.clone(),
            event_type: facts.event_type.to_string(),
            received_at: facts.received_at,
        }
    }

    /// What the command is told. The headers stay with the receiver: no command sees them.
    pub(super) fn facts(self, body: Vec<u8>) -> Facts {
        Facts {
            handler: self.handler,
            job: self.key.job,
            attempt: self.key.attempt,
            replays: self.replays,
            source: self.source,
            caller: self.caller,
            event_id: self.event_id,
            event_type: EventType::from_raw(&self.event_type),
            received_at: self.received_at,
            headers: Headers::new(),
            body: body.into(),
        }
    }
}

/// One of a command's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What the receiver says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToRunner {
    /// First, and once.
    Hello(Hello),
    /// Start this attempt with the frame's body.
    Start(Box<Start>),
    /// Send one output of an attempt as it is now, which may still run.
    Peek {
        /// Which attempt.
        key: Key,
        /// Which output.
        stream: Stream,
    },
    /// Ask a running attempt to end: SIGTERM, the grace, SIGKILL.
    Kill {
        /// Which attempt.
        key: Key,
    },
    /// End whatever still runs of this attempt, which is in no list of this runner's, and say when
    /// nothing does: what a runner that nobody answers for left behind.
    Search {
        /// Which attempt.
        key: Key,
    },
    /// Its outcome is committed and no Start of it will ever be sent again: forget it (R9).
    Ack {
        /// Which attempt.
        key: Key,
    },
    /// Read the commands as they are configured now: a Start may name them and those of load `in_use` from
    /// now on, and no others.
    Load {
        /// From 1, and never given twice over one connection.
        number: u64,
        /// The load that the receiver goes by; 0 for the commands read for its Hello.
        in_use: u64,
    },
}

/// What the runner says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToReceiver {
    /// The receiver is admitted, and every other connection has been cut.
    HelloOk(Box<HelloOk>),
    /// It is not.
    Denied {
        reason: Denial,
        /// For people, with what mends it.
        detail: String,
    },
    /// The attempt runs.
    Started { key: Key },
    /// The attempt never began and never will (R8).
    Refused {
        key: Key,
        reason: Refusal,
        /// For people.
        detail: String,
    },
    /// The attempt has ended. The frame's body has what it printed. Sent once over each connection, until
    /// the Ack.
    Ended {
        /// The attempt.
        key: Key,
        /// How it ended, without its outputs.
        end: Box<Ended>,
        /// Where its outputs are in the body.
        outputs: Outputs,
    },
    /// The answer to a Peek.
    Peeked {
        /// The attempt.
        key: Key,
        /// The output.
        stream: Stream,
        /// Where it is in the body. `None` if the runner has no such attempt.
        output: Option<Extent>,
    },
    /// Nothing of an attempt that was searched for lives any more.
    Gone { key: Key },
    /// Attempts are taken no more, or again. What an Ack makes room for its sender knows.
    Free {
        /// How many more there is room for now.
        slots: u32,
        /// Whether none is taken any more, however much room there is.
        draining: bool,
    },
    /// The commands are read and can be started.
    Loaded {
        /// Which Load's.
        number: u64,
        /// What each is, to be compared with what the receiver has read.
        commands: Vec<CommandDigest>,
    },
    /// The configuration cannot be loaded: the runner starts the commands that it had.
    NotLoaded {
        /// Which Load's.
        number: u64,
        /// Every problem, for people.
        detail: String,
    },
}

/// A command that a runner knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDigest {
    pub handler: Name,
    #[serde(with = "hex")]
    pub configuration: Digest,
}

/// The runner's answer to an admitted receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloOk {
    /// The protocol that both speak.
    pub version: u32,
    /// Whom the following claims are made for.
    pub incarnation: Incarnation,
    /// It takes no Start any more.
    pub draining: bool,
    /// Room for this many attempts now.
    pub free: u32,
    /// The dead runners that it answers for: what one of them had and is not listed never started.
    pub answers_for: Vec<Incarnation>,
    /// Every attempt it has, its own and those of the dead.
    pub attempts: Vec<Listed>,
}

/// An attempt that a runner has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub key: Key,
    /// The runner that started it.
    pub incarnation: Incarnation,
    /// Whether it has ended. Its [`ToReceiver::Ended`] follows.
    pub ended: bool,
}

/// Why a receiver is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denial {
    /// They have no protocol in common.
    Version,
    /// The runner has attempts of another store (R16).
    OtherStore,
    /// A younger receiver, or a younger state of the store, was here (R3).
    StaleEpoch,
    /// Another runner is meant, who alone can tell of its attempts (R2).
    OtherRunner,
}

/// Why an attempt was not started. Each reason proves that the attempt never began (R8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The runner's configuration has no such command.
    UnknownHandler,
    /// The runner's configuration of it is another.
    OtherDigest,
    /// The claim was made for another runner.
    OtherIncarnation,
    /// An attempt of the job is there.
    Busy,
    /// It takes no Start any more.
    Draining,
    /// The table is full, or the machine has no room for another process.
    NoResources,
    /// The connection has been cut in favour of another.
    StaleEpoch,
    /// The program or its folder is at fault.
    CannotStart,
    /// The body is not the one that was announced.
    BadBody,
    /// No runner has the Start or will get it. The receiver concludes this; no runner sends it.
    NotReceived,
}

/// Digests as JSON writes them.
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
