//! A node's session: the right to write, renewed after each start and each lost connection.
//!
//! A registration locks the node's row, so it waits for what an earlier session has in flight. What it reads behind
//! the lock is therefore complete, and a later transaction of that session fails in its fence.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use super::claim::{self, NodeAttempt};
use super::connection::Connection;
use super::flight::{Doubt, Flight, FlightOutcome, Param, Refusal, Session};
use super::handlers::{PublishedHandler, publish};
use super::history;
use super::live::LiveAttempts;
use super::node_file::NodeFile;
use super::params::params;
use super::remembered::{Remembered, note_away, note_lost};
use super::schema;
use super::server_history::ServerHistory;
use super::stop::{Stop, ask};
use crate::clock::Clock;
use crate::model::{EventId, Name, RunnerName, Timestamp};
use crate::random;

/// Another process that is connected by the node's name $1, and from where.
const CONNECTED: &str = "
    SELECT coalesce(host(client_addr), 'this machine') FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = left('hooklatch ' || $1, 63)
        AND pid <> pg_backend_pid() LIMIT 1";

/// Gives the node its row. Another node may be active under the name: the unique index refuses it.
const ADD: &str = "INSERT INTO node (id, name, machine, session, count, version, state)
    VALUES ($1, $2, $3, $4, 0, '', 'active') ON CONFLICT (id) DO NOTHING";

/// Locks the row until the end of the transaction. Also the sum of all nodes' marks, which grow with their commits,
/// whether the history has gone on from the store $2, and the node's own mark.
const LOCK: &str = "SELECT machine, session, state, count, (SELECT sum(mark)::bigint FROM node),
        EXISTS (SELECT FROM restored WHERE from_store = $2), mark
    FROM node WHERE id = $1 FOR NO KEY UPDATE";

/// Replaces the session. Every later transaction of the earlier one fails. Also says whether a roll call waits for the
/// node, and when the database was last restored.
const RENEW: &str = "UPDATE node SET name = $2, session = $3, count = greatest(count, $4) + 1,
    version = $5, schema = $6, state = 'active', seen_at = now_ms() WHERE id = $1
    RETURNING count, EXISTS (SELECT FROM roll_call WHERE node = $1),
        (SELECT max(greatest(made_at, restored_at)) FROM restored), (SELECT sum(mark)::bigint FROM node), mark";

/// Both marks are written to the folder behind the commit.
pub(super) const MARK: &str = "UPDATE node SET mark = mark + 1 WHERE id = $1
    RETURNING (SELECT sum(mark)::bigint FROM node) + 1, mark";

/// The SQLSTATE of a unique violation. Only the name of an active node can raise it: each other unique index is
/// resolved by a conflict clause.
const UNIQUE_VIOLATION: &str = "23505";

/// A receiver with its state folder.
#[derive(Debug, Clone)]
pub struct Node {
    /// Random, made in the state folder.
    pub id: Uuid,
    pub name: String,
    /// The identity of the machine.
    pub machine: String,
    /// The count of the last session that the state folder knows of. A database that was put back knows fewer.
    pub count: i64,
    /// The store that it was registered in last.
    pub store: Uuid,
    /// The sum of the marks of all its nodes, as seen last. A database that was put back has a smaller one.
    pub mark: i64,
    /// How many marks this node has committed. Other nodes' marks can hide in the sum that the database was put back, and not
    /// here.
    pub own_mark: i64,
}

impl Node {
    /// The node of a state folder.
    pub fn of_folder(file: &NodeFile, name: String, machine: String) -> Node {
        let NodeFile { id, count, store, mark, own_mark, .. } = *file;
        Node { id, name, machine, count, store, mark, own_mark }
    }

    /// Reads the sum and the own mark from the columns `at` and `at + 1` of a committed row.
    pub(super) fn read_marks(&mut self, row: &Row, at: usize) {
        if let (Ok(mark), Ok(own_mark)) = (row.try_get(at), row.try_get(at + 1)) {
            (self.mark, self.own_mark) = (mark, own_mark);
        }
    }
}

