//! A server with the store's schema, a table to write to, and a node with a session.

use hooklatch::store::postgres::{
    Connection, Flight, FlightOutcome, Node, Param, Registrar, Session, Target, migrate,
};
use uuid::Uuid;

use super::server::{PASSWORD, ROLE, Server};

pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) session: Session,
    pub(crate) registrar: Registrar,
}

/// Stores a row. The same key twice is an error.
pub(crate) const INSERT: &str = "INSERT INTO item (key) VALUES ($1)";

pub(crate) fn node(name: &str) -> Node {
    let id = Uuid::from_bytes(hooklatch::random::id());
    let (name, machine) = (name.to_owned(), "machine one".to_owned());
    Node { id, name, machine, count: 0, store: Uuid::nil(), mark: 0, own_mark: 0 }
}

pub(crate) fn target(port: u16, require_standby: bool) -> Target {
    let address = format!("postgresql://{ROLE}@127.0.0.1:{port}/app?sslmode=disable");
    Target::new(&address, Some(PASSWORD), None, require_standby).unwrap()
}

/// The connection of a flight that is committed.
pub(crate) fn committed(outcome: FlightOutcome) -> Connection {
    match outcome {
        FlightOutcome::Committed(connection, _) => connection,
        other => panic!("not committed: {}", said(&other)),
    }
}

/// An outcome in words.
pub(crate) fn said(outcome: &FlightOutcome) -> String {
    match outcome {
        FlightOutcome::Committed(..) => "committed".to_owned(),
        FlightOutcome::NotCommitted(why, _) => format!("not committed: {why}"),
        FlightOutcome::Unknown(why) => format!("unknown: {why}"),
    }
}

impl Site {
    pub(crate) async fn new(options: &[&str]) -> Self {
        let server = Server::start(options).await;
        let connection = Connection::open(&target(server.port, false)).await.unwrap();
        let connection = committed(migrate(connection, None).await);
        server
            .client(ROLE, "app")
            .await
            .batch_execute("CREATE TABLE hooklatch.item (key bigint PRIMARY KEY)")
            .await
            .unwrap();
        let mut registrar = Registrar::new(node("a"));
        let (_, registered) = registrar.register(connection).await.unwrap();
        Site { server, session: registered.session, registrar }
    }

    pub(crate) async fn connect(&self, port: u16, require_standby: bool) -> Connection {
        Connection::open(&target(port, require_standby)).await.unwrap()
    }

    /// A connection straight to the server.
    pub(crate) async fn direct(&self, require_standby: bool) -> Connection {
        self.connect(self.server.port, require_standby).await
    }

    /// One flight that stores the row `key`.
    pub(crate) async fn store(&self, connection: Connection, key: i64) -> FlightOutcome {
        let mut flight = Flight::begin(connection, &self.session).await;
        flight.send(INSERT, vec![Box::new(key) as Param]).await;
        flight.commit().await
    }

    /// Whether the row is stored. Asked when no backend of the product is left that could still commit it.
    pub(crate) async fn has(&self, key: i64) -> bool {
        let query = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity
            WHERE usename = 'app' AND datname = 'app' AND application_name = 'hooklatch')";
        self.server.wait_for(query).await;
        self.sees(key).await
    }

    /// Whether the row can be seen now.
    pub(crate) async fn sees(&self, key: i64) -> bool {
        let client = self.server.client("postgres", "app").await;
        let rows = client.query("SELECT FROM hooklatch.item WHERE key = $1", &[&key]).await;
        !rows.unwrap().is_empty()
    }
}
