//! Exit codes, and the error that a command fails with.
//!
//! Every command in `cmd` returns an [`Exit`] or a [`Failure`]. Must stay true: the codes are part of the
//! interface and do not change. The codes from 64 on have the meaning of BSD's `sysexits.h`.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// An exit code with its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success. If the command answers a question, the answer is yes.
    Ok = 0,
    /// The command worked and the answer is no: a request does not verify, a ledger breaks a promise, or
    /// `status` finds a job that waits for the operator.
    No = 1,
    /// The command line is wrong (clap's own code).
    Usage = 2,
    /// The state of the job or event does not allow the command (`EX_DATAERR`).
    WrongState = 65,
    /// No such event, job, handler or input file (`EX_NOINPUT`).
    NotFound = 66,
    /// The store or the receiver cannot be used now: in use, stopping, or of a newer version; for `status`:
    /// events are not accepted (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// A file or socket could not be read or written (`EX_IOERR`).
    Io = 74,
    /// The configuration is wrong (`EX_CONFIG`).
    Config = 78,
}

impl Exit {
    /// The exit code of an answer.
    pub fn answer(yes: bool) -> Self {
        if yes { Exit::Ok } else { Exit::No }
    }

    /// A failure without help text.
    pub fn failure(self, message: impl Into<String>) -> Failure {
        Failure { exit: self, message: message.into(), help: None, reader_left: false }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The error of a command: the text for standard error, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the process.
    pub exit: Exit,
    /// Lower-case fragments, most important first.
    pub message: String,
    /// The exact command or key that fixes it.
    pub help: Option<String>,
    /// Whether the reader of standard output has closed it. Such a failure is not printed.
    pub reader_left: bool,
}

impl Failure {
    /// Makes the failure, for `map_err`, that the system refused to do what `action` says, such as "start the runtime".
    pub fn io<E: Display>(action: impl Display) -> impl FnOnce(E) -> Failure {
        move |error| Exit::Io.failure(format!("failed to {action}: {error}"))
    }

    /// Adds the command or key that fixes it.
    pub fn help(self, help: impl Into<String>) -> Self {
        Failure { help: Some(help.into()), ..self }
    }

    /// Adds this help, for `map_err`, to a failure with this exit code.
    pub fn help_for(exit: Exit, help: impl Into<String>) -> impl FnOnce(Failure) -> Failure {
        move |failure| if failure.exit == exit { failure.help(help) } else { failure }
    }
}

impl From<io::Error> for Failure {
    /// The failure to write standard output.
    fn from(error: io::Error) -> Self {
        let reader_left = error.kind() == io::ErrorKind::BrokenPipe;
        Failure { reader_left, ..Failure::io("write the output")(error) }
    }
}
