//! Opens a store on PostgreSQL, for a receiver or for a command where none runs, and closes it.

use std::fmt::Display;
use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tokio::{select, try_join};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::clock::Clock;
use crate::model::Name;
use crate::store::border::{Error, Settings};
use crate::store::mutex::lock;
use crate::store::node::lock::StoreLock;
use crate::store::node::open_error::OpenError;
use crate::store::node::space::Space;
use crate::store::quarantine::handle::QuarantineHandle;

use super::admin::handle::Admin;
use super::connection::{Connection, Target, describe};
use super::flight::{FlightOutcome, Refusal};
use super::handlers::PublishedHandler;
use super::intake::Intake;
use super::jobs::Jobs;
use super::node_file::NodeFile;
use super::operate::housekeeping::Housekeeping;
use super::register::{RegisterError, Registered, Registrar};
use super::schema::{self, migrate};
use super::server::{self, SLOW};
use super::writer::Writer;

/// The random identity of the store.
const ID: &str = "SELECT origin FROM meta";

/// How long a start waits for a connection.
const START_WAIT: Duration = Duration::from_secs(30);

/// The pause between two lines that say what a start waits for.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How long a stop waits for the database.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// How long it waits at least: an answer that is on its way comes sooner.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// How long a reload waits until its handlers are published.
const PUBLISH_WAIT: Duration = Duration::from_secs(2);

const NO_TABLES: &str = "no receiver has made its tables there yet; is storage.url right?";

/// How long a start waits until the server notices that the node's last process is gone: keepalives find it within 25 s.
/// That of a process that was killed is gone at once.
const GONE_WAIT: Duration = Duration::from_secs(30);

/// The pause between two looks whether the process is gone.
const GONE_PAUSE: Duration = Duration::from_millis(100);

/// The server's code for a right that the role lacks.
const NO_RIGHT: &str = "42501";

/// The pause between two tries to change the tables: accepts go on meanwhile.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);

/// One of several receivers on a database: how it reaches that, and which node it is.
pub struct ClusterNode {
    pub target: Target,
    pub name: Name,
    /// The identity of the machine.
    pub machine: String,
}

/// An open store with its three handles.
pub(in super::super) struct PostgresStore {
    pub(in super::super) intake: Intake,
    pub(in super::super) jobs: Jobs,
    pub(in super::super) admin: Admin,
    pub(in super::super) quarantine: Arc<QuarantineHandle>,
    writer: Writer,
    /// The lock of the state folder; `None` after `close`.
    lock: Mutex<Option<Arc<StoreLock>>>,
}

impl PostgresStore {
    /// Opens the store for a receiver: connects, checks the server, makes the schema where it is missing, registers the
    /// node with its handlers, and starts its tasks. The caller has taken the lock of the state folder.
    pub(in super::super) async fn open(
        settings: &Settings,
        node: ClusterNode,
        handlers: Vec<PublishedHandler>,
        held: StoreLock,
        clock: Clock,
    ) -> Result<PostgresStore, OpenError> {
        let ClusterNode { target, name, machine } = node;
        let file = NodeFile::open(&settings.path).map_err(failed)?;
        let mut registrar = Registrar::of_folder(file, name.to_string(), machine);
        registrar.handlers = handlers;
        registrar.clock = clock.clone();
        let id = registrar.node.id;
        let first = enter(&target, &clock, &mut registrar).await?;
        let store = identity(&first.0).await.map_err(failed)?;
        let limits = &settings.limits;
        let (writer, _) =
            Writer::go_on(target.clone(), registrar, Some(first), limits, clock.clone());
        // Until then each request is refused.
        let _ = writer.sessions().wait_for(Option::is_some).await;
        let store = PostgresStore::start(settings, target, (store, id), writer, held, clock)?;
        if let Err(why) = store.connect_all().await {
            store.close(ready(())).await;
            return Err(failed(why));
        }
        Ok(store)
    }

    /// Makes all its connections: where the server gives it fewer, it would accept what it cannot run.
    async fn connect_all(&self) -> Result<(), Error> {
        let connected = try_join!(self.writer.connect(), self.jobs.connect(), self.admin.connect());
        connected.map(drop)
    }

    /// Opens the store for a command where no receiver runs: it registers no node, and takes no delivery and no job.
    pub(in super::super) async fn visit(
        settings: &Settings,
        target: Target,
        held: StoreLock,
        clock: Clock,
    ) -> Result<PostgresStore, OpenError> {
        let target = target.taking_later();
        let look = async {
            let connection = connect(&target, &clock).await?;
            // Every other connection of the command is to this server, or to one that has gone on from it.
            target.use_history(connection.history.clone());
            identity(&connection).await
        };
        let store = in_time(look).await?;
        let writer = Writer::closed(target.clone(), &settings.limits);
        PostgresStore::start(settings, target, (store, Uuid::nil()), writer, held, clock)
    }

