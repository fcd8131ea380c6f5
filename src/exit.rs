//! What the process ends with: the one mapping from errors to exit codes.
//!
//! The codes are part of the interface. Those from 64 on have the meaning of BSD's `sysexits.h`.

use std::process::ExitCode;

/// An exit code with its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done; the answer, where there is one, is yes.
    Ok = 0,
    /// The command worked and the answer is no: a request does not verify, a ledger is not as promised, or
    /// `status` finds something that waits for a person.
    No = 1,
    /// The command line is wrong (clap's own code).
    Usage = 2,
    /// The job or event is not in a state in which this can be done (`EX_DATAERR`).
    WrongState = 65,
    /// No such event, job, handler or input file (`EX_NOINPUT`).
    NotFound = 66,
    /// The store or the receiver cannot be used now: in use, stopping, too new; `status`: events are not
    /// accepted (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// A file or socket could not be read or written (`EX_IOERR`).
    Io = 74,
    /// The configuration is wrong (`EX_CONFIG`).
    Config = 78,
}

impl Exit {
    /// Every code, for help and documentation.
    pub const ALL: &'static [(Exit, &'static str)] = &[
        (Exit::Ok, "done; the answer, where there is one, is yes"),
        (
            Exit::No,
            "the answer is no: a request does not verify, a ledger is not as promised, a job waits for a person",
        ),
        (Exit::Usage, "the command line is wrong"),
        (Exit::WrongState, "the job is in no state in which this can be done"),
        (Exit::NotFound, "no such event, job, handler or input"),
        (
            Exit::Unavailable,
            "the store or the receiver cannot be used now; `status`: events are not accepted",
        ),
        (Exit::Io, "a file or socket could not be read or written"),
        (Exit::Config, "the configuration is wrong"),
    ];
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command failed: what is printed on standard error, and the code.
#[derive(Debug)]
pub struct Failure {
    /// Ends the process with this.
    pub exit: Exit,
    /// Lower-case fragments, most important first.
    pub message: String,
    /// The exact command or key that helps.
    pub help: Option<String>,
    /// The reader of standard output went away.
    pub reader_left: bool,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into(), help: None, reader_left: false }
    }

    /// The same failure with a hint.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<std::io::Error> for Failure {
    /// Output that could not be written.
    fn from(error: std::io::Error) -> Self {
        let failure = Failure::new(Exit::Io, format!("failed to write the output: {error}"));
        Failure { reader_left: error.kind() == std::io::ErrorKind::BrokenPipe, ..failure }
    }
}