/// Why a node has no session.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(
        "another node is active as '{0}'; give this one another name, or declare that one lost (`hooklatch node lost {0}`)"
    )]
    NameTaken(String),
    #[error(
        "node '{name}' is on machine {machine}: this state folder was copied; declare that node lost (`hooklatch node lost {name}`), or delete the copy"
    )]
    OtherMachine { name: String, machine: String },
    /// The original of a copied state folder, or what the server has not noticed to be gone.
    #[error(
        "another process is connected as node '{name}', from {place}: this state folder was copied; delete the copy"
    )]
    Connected { name: String, place: String },
    /// Two processes take turns in one row, which must not go on.
    #[error(
        "another process has registered as node '{name}' (session {session}); stop one of the two"
    )]
    Replaced { name: String, session: Uuid },
    #[error(
        "the server is {found}, and this node has used {seen}: another server has taken its place; connect to that one"
    )]
    EarlierHistory { seen: Box<ServerHistory>, found: Box<ServerHistory> },
    #[error(transparent)]
    NotCommitted(Refusal),
    /// The session may have been written. The next registration finds out.
    #[error(transparent)]
    Unknown(Doubt),
}

/// A session with what ran under the node when it began, whichever session has claimed it. At the first one also what
/// ran when the node was declared lost, until its end has come: only this process can find that.
#[derive(Debug, Clone)]
pub struct Registered {
    pub session: Session,
    pub running: Vec<NodeAttempt>,
    /// Events that this process has accepted and the database no longer has.
    pub lost: Vec<(Name, EventId)>,
    /// If a roll call waits for the node, the runners that may have attempts that the database has lost.
    pub asked: BTreeSet<RunnerName>,
}

/// A registration in its flight, with its statements.
struct Sent {
    renew: usize,
    list: usize,
    history: ServerHistory,
    lost: Vec<(Name, EventId)>,
}

/// Registers the sessions of one process.
#[derive(Debug)]
pub struct Registrar {
    pub node: Node,
    /// What the next registration publishes.
    pub handlers: Vec<PublishedHandler>,
    /// The start of the outage, if a handler takes notices of it.
    pub(super) away_since: Option<Instant>,
    /// What the first registration has looked for, for the writer.
    pub(super) remembered: Option<Remembered>,
    /// The clock by which it keeps when events were accepted.
    pub(super) clock: Clock,
    /// The last history in which it has registered.
    pub seen: Option<ServerHistory>,
    /// Until then the row has the session of an earlier process.
    is_registered: bool,
    /// The sessions that this process may have written since the last one that is known to be committed.
    written: Vec<Uuid>,
    file: Option<NodeFile>,
}

impl Registrar {
    /// The first registration replaces any session in the row: the process holds the state folder's lock, so
    /// no other one of this node runs.
    pub fn new(node: Node) -> Self {
        Registrar {
            node,
            handlers: Vec::new(),
            away_since: None,
            remembered: None,
            clock: Clock::system(),
            seen: None,
            is_registered: false,
            written: Vec::new(),
            file: None,
        }
    }

    /// Makes the registrar of a state folder's node, whose file keeps the count of its sessions.
    pub fn of_folder(file: NodeFile, name: String, machine: String) -> Self {
        let node = Node::of_folder(&file, name, machine);
        Registrar { file: Some(file), ..Registrar::new(node) }
    }

    /// Writes a new session to the node's row, and reads what runs under it. A node that was declared lost is
    /// active again.
    pub async fn register(
        &mut self,
        connection: Connection,
    ) -> Result<(Connection, Registered), RegisterError> {
        let mut remembered = match &self.file {
            Some(file) => Remembered::load(&file.accepted(), self.clock.clone()),
            None => Remembered::new(self.clock.clone()),
        };
        let registered = self.renew(connection, &LiveAttempts::default(), &mut remembered).await?;
        self.remembered = Some(remembered);
        Ok(registered)
    }

