//! The way to a store: its running receiver, or the stopped store itself.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use rustix::process::geteuid;

use super::backup::{BackupError, BackupStage, GetBackup, fetch};
use super::client::{CallError, Client};
use super::failure::{Failure, FailureKind};
use super::operation::{Context, Operation};
use super::operations::events::{GetBody, ShowEvent};
use super::socket::socket_path;
use super::stream::{self, StreamOperation, StreamReader};
use crate::clock::Clock;
use crate::model::Blob;
use crate::store::postgres::Target;
use crate::store::{self, By, EventDetail, EventRow, Manifest, OpenError, Settings, Store};

/// A store that can be asked.
pub enum StoreClient {
    /// Its receiver runs and answers.
    Remote(Client),
    /// It is stopped; this process holds its lock until [`StoreClient::close`].
    Local(Box<Store>, Box<Context>),
}

/// Why a store cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A command must not make a database: `serve` does.
    #[error("there is no store at {0} (check `path` under [storage]; `hooklatch serve` makes it)")]
    NoStore(PathBuf),
    /// The lock is held by a process that does not listen.
    #[error(
        "the store at {path} is in use by {holder}, which does not listen on its socket: it is \
         starting or stopping, or a command at work on the stopped store; try again"
    )]
    Busy { path: PathBuf, holder: String },
    #[error("failed to reach the receiver at {path}: {source} (is this the receiver's user?)")]
    Socket { path: PathBuf, source: io::Error },
    /// The stopped store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

impl StoreClient {
    /// Connects to the receiver, or opens the stopped store. The lock decides: while a process holds it only
    /// the socket is used, and the process that gets it is alone with the store. Between the two tries a
    /// receiver may start or stop, so the socket is tried once more before the lock's holder is named.
    ///
    /// A store in a `database` has its lock where the file would be.
    pub async fn open(
        settings: &Settings,
        database: Option<Target>,
        clock: Clock,
    ) -> Result<StoreClient, ConnectError> {
        if let Some(running) = Self::of_receiver(settings).await? {
            return Ok(running);
        }
        if database.is_none() && !store::is_there(&settings.path) {
            return Err(ConnectError::NoStore(settings.path.clone()));
        }
        let opening = settings.clone();
        let opened = match database {
            Some(target) => Store::visit(settings, target, clock).await,
            None => tokio::task::spawn_blocking(move || Store::open(&opening, clock))
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())),
        };
        match opened {
            Ok(store) => {
                let context = Context { store: store.admin.clone(), receiver: None };
                Ok(StoreClient::Local(Box::new(store), Box::new(context)))
            }
            Err(OpenError::Locked { path, holder }) => match Self::of_receiver(settings).await? {
                Some(running) => Ok(running),
                None => Err(ConnectError::Busy { path, holder }),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The running receiver, or none where none listens: touches no file of the store.
    pub async fn of_receiver(settings: &Settings) -> Result<Option<StoreClient>, ConnectError> {
        let path = socket_path(&settings.path);
        match Client::connect(&path).await {
            Ok(client) => Ok(Some(StoreClient::Remote(client))),
            // A reset means that the process that listened has just died. A path too long to be an address is
            // refused by the receiver too, so none listens there.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound
                        | ErrorKind::ConnectionRefused
                        | ErrorKind::ConnectionReset
                        | ErrorKind::InvalidInput
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(ConnectError::Socket { path, source }),
        }
    }

    /// Returns a client whose changes are in the audit list as asked for by this caller.
    #[must_use]
    pub fn by(self, by: By) -> StoreClient {
        match self {
            StoreClient::Remote(client) => StoreClient::Remote(client.by(by)),
            StoreClient::Local(store, mut context) => {
                context.store = context.store.by(geteuid().as_raw(), by);
                StoreClient::Local(store, context)
            }
        }
    }

    /// Carries out one request.
    pub async fn call<O: Operation>(&self, operation: O) -> Result<O::Reply, CallError> {
        match self {
            StoreClient::Remote(client) => client.call(&operation).await,
            StoreClient::Local(_, context) => Ok(operation.perform(context).await?),
        }
    }

    /// Everything about the events with an id, their bodies included where they are not damaged.
    pub async fn show(&self, request: ShowEvent) -> Result<Vec<EventDetail>, CallError> {
        let (events, unread) = self.show_now(request).await?;
        unread.map_or(Ok(events), |why| Err(why.into()))
    }

    /// Like [`StoreClient::show`], but without the bodies that cannot be read now, and why the last of them cannot.
    pub async fn show_now(
        &self,
        request: ShowEvent,
    ) -> Result<(Vec<EventDetail>, Option<Failure>), CallError> {
        let (mut events, mut unread) = (self.call(request).await?.events, None);
        for one in &mut events {
            if one.event.payload_kept {
                match self.body(&one.event, false).await? {
                    Ok(body) => one.body = Some(body),
                    Err(why) if why.kind == FailureKind::WrongState => one.damaged = true,
                    // It was deleted meanwhile.
                    Err(why) if why.kind == FailureKind::NotFound => one.event.payload_kept = false,
                    Err(why) => unread = Some(why),
                }
            }
            if let Some(key) = &mut one.key
                && key.status.is_some()
            {
                match self.body(&one.event, true).await? {
                    Ok(body) => key.body = Some(body),
                    Err(why) if why.kind == FailureKind::WrongState => key.damaged = true,
                    Err(why) if why.kind == FailureKind::NotFound => one.key = None,
                    Err(why) => unread = Some(why),
                }
            }
        }
        Ok((events, unread))
    }

    /// The body of an event, or of its answer, or why there is none.
    async fn body(&self, of: &EventRow, answer: bool) -> Result<Result<Blob, Failure>, CallError> {
        let (event, source) = (of.event_id.clone(), of.source.clone());
        let request = GetBody { event, source, variant: of.variant, answer };
        let mut parts = match self.open_stream(request).await {
            Err(CallError::Failed(why)) => return Ok(Err(why)),
            parts => parts?,
        };
        let mut body = Vec::new();
        loop {
            match parts.part().await {
                Ok(Some(part)) => body.extend_from_slice(&part),
                Ok(None) if answer || body.len() as u64 == of.body_bytes => {
                    return Ok(Ok(Blob(body)));
                }
                Ok(None) => return Ok(Err(Failure::unavailable("the body is cut"))),
                Err(error) => return Ok(Err(Failure::unavailable(error))),
            }
        }
    }

    /// Opens a stream.
    pub async fn open_stream<O: StreamOperation>(
        &self,
        operation: O,
    ) -> Result<StreamReader, CallError> {
        Ok(StreamReader::new(match self {
            StoreClient::Remote(client) => client.open(&operation).await?,
            StoreClient::Local(_, context) => stream::start(operation, context).await?,
        }))
    }

    /// Copies the store into `sink`, unflushed, while a receiver goes on writing it where one runs. `report`
    /// gets the stage, and how many bytes of how many are done.
    pub async fn backup(
        &self,
        sink: &mut File,
        report: impl FnMut(BackupStage, u64, u64),
    ) -> Result<Manifest, BackupError> {
        fetch(self.open_stream(GetBackup {}).await?, sink, report).await
    }

    /// Closes a stopped store and gives up its lock.
    pub async fn close(self) {
        if let StoreClient::Local(store, _) = self {
            store.close().await;
        }
    }
}
