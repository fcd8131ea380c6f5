//! Flights that the server refuses: errors, fences, deadlocks and locks.

use hooklatch::store::postgres::{Connection, Flight, FlightOutcome, Refusal, Registrar, Session};

use super::proxy::{Act, Proxy, Side};
use super::server::PATIENCE;
use super::site::{INSERT, Site, committed, node, said};

const UPDATE: &str = "UPDATE item SET key = key WHERE key = $1";

#[track_caller]
fn refused(outcome: FlightOutcome) -> (Refusal, Option<Connection>) {
    match outcome {
        FlightOutcome::NotCommitted(refusal, connection) => (refusal, connection),
        other => panic!("{}", said(&other)),
    }
}

/// The driver answers the COMMIT of such a transaction with Ok.
#[tokio::test]
async fn an_error_before_commit_stores_nothing_and_keeps_the_connection() {
    let site = Site::new(&[]).await;
    let connection = committed(site.store(site.direct(false).await, 1).await);
    let mut flight = Flight::begin(connection, &site.session).await;
    for key in [2_i64, 1, 3] {
        flight.send(INSERT, vec![Box::new(key)]).await;
    }
    let (refusal, connection) = refused(flight.commit().await);
    assert!(matches!(&refusal, Refusal::Failed { code, .. } if code == "23505"), "{refusal}");
    committed(site.store(connection.expect("usable"), 4).await);
    for key in [1, 2, 3, 4] {
        assert_eq!(site.has(key).await, [1, 4].contains(&key), "row {key}");
    }
}

/// The driver does not send such a statement, and the server would commit the others.
#[tokio::test]
async fn a_statement_that_cannot_be_encoded_stops_the_commit_of_the_others() {
    let site = Site::new(&[]).await;
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    flight.send(INSERT, vec![Box::new(1_i64)]).await;
    flight.send(INSERT, vec![Box::new("not a number")]).await;
    let (_, connection) = refused(flight.commit().await);
    committed(site.store(connection.expect("usable"), 2).await);
    assert!(!site.has(1).await);
}

/// Without the read-only default, each statement behind it would commit by itself.
#[tokio::test]
async fn when_begin_fails_the_statements_behind_it_store_nothing() {
    let site = Site::new(&[]).await;
    let proxy = Proxy::start(&site.server).await;
    let connection = committed(site.store(site.connect(proxy.port, false).await, 1).await);
    proxy.arm(Side::Client, 1, Act::Replace(b"BEGIN", b"BEGIM"));
    let (refusal, _) = refused(site.store(connection, 2).await);
    assert!(refusal.to_string().contains("BEGIM"), "{refusal}");
    assert!(!site.has(2).await);
}

/// The fence waits for the row's lock with COMMIT already at the server, and then finds another session.
#[tokio::test]
async fn a_replaced_session_rolls_back_a_flight_that_is_on_its_way() {
    let site = Site::new(&[]).await;
    let proxy = Proxy::start(&site.server).await;
    let connection = committed(site.store(site.connect(proxy.port, false).await, 1).await);
    let mut other = site.server.client("postgres", "app").await;
    let other = other.transaction().await.unwrap();
    other.batch_execute("SELECT FROM hooklatch.node FOR UPDATE").await.unwrap();

    proxy.watch();
    let mut flight = Flight::begin(connection, &site.session).await;
    flight.send(INSERT, vec![Box::new(2_i64)]).await;
    let flight = tokio::spawn(flight.commit());
    let waits = "SELECT 1 FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock'";
    site.server.wait_for(waits).await;
    let sent = proxy.passed(Side::Client);
    assert!(sent.iter().any(|name| name == "Query COMMIT"), "{sent:?}");
    other.batch_execute("UPDATE hooklatch.node SET session = gen_random_uuid()").await.unwrap();
    other.commit().await.unwrap();

    let (refusal, connection) = refused(flight.await.unwrap());
    assert_eq!(refusal, Refusal::Fenced);
    // The connection is usable, and the session is not.
    let (refusal, _) = refused(site.store(connection.expect("usable"), 3).await);
    assert_eq!(refusal, Refusal::Fenced);
    assert!(!site.has(2).await && !site.has(3).await);
}

#[tokio::test]
async fn a_node_that_is_declared_lost_writes_nothing() {
    let site = Site::new(&[]).await;
    let admin = site.server.client("postgres", "app").await;
    admin.batch_execute("UPDATE hooklatch.node SET state = 'lost'").await.unwrap();
    let (refusal, _) = refused(site.store(site.direct(false).await, 1).await);
    assert_eq!(refusal, Refusal::Fenced);
    assert!(!site.has(1).await);
}

async fn updating(connection: Connection, session: &Session, key: i64) -> Flight {
    let mut flight = Flight::begin(connection, session).await;
    let update = flight.send(UPDATE, vec![Box::new(key)]).await;
    assert!(flight.rows(update).await.is_some());
    flight
}

#[tokio::test]
async fn of_two_flights_in_a_deadlock_one_commits_and_one_may_be_repeated() {
    let site = Site::new(&["deadlock_timeout=50ms"]).await;
    let mut other = Registrar::new(node("b"));
    let (_, other) = other.register(site.direct(false).await).await.unwrap();
    let other = other.session;
    for key in [1, 2] {
        committed(site.store(site.direct(false).await, key).await);
    }
    let mut first = updating(site.direct(false).await, &site.session, 1).await;
    let mut second = updating(site.direct(false).await, &other, 2).await;
    first.send(UPDATE, vec![Box::new(2_i64)]).await;
    second.send(UPDATE, vec![Box::new(1_i64)]).await;
    let ends = tokio::join!(first.commit(), second.commit());
    let (victim, winner) = match ends {
        (first @ FlightOutcome::NotCommitted(..), second) => (first, second),
        (first, second) => (second, first),
    };
    committed(winner);
    let (refusal, connection) = refused(victim);
    assert!(matches!(refusal, Refusal::Conflict(_)), "{refusal}");
    assert!(connection.is_some());
}

#[tokio::test]
async fn a_flight_waits_for_a_lock_no_longer_than_its_timeout() {
    let site = Site::new(&[]).await;
    committed(site.store(site.direct(false).await, 1).await);
    let mut other = site.server.client("postgres", "app").await;
    let other = other.transaction().await.unwrap();
    other.batch_execute("SELECT FROM hooklatch.item FOR UPDATE").await.unwrap();
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    flight.send(INSERT, vec![Box::new(2_i64)]).await;
    flight.send(UPDATE, vec![Box::new(1_i64)]).await;
    let outcome = tokio::time::timeout(PATIENCE, flight.commit()).await;
    let (refusal, connection) = refused(outcome.expect("it waits without end"));
    assert!(matches!(refusal, Refusal::LockTimeout(_)), "{refusal}");
    assert!(connection.is_some());
    assert!(!site.sees(2).await);
}

/// Its locks go with it: another transaction of the same node need not wait for a time-out.
#[tokio::test]
async fn a_dropped_flight_is_rolled_back() {
    let site = Site::new(&[]).await;
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    let insert = flight.send(INSERT, vec![Box::new(1_i64)]).await;
    assert!(flight.rows(insert).await.is_some());
    drop(flight);
    assert!(!site.has(1).await);
    committed(site.store(site.direct(false).await, 1).await);
}
