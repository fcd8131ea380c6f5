//! The way to a store: its running receiver, or the stopped store itself.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::backup::{Stage, made};
use super::{
    BackupError, CallError, Client, Failure, Reply, Request, connect, perform, socket_path,
};
use crate::clock::Clock;
use crate::store::{self, Copied, Manifest, OpenError, Settings, Store};

/// An open way to a store.
pub enum Door {
    /// Its receiver runs and answers.
    Remote(Client),
    /// It is stopped; this process holds its lock until [`Door::close`].
    Local(Store),
}

/// Why there is no way to a store.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// No database there. A command must not make one: `serve` does.
    #[error("there is no store at {0} (check `path` under [storage]; `hooklatch serve` makes it)")]
    NoStore(PathBuf),
    /// The lock is held, and nobody listens.
    #[error(
        "the store at {path} is in use by {holder}, which does not listen on its socket: it is \
         starting or stopping, or a command at work on the stopped store; try again"
    )]
    Busy {
        /// The database.
        path: PathBuf,
        /// Who has the lock.
        holder: String,
    },
    /// The socket is there and cannot be used.
    #[error("failed to reach the receiver at {path}: {source} (is this the receiver's user?)")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The stopped store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

impl Door {
    /// Finds the way. The lock decides: while somebody holds it only the socket is used, and whoever
    /// gets it is alone with the store. Between the two looks a receiver may start or stop, so the
    /// socket is tried once more before the lock's holder is named.
    pub async fn open(settings: &Settings, clock: Clock) -> Result<Door, DoorError> {
        if let Some(client) = knock(settings).await? {
            return Ok(Door::Remote(client));
        }
        if !store::is_there(&settings.path) {
            return Err(DoorError::NoStore(settings.path.clone()));
        }
        let opening = settings.clone();
        let opened = tokio::task::spawn_blocking(move || Store::open(&opening, clock)).await;
        match opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
            Ok(store) => Ok(Door::Local(store)),
            Err(OpenError::Locked { path, holder }) => match knock(settings).await? {
                Some(client) => Ok(Door::Remote(client)),
                None => Err(DoorError::Busy { path, holder }),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The way to a running receiver, or nothing where none listens: touches no file of the store.
    pub async fn of_receiver(settings: &Settings) -> Result<Option<Door>, DoorError> {
        Ok(knock(settings).await?.map(Door::Remote))
    }

    /// Copies the store into `sink`, unflushed, while a receiver goes on writing it where one runs. `tell`
    /// hears where it is, and how many bytes of how many are done.
    pub async fn backup(
        &mut self,
        sink: &mut File,
        mut tell: impl FnMut(Stage, u64, u64),
    ) -> Result<Manifest, BackupError> {
        let store = match self {
            Door::Remote(client) => return client.backup(sink, tell).await,
            Door::Local(store) => store,
        };
        let mut copying = store.admin.copy().map_err(Failure::from)?;
        let copied = loop {
            if let Some(copied) = made(&mut copying).await {
                break copied;
            }
            let (done, all) = copying.progress();
            tell(Stage::Copying, done, all);
        };
        let Copied { mut file, manifest } = copied.map_err(Failure::from)?;
        io::copy(&mut file, sink).map_err(BackupError::Sink)?;
        Ok(manifest)
    }

    /// Carries out one request.
    pub async fn call(&mut self, request: Request) -> Result<Reply, CallError> {
        match self {
            Door::Remote(client) => client.call(&request).await,
            Door::Local(store) => Ok(perform(&store.admin, None, request).await?),
        }
    }

    /// Closes a stopped store again and gives up its lock.
    pub async fn close(self) {
        if let Door::Local(store) = self {
            store.close().await;
        }
    }
}

/// A connection to the receiver, or nothing where none listens.
async fn knock(settings: &Settings) -> Result<Option<Client>, DoorError> {
    let path = socket_path(&settings.path);
    match connect(&path, &settings.limits).await {
        Ok(client) => Ok(Some(client)),
        // A reset means that the last one that listened has just died.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
            ) =>
        {
            Ok(None)
        }
        // A path too long to be an address: the receiver refuses it too, so none listens there.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
        Err(source) => Err(DoorError::Socket { path, source }),
    }
}
