//! Commits that wait for a standby, and what ends the wait.

use hooklatch::store::postgres::{Connection, Doubt, Flight, FlightOutcome};
use tokio::task::JoinHandle;

use super::cluster::{CREATED, Cluster, accept, stripe};
use super::proxy::{Act, Proxy, Side};
use super::server::PATIENCE;
use super::site::{INSERT, Site, committed, said, target};

const NAMES: &str = "synchronous_standby_names";

/// A site whose server names a standby that does not exist.
async fn without_standby() -> Site {
    let site = Site::new(&[]).await;
    site.server.set(NAMES, "absent").await;
    site
}

/// A flight that stores the row and waits for the standby, and its backend.
async fn waiting(site: &Site, require_standby: bool, key: i64) -> (JoinHandle<FlightOutcome>, i32) {
    let mut flight = Flight::begin(site.direct(require_standby).await, &site.session).await;
    flight.send(INSERT, vec![Box::new(key)]).await;
    let flight = tokio::spawn(flight.commit());
    (flight, site.server.waiting().await)
}

async fn ended(flight: JoinHandle<FlightOutcome>) -> FlightOutcome {
    tokio::time::timeout(PATIENCE, flight).await.expect("the flight does not end").unwrap()
}

#[track_caller]
fn unknown(outcome: FlightOutcome) -> Doubt {
    match outcome {
        FlightOutcome::Unknown(doubt) => doubt,
        other => panic!("{}", said(&other)),
    }
}

/// The server answers such a commit with a warning and success, and the role would suppress the warning.
#[tokio::test]
async fn a_cancelled_wait_is_an_unknown_outcome_even_for_a_role_without_warnings() {
    let site = without_standby().await;
    let admin = site.server.admin().await;
    // Itself it does not wait.
    admin.batch_execute("SET synchronous_commit = local").await.unwrap();
    admin.batch_execute("ALTER ROLE app SET client_min_messages = error").await.unwrap();
    for require_standby in [true, false] {
        let key = i64::from(require_standby);
        let (flight, backend) = waiting(&site, require_standby, key).await;
        admin.execute("SELECT pg_cancel_backend($1)", &[&backend]).await.unwrap();
        let doubt = unknown(ended(flight).await);
        assert!(
            matches!(&doubt, Doubt::Warned(text) if text.contains("canceling wait")),
            "{doubt}"
        );
        assert!(site.has(key).await, "committed on the primary alone");
    }
}

#[tokio::test]
async fn names_that_are_emptied_in_the_wait_make_the_outcome_unknown() {
    let site = without_standby().await;
    let (flight, _) = waiting(&site, true, 1).await;
    site.server.set(NAMES, "").await;
    assert_eq!(unknown(ended(flight).await), Doubt::NoStandby);
    assert!(site.has(1).await);
    // Where no standby is required, the same is a commit.
    let outcome = site.store(site.direct(false).await, 2).await;
    committed(outcome);
}

/// The look behind COMMIT alone would see the names as they were before.
#[tokio::test]
async fn names_that_are_emptied_in_the_wait_and_set_again_make_the_outcome_unknown() {
    let site = Site::new(&[]).await;
    let _standby = site.server.standby("s1");
    site.server.set(NAMES, "s1").await;
    let proxy = Proxy::start(&site.server).await;
    let connection = site.connect(proxy.port, true).await;
    let connection = committed(site.store(connection, 1).await);
    proxy.watch();
    let connection = committed(site.store(connection, 2).await);
    let messages = proxy.passed(Side::Client);
    let commit = messages.iter().position(|name| name == "Query COMMIT").unwrap();

    site.server.set(NAMES, "absent").await;
    // Behind COMMIT, the look is held.
    proxy.arm(Side::Client, commit + 2, Act::Hold);
    let mut flight = Flight::begin(connection, &site.session).await;
    flight.send(INSERT, vec![Box::new(3_i64)]).await;
    let flight = tokio::spawn(flight.commit());
    site.server.waiting().await;
    proxy.holds().await;
    site.server.set(NAMES, "").await;
    let query =
        "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')";
    site.server.wait_for(query).await;
    site.server.set(NAMES, "absent").await;
    proxy.release();
    assert_eq!(unknown(ended(flight).await), Doubt::NoStandby);
}

#[tokio::test]
async fn without_names_no_commit_is_known_where_a_standby_is_required() {
    let site = Site::new(&[]).await;
    let outcome = site.store(site.direct(true).await, 1).await;
    assert_eq!(unknown(outcome), Doubt::NoStandby);
    assert!(site.has(1).await);
}