    /// Writes a new session as [`Registrar::register`] does, for a process that tracks the attempts `live` and has
    /// accepted the events `remembered`.
    pub(super) async fn renew(
        &mut self,
        connection: Connection,
        live: &LiveAttempts,
        remembered: &mut Remembered,
    ) -> Result<(Connection, Registered), RegisterError> {
        let id = Uuid::from_bytes(random::id());
        let mut flight = Flight::unfenced(connection);
        let sent = match self.send(&mut flight, id, live, remembered).await {
            Ok(Ok(sent)) => sent,
            Ok(Err(refused)) => {
                flight.roll_back().await;
                return Err(refused);
            }
            Err(stop) => return Err(self.failed(stop.end(flight).await)),
        };
        self.written.push(id);
        match flight.commit().await {
            FlightOutcome::Committed(connection, rows) => {
                let count = rows.get(sent.renew).and_then(|rows| rows.first());
                let is_called = count.and_then(|row| row.try_get(1).ok()).unwrap_or(true);
                let restored_at: Option<i64> = count.and_then(|row| row.try_get(2).ok()).flatten();
                let restored_at = restored_at.map(Timestamp);
                if let Some(row) = count {
                    self.node.read_marks(row, 3);
                }
                let count = count.and_then(|row| row.try_get(0).ok()).unwrap_or(self.node.count);
                self.written = vec![id];
                self.is_registered = true;
                self.away_since = None;
                let store = sent.history.store;
                self.seen = Some(sent.history);
                (self.node.count, self.node.store) = (count, store);
                let running = claim::read(rows.get(sent.list).map_or(&[], Vec::as_slice));
                self.keep(&running).await;
                let asked =
                    self.file.as_ref().filter(|_| is_called).map(|file| file.runners.clone());
                let asked = asked.unwrap_or_default();
                remembered.found(store, &sent.lost);
                self.keep_accepted(remembered).await;
                for (source, event) in &sent.lost {
                    tracing::error!(%source, %event, "an accepted event is lost: let it be sent again");
                }
                let session = Session { node: self.node.id, id, count, restored_at };
                Ok((connection, Registered { session, running, lost: sent.lost, asked }))
            }
            other => Err(self.failed(other)),
        }
    }

    async fn send(
        &self,
        flight: &mut Flight,
        id: Uuid,
        live: &LiveAttempts,
        remembered: &mut Remembered,
    ) -> Result<Result<Sent, RegisterError>, Stop> {
        let node = &self.node;
        let (mut history, mut is_other) = ServerHistory::read(flight).await?;
        if let Some(seen) = &self.seen
            && history.is_before(seen)
        {
            let (seen, found) = (Box::new(seen.clone()), Box::new(history));
            return Ok(Err(RegisterError::EarlierHistory { seen, found }));
        }
        if self.file.is_some() && !self.is_registered {
            let rows = ask(flight, CONNECTED, params![node.name.clone()]).await?;
            if let Some(row) = rows.first() {
                let (name, place) = (node.name.clone(), row.try_get(0)?);
                return Ok(Err(RegisterError::Connected { name, place }));
            }
        }
        let own = || (Box::new(node.id), Box::new(node.name.clone()));
        let add: Vec<Param> = vec![own().0, own().1, Box::new(node.machine.clone()), Box::new(id)];
        flight.send(ADD, add).await;
        let rows = ask(flight, LOCK, params![node.id, node.store]).await?;
        let row = rows.first().ok_or(Stop::Changed)?;
        let is_new = node.count == 0
            && row.try_get::<_, i64>(3)? == 0
            && self.file.as_ref().is_none_or(|file| file.is_new);
        match self.check(row, id, is_other, history.store) {
            Ok(has_gone_back) => is_other = has_gone_back,
            Err(refused) => return Ok(Err(refused)),
        }
        if !self.is_known(row, history.store)? {
            // Another database, or one from before what they are about.
            remembered.clear();
        }
        let lost = remembered.missing(flight).await?;
        // If no node has acted on it yet. With `require_synchronous_standby`, its statement was wrong.
        is_other |= !lost.is_empty() && remembered.store == Some(history.store);
        if is_other {
            history.begin(flight).await?;
        }
        match &self.file {
            _ if is_new => live.set_listed_runners(BTreeSet::new()),
            Some(file) => live.set_asked_runners(file.runners.clone()),
            None => {}
        }
        history::answer(flight, node.id, live).await;
        let (known, _) = schema::migration_counts();
        let version = env!("CARGO_PKG_VERSION");
        let params = params![node.id, node.name.clone(), id, node.count, version, known];
        let renew = flight.send(RENEW, params).await;
        // Behind the writes to the table, which a migration that contracts waits for, or which wait for it.
        schema::check(flight).await;
        publish(flight, node.id, &self.handlers).await;
        let is_first = Box::new(!self.is_registered);
        let list = flight.send(claim::RUNNING, vec![own().0, is_first]).await;
        note_lost(flight, &lost).await;
        if let Some(since) = self.away_since {
            note_away(flight, since.elapsed()).await;
        }
        Ok(Ok(Sent { renew, list, history, lost }))
    }