    fn start(
        settings: &Settings,
        target: Target,
        (store, node): (Uuid, Uuid),
        writer: Writer,
        held: StoreLock,
        clock: Clock,
    ) -> Result<PostgresStore, OpenError> {
        let Settings { path, limits } = settings;
        let (lock, notices) = (Arc::new(held), writer.notices.clone());
        let space = Arc::new(Space::new(path, limits));
        let (own, stirred) = (Arc::clone(&lock), writer.stirred());
        let kept =
            QuarantineHandle::start(settings, clock.clone(), Arc::clone(&space), own, stirred);
        let quarantine = kept.map(Arc::new).map_err(|error| OpenError::Io {
            path: path.clone(),
            detail: format!("failed to start a thread: {error}"),
        })?;
        let keeping = Housekeeping::new(target.clone(), clock.clone(), notices, node);
        let admin = Admin::new(target.clone(), limits, clock.clone());
        Ok(PostgresStore {
            intake: Intake::new(writer.clone(), keeping.clone()),
            jobs: Jobs::start(writer.clone(), target, clock, keeping),
            admin: admin.of(store, writer.clone(), space, Arc::clone(&quarantine)),
            quarantine,
            writer,
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Replaces the handlers that this node publishes, ahead of queued deliveries. Waits for a short time; after that
    /// they are published at the latest with the next registration.
    pub(in super::super) async fn publish(&self, handlers: Vec<PublishedHandler>) {
        let published = timeout(PUBLISH_WAIT, self.writer.publish(handlers)).await;
        if !matches!(published, Ok(Ok(()))) {
            tracing::warn!("it is not known yet whether other nodes know the new handlers");
        }
    }

    /// Refuses new requests, stores the queued ones, or refuses them where the database is away, and releases the lock.
    /// After [`STOP_WAIT`], or once `hurry` resolves, it drops the connection.
    pub(in super::super) async fn close(&self, hurry: impl Future<Output = ()>) {
        self.writer.close();
        self.quarantine.close().await;
        select! {
            () = self.writer.ended() => {}
            _ = timeout(STOP_WAIT, sleep(LEAST_WAIT).then(|()| hurry)) => self.writer.give_up(),
        }
        self.writer.ended().await;
        lock(&self.lock).take();
    }
}

/// Makes the schema where it is missing, and registers. Neither has a limit: a migration, the hold of all jobs after a
/// restore, or a commit that waits for a standby may take long. After a lock time-out it tries again. Any other error
/// ends the start, so that the operator reads it there and not with each delivery.
async fn enter(
    target: &Target,
    clock: &Clock,
    registrar: &mut Registrar,
) -> Result<(Connection, Registered), OpenError> {
    let mut gone_by = None;
    loop {
        let connection = in_time(connect(target, clock)).await?;
        let own = (registrar.node.id, registrar.node.machine.as_str());
        let connection = match reported("its tables", migrate(connection, Some(own))).await {
            FlightOutcome::Committed(connection, _) => connection,
            FlightOutcome::NotCommitted(Refusal::LockTimeout(why) | Refusal::Conflict(why), _) => {
                tracing::warn!(
                    why,
                    "the start waits for the tables, which another transaction uses"
                );
                sleep(LOCKED_PAUSE).await;
                continue;
            }
            FlightOutcome::NotCommitted(Refusal::Failed { code, text }, _) if code == NO_RIGHT => {
                return Err(failed(format!("{text}; {}", target.grant())));
            }
            FlightOutcome::NotCommitted(why, _) => return Err(failed(why)),
            FlightOutcome::Unknown(doubt) => return Err(failed(doubt)),
        };
        match reported("its registration", registrar.register(connection)).await {
            Err(RegisterError::NotCommitted(
                Refusal::LockTimeout(why) | Refusal::Conflict(why),
            )) => {
                tracing::warn!(
                    why,
                    "the start waits for a transaction of this node's last process"
                );
            }
            Err(why @ RegisterError::Connected { .. }) => {
                let by = *gone_by.get_or_insert_with(|| Instant::now() + GONE_WAIT);
                if by <= Instant::now() {
                    return Err(failed(why));
                }
                sleep(GONE_PAUSE).await;
            }
            registered => return registered.map_err(failed),
        }
    }
}

/// Says every [`REPORT_EVERY`] that the start waits for this step.
async fn reported<T>(what: &str, step: impl Future<Output = T>) -> T {
    let mut step = pin!(step);
    loop {
        match timeout(REPORT_EVERY, &mut step).await {
            Ok(done) => return done,
            Err(_) => tracing::warn!("the start waits until the database has {what}; {SLOW}"),
        }
    }
}

fn failed(why: impl Display) -> OpenError {
    OpenError::Database { why: why.to_string() }
}

async fn in_time<T>(opening: impl Future<Output = Result<T, String>>) -> Result<T, OpenError> {
    let opened = timeout(START_WAIT, opening).await;
    opened.unwrap_or_else(|_| Err("the database does not answer".to_owned())).map_err(failed)
}

/// Connects, and logs the findings that are warnings.
async fn connect(target: &Target, clock: &Clock) -> Result<Connection, String> {
    let connected = server::connect(target, clock).await;
    let (connection, warnings) = connected.map_err(|error| error.to_string())?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(connection)
}

/// The store's identity.
async fn identity(connection: &Connection) -> Result<Uuid, String> {
    let read = |error: tokio_postgres::Error| match error.code() {
        Some(&SqlState::UNDEFINED_TABLE) => NO_TABLES.to_owned(),
        _ => describe(&error),
    };
    let (known, needed) = schema::migration_counts();
    let id = connection.client.query_one(ID, &[]).await.map_err(read)?.try_get(0).map_err(read)?;
    connection.client.query_one(schema::CHECK, &[&known, &needed]).await.map_err(read)?;
    Ok(id)
}