#[tokio::test]
async fn a_backend_that_is_terminated_in_the_wait_leaves_an_unknown_outcome() {
    let site = without_standby().await;
    let admin = site.server.admin().await;
    let (flight, backend) = waiting(&site, true, 1).await;
    admin.execute("SELECT pg_terminate_backend($1)", &[&backend]).await.unwrap();
    let doubt = unknown(ended(flight).await);
    assert!(matches!(doubt, Doubt::Lost(_)), "{doubt}");
    assert!(site.has(1).await, "visible, although no standby has it");
}

#[tokio::test]
async fn a_server_that_crashes_in_the_wait_leaves_an_unknown_outcome() {
    let mut site = without_standby().await;
    let (flight, _) = waiting(&site, true, 1).await;
    site.server.crash();
    let doubt = unknown(ended(flight).await);
    assert!(matches!(doubt, Doubt::Lost(_)), "{doubt}");
    site.server.launch();
    assert!(site.has(1).await, "visible, although no standby has it");
}

#[tokio::test]
async fn a_server_that_crashes_before_the_commit_has_stored_nothing() {
    let mut site = Site::new(&[]).await;
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    let insert = flight.send(INSERT, vec![Box::new(1_i64)]).await;
    assert!(flight.rows(insert).await.is_some());
    site.server.crash();
    match flight.commit().await {
        FlightOutcome::Committed(..) => panic!("committed"),
        FlightOutcome::NotCommitted(..) | FlightOutcome::Unknown(_) => {}
    }
    site.server.launch();
    assert!(!site.has(1).await);
}

#[tokio::test]
async fn what_is_committed_is_on_the_standby_that_is_promoted() {
    let mut site = Site::new(&[]).await;
    let standby = site.server.standby("s1");
    site.server.set(NAMES, "s1").await;
    let mut connection = site.direct(true).await;
    for key in 0..50 {
        connection = committed(site.store(connection, key).await);
    }
    site.server.crash();
    // Until it is promoted it takes no writes, and no connection of the product.
    let refused = Connection::open(&target(standby.port, true)).await;
    assert!(refused.is_err());
    standby.promote().await;
    site.server = standby;
    for key in 0..50 {
        assert!(site.sees(key).await, "row {key} is lost");
    }
    // The session is in the database, and so is promoted with it.
    committed(site.store(site.direct(false).await, 50).await);
}

#[tokio::test]
async fn a_wait_ends_as_committed_when_the_standby_comes() {
    let site = Site::new(&[]).await;
    site.server.set(NAMES, "s1").await;
    let (flight, _) = waiting(&site, true, 1).await;
    assert!(!flight.is_finished());
    let _standby = site.server.standby("s1");
    committed(ended(flight).await);
}

/// The server warns of each transaction whose ids are near their end: the warning says nothing about the commit.
#[tokio::test]
async fn a_warning_before_the_commit_does_not_put_it_in_doubt() {
    let site = Site::new(&[]).await;
    let admin = site.server.client("postgres", "app").await;
    let warning = "CREATE FUNCTION warned() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE WARNING 'database must be vacuumed within 39000000 transactions'; RETURN NULL; END $$";
    admin.batch_execute("SET search_path = hooklatch").await.unwrap();
    admin.batch_execute(warning).await.unwrap();
    admin
        .batch_execute("CREATE TRIGGER warned AFTER INSERT ON item EXECUTE FUNCTION warned()")
        .await
        .unwrap();
    let connection = committed(site.store(site.direct(false).await, 1).await);
    assert!(site.sees(1).await);
    // One that comes with the commit is about it.
    admin
        .batch_execute(
            "DROP TRIGGER warned ON item;
             CREATE CONSTRAINT TRIGGER warned AFTER INSERT ON item DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION warned()",
        )
        .await
        .unwrap();
    let doubt = unknown(site.store(connection, 2).await);
    assert!(matches!(&doubt, Doubt::Warned(text) if text.contains("vacuumed")), "{doubt}");
    assert!(site.has(2).await);
}

/// A caller of `ready` learns that nothing is stored, and does not wait for it.
#[tokio::test]
async fn a_commit_that_waits_for_too_long_is_told_until_it_is_answered() {
    let cluster = Cluster::new(&[]).await;
    let a = cluster.node("a").await;
    cluster.server.set(NAMES, "absent").await;
    let mut wakeups = a.wakeups();
    let waits = tokio::spawn({
        let a = a.clone();
        async move { accept(&a, stripe("e1", "{}")).await }
    });
    let why = loop {
        wakeups.mark_unchanged();
        match a.ready() {
            Err(why) => break why.to_string(),
            Ok(()) => tokio::time::timeout(PATIENCE, wakeups.changed()).await.unwrap().unwrap(),
        }
    };
    assert!(why.contains("no answer for 8 s; see whether its commits wait for a standby"), "{why}");
    cluster.server.set(NAMES, "").await;
    assert_eq!(waits.await.unwrap(), Ok(CREATED));
    assert_eq!(a.ready(), Ok(()));
}
