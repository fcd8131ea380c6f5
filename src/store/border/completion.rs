//! The end of an attempt, and its record.

use serde::{Deserialize, Serialize};

use crate::model::{Answer, Blob, JobId, Outcome, Timestamp};
use crate::retry::Next;

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Completion {
    pub job: JobId,
    /// The running attempt; a completion of another attempt changes nothing.
    pub attempt: u32,
    pub outcome: Outcome,
    /// Whether it counts against the handler's limit.
    pub counts: bool,
    /// Where the job goes.
    pub next: Next,
    pub finished_at: Timestamp,
    pub record: Record,
    /// The handler's whole answer, if a caller may wait for it.
    pub answer: Option<Answer>,
}

/// The details of an attempt, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// One sentence: "exit status 3", "HTTP 503", "killed by signal 9".
    pub detail: String,
    /// A command's exit status.
    pub exit_code: Option<i32>,
    /// The signal that killed a command.
    pub signal: Option<i32>,
    /// A forward's status.
    pub http_status: Option<u16>,
    /// Standard output, or a forward's answer.
    pub stdout: OutputExcerpt,
    /// Standard error.
    pub stderr: OutputExcerpt,
    /// What a command used, if its runner saw the end.
    pub usage: Option<Usage>,
    /// When its runner saw the end, perhaps long before the receiver learned of it.
    #[serde(skip)]
    pub ended_at: Option<Timestamp>,
}

/// Resources that a command used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the command and the children it waited for.
    pub cpu_millis: u64,
    /// The largest resident set of one of them.
    pub memory_bytes: u64,
}

/// Head and tail of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputExcerpt {
    pub head: Blob,
    /// The end, if the head does not hold all.
    pub tail: Blob,
    /// Number of all bytes.
    pub total: u64,
}

/// Most characters of a quoted last line: enough for an error message with a path.
const LAST_LINE_CHARS: usize = 200;

impl OutputExcerpt {
    /// The last line that is not blank, cut to 200 characters. Untrusted text.
    pub fn last_line(&self) -> Option<String> {
        [&self.tail, &self.head].into_iter().find_map(|part| {
            let lines = part.0.rsplit(|byte| *byte == b'\n').map(String::from_utf8_lossy);
            let mut lines = lines.map(|line| line.trim().chars().take(LAST_LINE_CHARS).collect());
            lines.find(|line: &String| !line.is_empty())
        })
    }
}
