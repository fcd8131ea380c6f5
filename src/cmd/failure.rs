//! What each error of the layers below means to a command: its exit code, and the fix where there is one.

use std::io;

use tokio::task::JoinError;

use crate::admin::{BackupError, CallError, ConnectError, FailureKind, ListenError};
use crate::config;
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::runner::folder::FolderError;
use crate::runner::server;
use crate::serve;
use crate::store::{OpenError, RestoreError};
use crate::systemd::sockets::SocketError;

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let exit = match &error {
            ConnectError::NoStore(_) => Exit::NotFound,
            ConnectError::Busy { .. } | ConnectError::Socket { .. } | ConnectError::Store(_) => {
                Exit::Unavailable
            }
        };
        exit.failure(error.to_string())
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let kind = match &error {
            CallError::Failed(failure) => failure.kind,
            _ => FailureKind::Unavailable,
        };
        let exit = match kind {
            FailureKind::NotFound => Exit::NotFound,
            FailureKind::WrongState | FailureKind::Ambiguous => Exit::WrongState,
            FailureKind::Config => Exit::Config,
            // Most of these mean a receiver of another version.
            _ => Exit::Unavailable,
        };
        exit.failure(error.to_string())
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Failed(error) => error.into(),
            BackupError::Cut(_) => Exit::Unavailable.failure(error.to_string()),
            BackupError::Sink(_) => Exit::Io.failure(error.to_string()),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        let exit = match &error {
            RestoreError::Exists { .. } | RestoreError::Backup(_) => Exit::WrongState,
            RestoreError::NoSpace { .. } | RestoreError::NotEnded { .. } => Exit::Io,
            RestoreError::Store(_) => Exit::Unavailable,
        };
        let failure = exit.failure(error.to_string());
        match error {
            RestoreError::Store(OpenError::Locked { .. }) => {
                failure.help("the receiver may not run while its store is replaced")
            }
            _ => failure,
        }
    }
}

impl From<serve::Error> for Failure {
    fn from(error: serve::Error) -> Self {
        let exit = match &error {
            serve::Error::Config(problems) => return problems.as_slice().into(),
            serve::Error::Admin(_) => Exit::Io,
            _ => Exit::Unavailable,
        };
        match error {
            serve::Error::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                let message = format!("another process listens on {address} already");
                let port = address.port();
                exit.failure(message).help(format!(
                    "see which: ss -ltnp 'sport = :{port}'; end it, or choose another address"
                ))
            }
            error => exit.failure(error.to_string()),
        }
    }
}

impl From<server::Error> for Failure {
    fn from(error: server::Error) -> Self {
        let exit = match &error {
            server::Error::Folder(FolderError::Held(_)) => Exit::Unavailable,
            server::Error::Folder(_) | server::Error::Begin { .. } => Exit::Io,
        };
        exit.failure(error.to_string())
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        Exit::Io.failure(error.to_string())
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        Exit::Unavailable.failure(error.to_string())
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        Exit::Io.failure(error.to_string())
    }
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        problems.as_slice().into()
    }
}

impl From<&[Problem]> for Failure {
    /// Every problem of the configuration, one a line.
    fn from(problems: &[Problem]) -> Self {
        if let [Problem { file, message, help: Some(help), .. }] = problems
            && message == config::NO_CONFIGURATION
        {
            let message = format!("there is no configuration at {file}");
            return Exit::Config.failure(message).help(help);
        }
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let count = super::output::count(problems.len() as u64, "problem");
        Exit::Config.failure(format!("the configuration has {count}\n{}", lines.join("\n")))
    }
}
