//! Nodes whose writers share one server, and the deliveries that they get.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{Headers, OnRedelivery, Repeats, State, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::store::postgres::{Connection, Registrar, Writer, migrate};
use hooklatch::store::{Accept, Accepted, NewJob, Refused};
use hooklatch::verify::{self, Draft, Verified};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::types::FromSqlOwned;

use super::server::{PATIENCE, Server};
use super::site::{committed, node, target};

pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);

/// When deliveries arrive: near the server's clock, or it would be corrected.
static ARRIVAL: LazyLock<Timestamp> = LazyLock::new(|| Clock::system().now());

pub(crate) const CREATED: Accepted = Accepted::Created { jobs: 1, held: None, flagged: false };

/// A server with the store's schema.
pub(crate) struct Cluster {
    pub(crate) server: Server,
}

impl Cluster {
    pub(crate) async fn new(options: &[&str]) -> Self {
        Self::on(Server::start(options).await).await
    }

    pub(crate) async fn on(server: Server) -> Self {
        let connection = Connection::open(&target(server.port, false)).await.unwrap();
        committed(migrate(connection, None).await);
        Cluster { server }
    }

    /// A node with a session, straight at the server.
    pub(crate) async fn node(&self, name: &str) -> Writer {
        self.node_with(name, self.server.port, false, &Limits::default()).await
    }

    pub(crate) async fn node_with(
        &self,
        name: &str,
        port: u16,
        require_standby: bool,
        limits: &Limits,
    ) -> Writer {
        let registrar = Registrar::new(node(name));
        let (writer, _) =
            Writer::start(target(port, require_standby), registrar, limits, Clock::system());
        ready(&writer).await;
        writer
    }

    /// A client of the superuser in the store's database.
    pub(crate) async fn admin(&self) -> Client {
        let admin = self.server.client("postgres", "app").await;
        admin
            .batch_execute("SET search_path = hooklatch; SET synchronous_commit = local")
            .await
            .unwrap();
        admin
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.admin().await.batch_execute(sql).await.unwrap();
    }

    /// The one value that a query returns.
    pub(crate) async fn get<T: FromSqlOwned>(&self, sql: &str) -> T {
        self.admin().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn count(&self, what: &str) -> i64 {
        self.get(&format!("SELECT count(*) FROM {what}")).await
    }

    /// A connection of the node with this name.
    pub(crate) async fn connected(&self, name: &str) -> Connection {
        Connection::open(&target(self.server.port, false).of_node(name)).await.unwrap()
    }

    /// A transaction that holds the rows of all nodes: each flight waits in its fence until it is dropped.
    pub(crate) async fn hold(&self) -> Client {
        let admin = self.admin().await;
        admin.batch_execute("BEGIN; SELECT FROM node FOR UPDATE").await.unwrap();
        admin
    }

    /// Waits until so many flights wait for a lock, or sleep.
    pub(crate) async fn blocked(&self, flights: i64) {
        let query = "SELECT 1 FROM pg_stat_activity
            WHERE usename = 'app' AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep') HAVING count(*) = ";
        self.server.wait_for(&format!("{query}{flights}")).await;
    }
}

pub(crate) async fn ready(writer: &Writer) {
    let until = Instant::now() + PATIENCE;
    while let Err(why) = writer.ready() {
        assert!(Instant::now() < until, "{why}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A delivery whose signature covers the id.
pub(crate) fn stripe(id: &str, data: &str) -> Verified {
    let body = format!(r#"{{"id":"{id}","object":"event","type":"a.b","data":{data}}}"#);
    delivery("stripe", "whsec_test", id, "a.b", Bytes::from(body))
}

/// A delivery whose signature covers only the body.
pub(crate) fn github(id: &str, event: &str, body: &str) -> Verified {
    delivery("github", "test", id, event, Bytes::copy_from_slice(body.as_bytes()))
}

pub(crate) fn delivery(
    provider: &str,
    secret: &str,
    id: &str,
    event_type: &str,
    body: Bytes,
) -> Verified {
    delivery_of(&Scheme::embedded(provider).unwrap(), secret, id, event_type, body)
}

/// A request of a sender that names nothing and asks for a run; those with one `body` are equal.
pub(crate) fn trigger(body: &str) -> Verified {
    let scheme = Scheme::embedded("alertmanager").unwrap().with_repeats(Repeats::Trigger);
    delivery_of(&scheme, "t", "", "", body.to_owned().into())
}

fn delivery_of(scheme: &Scheme, secret: &str, id: &str, event_type: &str, body: Bytes) -> Verified {
    let key = verify::key(scheme, "test", secret).unwrap();
    let mut headers = Headers::new();
    headers.push("Content-Type", "application/json");
    let draft = Draft { method: "POST", id, event_type, headers, body: body.clone(), url: None };
    let headers = verify::sign(scheme, Some(&key), &draft, START).unwrap();
    let request = verify::Request { method: "POST", url: None, headers: &headers, body };
    verify::verify(scheme, &[key], request, START).unwrap()
}

/// A delivery to the source of its provider's name, with a job for `h`.
pub(crate) fn new(delivery: Verified) -> Accept {
    let source = if delivery.id_signed() { "stripe" } else { "github" };
    Accept {
        source: source.parse().unwrap(),
        received_at: *ARRIVAL,
        delivery,
        jobs: vec![NewJob::of("h".parse().unwrap())],
        on_redelivery: OnRedelivery::Ignore,
    }
}

pub(crate) async fn accept(writer: &Writer, delivery: Verified) -> Result<Accepted, Refused> {
    writer.accept(new(delivery), Instant::now() + PATIENCE).await
}

/// Spawns [`accept`], which is queued when this returns.
pub(crate) async fn begin(
    writer: &Writer,
    delivery: Verified,
) -> JoinHandle<Result<Accepted, Refused>> {
    let (writer, delivery) = (writer.clone(), Arc::new(delivery));
    let task = tokio::spawn(async move { accept(&writer, (*delivery).clone()).await });
    // On one thread, the task runs until it waits for its answer.
    tokio::task::yield_now().await;
    task
}

pub(crate) fn duplicate(state: State) -> Accepted {
    let (state, first_received_at) = (Some(state), *ARRIVAL);
    Accepted::Duplicate { state, removed: false, replayed: 0, first_received_at, conflict: false }
}