    fn failed(&self, outcome: FlightOutcome) -> RegisterError {
        match outcome {
            FlightOutcome::NotCommitted(Refusal::Failed { code, .. }, _)
                if code == UNIQUE_VIOLATION =>
            {
                RegisterError::NameTaken(self.node.name.clone())
            }
            FlightOutcome::NotCommitted(refusal, _) => RegisterError::NotCommitted(refusal),
            FlightOutcome::Unknown(doubt) => RegisterError::Unknown(doubt),
            FlightOutcome::Committed(..) => unreachable!("a flight that was ended"),
        }
    }

    /// Writes the folder's file where it has changed, before anything is claimed for a runner that it lacks.
    ///
    /// Without the file nothing breaks but the discovery of a database that was put back, and a roll call at a runner that
    /// has left the configuration. So a full disk must not keep the node from working.
    pub(super) async fn keep(&mut self, running: &[NodeAttempt]) {
        let Some(file) = &mut self.file else { return };
        let before = file.clone();
        let Node { count, store, mark, own_mark, .. } = self.node;
        (file.count, file.store, file.mark, file.own_mark) = (count, store, mark, own_mark);
        let of_attempts = running.iter().filter_map(|own| own.running.runner.as_ref());
        file.runners.extend(of_attempts.map(|runner| runner.name.clone()));
        file.runners.extend(self.handlers.iter().filter_map(|handler| handler.runner.clone()));
        let file = file.clone();
        if file == before {
            return;
        }
        let kept = tokio::task::spawn_blocking(move || file.save()).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!("{error}");
        }
    }

    /// Keeps the last accepted events in the folder.
    pub(super) async fn keep_accepted(&self, remembered: &mut Remembered) {
        if let Some(file) = &self.file {
            remembered.save(&file.accepted()).await;
        }
    }

    /// Whether this store is the one that the node was in last, or has gone on from it.
    fn is_known(&self, row: &Row, store: Uuid) -> Result<bool, tokio_postgres::Error> {
        Ok(self.node.store == store || row.try_get(5)?)
    }

    /// Refuses a row of another machine or process. Whether the database has gone back: the history is another one, or
    /// the row counts fewer sessions than the node, or a mark is smaller than the one that it has seen in this store, or
    /// the row is older than the store that the node was in last. Another database may have no row of it.
    fn check(
        &self,
        row: &Row,
        id: Uuid,
        is_other: bool,
        store: Uuid,
    ) -> Result<bool, RegisterError> {
        let unreadable = |error| RegisterError::NotCommitted(Refusal::of(&error));
        let name = self.node.name.clone();
        let machine: String = row.try_get(0).map_err(unreadable)?;
        let session: Uuid = row.try_get(1).map_err(unreadable)?;
        let is_active = row.try_get::<_, &str>(2).map_err(unreadable)? == "active";
        let count: i64 = row.try_get(3).map_err(unreadable)?;
        let mark: i64 = row.try_get(4).map_err(unreadable)?;
        let own_mark: i64 = row.try_get(6).map_err(unreadable)?;
        if machine != self.node.machine {
            return Err(RegisterError::OtherMachine { name, machine });
        }
        // A nil session is nobody's: another node has acted on a change of the history.
        let is_taken = is_active && !session.is_nil();
        let is_known = self.is_known(row, store).map_err(unreadable)?;
        let is_older = count > 0 && !self.node.store.is_nil() && !is_known;
        let is_behind = (1..self.node.count).contains(&count)
            || self.node.store == store
                && (mark < self.node.mark || count > 0 && own_mark < self.node.own_mark)
            || is_older;
        let has_gone_back = is_other || is_taken && is_behind;
        let is_own = session == id || !self.is_registered || self.written.contains(&session);
        match has_gone_back || is_own || !is_taken {
            true => Ok(has_gone_back),
            false => Err(RegisterError::Replaced { name, session }),
        }
    }
}
