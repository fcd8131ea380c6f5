//! The fixed words: states, outcomes, reasons and policies, each with one text for SQL, JSON and messages.

use std::fmt;
use std::str::FromStr;

use super::text::json_text;

/// Declares an enum whose variants have one fixed text each, used in SQL, JSON and messages.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                $name::ALL.iter().copied().find(|w| w.as_str() == text).ok_or_else(|| UnknownWord {
                    text: text.to_owned(),
                    known: $name::ALL.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }

        json_text!($name);
    };
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {known}, not '{text}'")]
pub struct UnknownWord {
    text: String,
    known: String,
}

words! {
    /// The state of a job. `docs/protocol.md` has the state machine; the schema's CHECK lists the same words.
    State {
        /// May be claimed now.
        Ready = "ready",
        /// Has exactly one live attempt.
        Running = "running",
        /// May be claimed when it is due.
        Waiting = "waiting",
        /// Waits for the operator; the reason is a [`HeldReason`].
        Held = "held",
        Succeeded = "succeeded",
        /// A dead letter: known to have failed for good; the reason is a [`DeadReason`].
        Dead = "dead",
        /// Taken out by the operator or superseded; the reason is a [`DropReason`].
        Dropped = "dropped",
    }
}

words! {
    /// How an attempt ended. A running attempt has none.
    Outcome {
        /// Exit 0, or a 2xx.
        Succeeded = "succeeded",
        /// The handler reported a failure: another attempt may succeed.
        Failed = "failed",
        /// The handler reported that no other attempt can succeed (exit 65; 400, 410, 422).
        Rejected = "rejected",
        /// Ended by its time-out; its effects are unknown.
        TimedOut = "timed_out",
        /// The handler reported nothing; its effects are unknown.
        Unknown = "unknown",
        /// Ended by the operator.
        Cancelled = "cancelled",
        /// Proven never to have started.
        NotStarted = "not_started",
    }
}

words! {
    /// What a value's text may look like.
    Shape {
        /// No control character.
        Line = "line",
        /// No control character but newlines and tabs.
        Text = "text",
        /// `[A-Za-z0-9][A-Za-z0-9._-]*`
        Word = "word",
        /// A name of git's: a word that may also have `/@+#=`, and that `git check-ref-format` would take.
        Ref = "ref",
        /// 40 or 64 hexadecimal digits.
        Sha = "sha",
        /// A number of 64 bits, as it is usually written.
        Int = "int",
        /// A link without a space or a quote.
        Url = "url",
        /// Any JSON, as it is written.
        Json = "json",
        /// Any text: control characters too.
        Any = "any",
    }
}

words! {
    /// Why a job waits for the operator.
    HeldReason {
        /// An attempt ended without a report.
        UnknownOutcome = "unknown outcome",
        /// An earlier delivery had the same signed body under another event id or type.
        SuspectedReplay = "suspected replay",
        /// An earlier delivery had this event id and another body, and the signature does not cover the id.
        IdReused = "id reused",
        /// The store was restored from a backup while the job was unfinished.
        Restored = "restored",
        /// The operator cancelled the running attempt.
        Cancelled = "cancelled",
        /// The configuration no longer has the handler.
        HandlerGone = "handler gone",
        /// The handler's condition could not be decided.
        ConditionFailed = "condition failed",
        /// A value of the event is not what the handler's configuration allows.
        ValueRefused = "value refused",
        /// Its payload is there, and was read twice in vain: by the disk, the memory or the way from the server.
        PayloadUnreadable = "payload unreadable",
        /// Its payload was read twice, and is not what was accepted.
        PayloadDamaged = "payload damaged",
    }
}

words! {
    /// Why a job is a dead letter.
    DeadReason {
        /// The handler rejected the event.
        Rejected = "rejected",
        /// Failed as often, or for as long, as its handler allows.
        Exhausted = "attempts exhausted",
        /// Its payload has been deleted by retention.
        PayloadGone = "payload gone",
        /// The operator resolved it as failed.
        Resolved = "resolved as failed",
    }
}

words! {
    /// Why a job was dropped.
    DropReason {
        Operator = "by the operator",
        /// A newer event replaced it.
        Superseded = "superseded",
        /// The handler's condition, decided again by the operator's replay, does not hold.
        ConditionFalse = "condition false",
    }
}

words! {
    /// What the jobs of a group do to each other. They run one at a time in each case.
    GroupRule {
        /// They run in the order of arrival; a dead job holds its group.
        Block = "block",
        /// They run in the order of arrival; a dead job lets the next one run.
        StepOver = "step-over",
        /// The latest wins: a newer job takes the place of those that wait.
        Latest = "latest",
    }
}

words! {
    /// What to do when an attempt's effects are unknown.
    OnUnknown {
        /// Wait for the operator.
        Hold = "hold",
        /// Run again: the handler is idempotent by its key.
        Rerun = "rerun",
    }
}

words! {
    /// What a duplicate delivery does to its event's dead letters.
    OnRedelivery {
        /// Nothing: it is counted.
        Ignore = "ignore",
        /// Replays them: the provider's Redeliver button asks for another attempt.
        ReplayDead = "replay-dead",
    }
}

words! {
    /// What the same signed body under a new event id means, for schemes that leave the id unsigned.
    ReplayGuard {
        /// Accept and store, jobs held.
        Hold = "hold",
        /// Accept and run, marked.
        Flag = "flag",
        /// No check.
        Off = "off",
    }
}

words! {
    /// What the audit list says was done.
    AuditVerb {
        /// Put jobs back, or made the one that an event lacked.
        Replay = "replay",
        /// Made the jobs that stored events lacked for a handler.
        MakeMissing = "make-missing",
        Resolve = "resolve",
        Drop = "drop",
        Cancel = "cancel",
        Pause = "pause",
        Resume = "resume",
        QuarantineAccept = "quarantine-accept",
        QuarantineDrop = "quarantine-drop",
        Reload = "reload",
        NodeLost = "node-lost",
    }
}

words! {
    /// The program by which a caller asks for a change.
    Via {
        Command = "command",
        Dashboard = "dashboard",
    }
}

words! {
    /// The event types of the internal source: what the receiver reports about itself.
    NoticeType {
        /// A job became a dead letter.
        JobDead = "job.dead",
        /// A job waits for the operator.
        JobHeld = "job.held",
        /// Events could not be stored for a while.
        StoreDegraded = "store.degraded",
        /// The database no longer has events that were accepted.
        StoreLost = "store.lost",
        /// Consecutive deliveries of a source fail verification.
        SourceFailing = "source.failing",
        /// A handler cannot run at all.
        HandlerBroken = "handler.broken",
        /// A node of the database does not answer, and attempts run under it.
        NodeSilent = "node.silent",
    }
}
