//! The database of a test's store, on the PostgreSQL server of this test program. Its clock is the test's.
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hooklatch::clock::Clock;
use hooklatch::model::Timestamp;
use hooklatch::store::postgres::{ClusterNode, Connection, FlightOutcome, Target, migrate};
use hooklatch::store::{Settings, Store};
use tokio::sync::OnceCell;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::server::{PASSWORD, PATIENCE, ROLE, Server};

/// Started for the first database. One for the tests of all threads, each of whose stores has up to eight connections.
static SERVER: OnceCell<Server> = OnceCell::const_new();

/// The databases of tests that are over.
static UNUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn unused() -> MutexGuard<'static, Vec<String>> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The database that the others are copies of.
const TEMPLATE: &str = "app";

/// The clock, functions that SQLite has, and a lane for each handler that has a job: as if a node had
/// published it.
const PREPARE: &str = "
    SET ROLE app;
    CREATE SCHEMA test;
    SET search_path = hooklatch, test;
    CREATE TABLE test.clock (one integer PRIMARY KEY, now bigint NOT NULL);
    INSERT INTO clock VALUES (1, 0);
    CREATE OR REPLACE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE
        RETURN (SELECT now FROM clock WHERE one = 1);
    CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint LANGUAGE sql VOLATILE
        RETURN (SELECT now FROM clock WHERE one = 1);
    CREATE FUNCTION test.zeroblob(length integer) RETURNS bytea LANGUAGE sql
        RETURN decode(repeat('00', length), 'hex');
    CREATE FUNCTION test.randomblob(length integer) RETURNS uuid LANGUAGE sql RETURN gen_random_uuid();
    CREATE FUNCTION test.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
    CREATE FUNCTION test.add_lane() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO lane (handler) VALUES (new.handler) ON CONFLICT DO NOTHING;
        RETURN new;
    END $$;
    CREATE TRIGGER add_lane BEFORE INSERT ON job FOR EACH ROW EXECUTE FUNCTION test.add_lane();";

/// A database and a client of the superuser to it.
pub(crate) struct TestDatabase {
    name: String,
    client: Client,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        unused().push(std::mem::take(&mut self.name));
    }
}

async fn server() -> &'static Server {
    let start = || async {
        let server = Server::start(&["max_connections=500"]).await;
        let connection = Connection::open(&target(&server, TEMPLATE)).await.unwrap();
        assert!(matches!(migrate(connection, None).await, FlightOutcome::Committed(..)));
        let client = server.client("postgres", TEMPLATE).await;
        client.batch_execute(PREPARE).await.unwrap();
        admit(&server, TEMPLATE, false).await;
        cut(&server, TEMPLATE, "").await;
        server
    };
    SERVER.get_or_init(start).await
}

fn target(server: &Server, database: &str) -> Target {
    let port = server.port;
    let address = format!("postgresql://{ROLE}@127.0.0.1:{port}/{database}?sslmode=disable");
    Target::new(&address, Some(PASSWORD), None, false).unwrap()
}

/// Takes connections, or refuses them.
async fn admit(server: &Server, database: &str, is_open: bool) {
    let sql = format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {is_open}");
    server.admin().await.batch_execute(&sql).await.unwrap();
}

/// Ends the connections for which `also` is true too, and waits until their backends are gone.
async fn cut(server: &Server, database: &str, also: &str) {
    end_connections(&server.admin().await, database, also).await;
}

async fn end_connections(client: &Client, database: &str, also: &str) {
    // Given a time to wait, the server looks every 100 ms only.
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}' {also}"
    );
    let until = Instant::now() + PATIENCE;
    while client.query_one(&end, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(Instant::now() < until, "connections do not end");
        sleep(Duration::from_millis(1)).await;
    }
}

impl TestDatabase {
    /// A new one with the tables of a store, at this time.
    pub(crate) async fn make(now: Timestamp) -> Self {
        let database = Self::copy_of(TEMPLATE).await;
        database.set_clock(now).await;
        database
    }

    /// Copies a database that has no connection.
    async fn copy_of(original: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = server().await;
        let admin = server.admin().await;
        let unused = std::mem::take(&mut *unused());
        for name in unused {
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            admin.batch_execute(&drop).await.unwrap();
        }
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let make = format!("CREATE DATABASE {name} TEMPLATE {original} OWNER {ROLE}");
        admin.batch_execute(&make).await.unwrap();
        let client = connect(&name).await;
        // A copy of the server would have the oids of the original, as this one stands for.
        let here = "UPDATE meta SET own = 'meta'::regclass,
            database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        client.batch_execute(here).await.unwrap();
        TestDatabase { name, client }
    }

    /// A store of the node `node`.
    pub(crate) async fn open(&self, settings: &Settings, clock: &Clock) -> Store {
        let target = target(server().await, &self.name);
        let node =
            ClusterNode { target, name: "node".parse().unwrap(), machine: "machine".to_owned() };
        Store::connect(settings, node, Vec::new(), clock.clone()).await.unwrap()
    }

    /// Runs statements of the superuser.
    pub(crate) async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    /// The number that this query finds.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Sets the time of all statements of the store.
    pub(crate) async fn set_clock(&self, to: Timestamp) {
        self.run(&format!("UPDATE clock SET now = {}", to.0)).await;
    }

    /// From now on refuses this change of the rows for which `when` is true.
    pub(crate) async fn refuse(&self, change: &str, when: &str) {
        let (change, when) = match change {
            "INSERT ON paused" => ("INSERT OR UPDATE ON lane", "new.paused_at IS NOT NULL"),
            "DELETE ON paused" => ("UPDATE ON lane", "new.paused_at IS NULL"),
            other => (other, when),
        };
        let refuse = format!(
            "CREATE TRIGGER refuse BEFORE {change} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION test.refuse()"
        );
        self.run(&refuse).await;
    }

    /// Ends a refusal.
    pub(crate) async fn allow(&self) {
        let tables =
            "SELECT string_agg('DROP TRIGGER refuse ON ' || tgrelid::regclass, ';') FROM pg_trigger
            WHERE tgname = 'refuse'";
        let drop: String = self.client.query_one(tables, &[]).await.unwrap().get(0);
        self.run(&drop).await;
    }

    /// Keeps each transaction of a node and of an operator waiting until the client is dropped.
    pub(crate) async fn hold_writer(&self) -> Client {
        let client = connect(&self.name).await;
        let hold = "BEGIN; SELECT FROM node FOR UPDATE; SELECT FROM meta FOR UPDATE";
        client.batch_execute(hold).await.unwrap();
        client
    }

    /// Ends the connections of the store.
    pub(crate) async fn cut(&self) {
        end_connections(&self.client, &self.name, &format!("AND usename = '{ROLE}'")).await;
    }

    /// Takes new connections, or refuses them.
    pub(crate) async fn admit(&self, is_open: bool) {
        admit(server().await, &self.name, is_open).await;
    }

    /// Copies the database of the store, which is closed.
    pub(crate) async fn copy(&mut self) -> Self {
        cut(server().await, &self.name, "").await;
        let copy = Self::copy_of(&self.name).await;
        self.client = connect(&self.name).await;
        copy
    }
}

async fn connect(database: &str) -> Client {
    let client = server().await.client("postgres", database).await;
    client.batch_execute("SET search_path = hooklatch, test").await.unwrap();
    client
}
