//! Sessions: who may register, and what becomes of the session before.

use hooklatch::store::postgres::{
    Flight, FlightOutcome, Refusal, RegisterError, Registrar, ServerHistory,
};

use super::proxy::{Act, Proxy, Side};
use super::site::{INSERT, Site, committed, node, said};

#[tokio::test]
async fn each_registration_has_a_session_of_its_own_and_a_higher_count() {
    let mut site = Site::new(&[]).await;
    assert_eq!(site.session.count, 1);
    let (connection, second) = site.registrar.register(site.direct(false).await).await.unwrap();
    let second = second.session;
    assert_eq!(second.count, 2);
    assert_ne!(second.id, site.session.id);
    drop(connection);
    // A database that was put back knows fewer sessions than the folder.
    let mut folder = site.registrar.node.clone();
    folder.count = 40;
    let (_, third) = Registrar::new(folder).register(site.direct(false).await).await.unwrap();
    assert_eq!(third.session.count, 41);
}

#[tokio::test]
async fn a_name_or_a_folder_on_a_second_machine_is_refused_until_the_node_is_lost() {
    let site = Site::new(&[]).await;
    let mut same_name = Registrar::new(node("a"));
    let refused = same_name.register(site.direct(false).await).await.err().unwrap();
    assert!(matches!(&refused, RegisterError::NameTaken(name) if name == "a"), "{refused}");

    let mut copied = site.registrar.node.clone();
    copied.machine = "machine two".to_owned();
    let refused = Registrar::new(copied).register(site.direct(false).await).await.err().unwrap();
    assert!(matches!(&refused, RegisterError::OtherMachine { .. }), "{refused}");

    // Neither has changed the row.
    committed(site.store(site.direct(false).await, 1).await);
    let admin = site.server.client("postgres", "app").await;
    admin.batch_execute("UPDATE hooklatch.node SET state = 'lost'").await.unwrap();
    same_name.register(site.direct(false).await).await.unwrap();
}

/// A node that is declared lost while it lives registers again, unlike one whose session another process has taken.
#[tokio::test]
async fn a_process_takes_back_a_lost_session_and_never_that_of_another_process() {
    let mut site = Site::new(&[]).await;
    let admin = site.server.client("postgres", "app").await;
    let lost = "UPDATE hooklatch.node SET state = 'lost', session = gen_random_uuid()";
    admin.batch_execute(lost).await.unwrap();
    let (connection, registered) = site.registrar.register(site.direct(false).await).await.unwrap();
    site.session = registered.session;
    committed(site.store(connection, 1).await);

    let mut other = Registrar::new(site.registrar.node.clone());
    let (_, taken) = other.register(site.direct(false).await).await.unwrap();
    let refused = site.registrar.register(site.direct(false).await).await.err().unwrap();
    let is_named =
        matches!(&refused, RegisterError::Replaced { session, .. } if *session == taken.session.id);
    assert!(is_named, "{refused}");
}

/// The row is locked by the flight, so what is read behind the registration's lock misses nothing of it.
#[tokio::test]
async fn a_registration_waits_for_the_flight_of_the_session_before() {
    let mut site = Site::new(&[]).await;
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    let insert = flight.send(INSERT, vec![Box::new(1_i64)]).await;
    assert!(flight.rows(insert).await.is_some());
    let connection = site.direct(false).await;
    let mut registrar = Registrar::new(site.registrar.node.clone());
    let registering = tokio::spawn(async move { registrar.register(connection).await });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock'";
    site.server.wait_for(waits).await;
    committed(flight.commit().await);
    let (_, registered) = registering.await.unwrap().unwrap();
    let outcome = site.store(site.direct(false).await, 2).await;
    assert!(
        matches!(outcome, FlightOutcome::NotCommitted(Refusal::Fenced, _)),
        "{}",
        said(&outcome)
    );
    site.session = registered.session;
    committed(site.store(site.direct(false).await, 2).await);
}

/// A flight of the process before may keep the row locked for longer than the first registration waits.
#[tokio::test]
async fn a_first_registration_that_fails_can_be_repeated() {
    let site = Site::new(&[]).await;
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    let insert = flight.send(INSERT, vec![Box::new(1_i64)]).await;
    assert!(flight.rows(insert).await.is_some());
    let mut registrar = Registrar::new(site.registrar.node.clone());
    let failed = registrar.register(site.direct(false).await).await.err().unwrap();
    let is_late = matches!(failed, RegisterError::NotCommitted(Refusal::LockTimeout(_)));
    assert!(is_late, "{failed}");
    committed(flight.commit().await);
    assert!(registrar.register(site.direct(false).await).await.is_ok());
}

/// The answer to COMMIT is lost, so the process does not know whether its session is in the row. It registers again.
#[tokio::test]
async fn a_registration_cut_at_any_answer_can_be_repeated() {
    let mut site = Site::new(&[]).await;
    let proxy = Proxy::start(&site.server).await;
    let connection = site.connect(proxy.port, false).await;
    proxy.watch();
    let (_, registered) = site.registrar.register(connection).await.unwrap();
    let mut last = registered.session;
    let messages = proxy.passed(Side::Server);
    let mut unknown = 0;
    for number in 1..=messages.len() {
        let connection = site.connect(proxy.port, false).await;
        proxy.arm(Side::Server, number, Act::Cut);
        match site.registrar.register(connection).await {
            Ok((_, registered)) => last = registered.session,
            Err(RegisterError::Unknown(_)) => unknown += 1,
            Err(RegisterError::NotCommitted(_)) => {}
            Err(refused) => panic!("{refused}"),
        }
        let (connection, registered) =
            site.registrar.register(site.direct(false).await).await.unwrap();
        let session = registered.session;
        assert!(session.count > last.count);
        (site.session, last) = (session, session);
        committed(site.store(connection, i64::try_from(number).unwrap()).await);
    }
    assert!(unknown > 0, "no cut made the outcome unknown");
}

/// An old primary that comes up beside the new one.
#[tokio::test]
async fn a_node_that_has_used_a_later_timeline_does_not_go_back() {
    let mut site = Site::new(&[]).await;
    let standby = site.server.standby("s1");
    let before = site.registrar.seen.clone().unwrap();
    site.server.crash();
    standby.promote().await;
    let old = std::mem::replace(&mut site.server, standby);
    // The statement that a failover loses nothing is the operator's. This commit did not wait, and stands.
    let unknown = site.registrar.register(site.direct(true).await).await.err().unwrap();
    assert!(matches!(unknown, RegisterError::Unknown(_)), "{unknown}");
    let (_, registered) = site.registrar.register(site.direct(false).await).await.unwrap();
    assert_eq!(registered.session.count, 3);
    let later = site.registrar.seen.clone().unwrap();
    assert_eq!(later, ServerHistory { timeline: "00000002".to_owned(), ..before });

    site.server = old;
    site.server.launch();
    let refused = site.registrar.register(site.direct(false).await).await.err().unwrap();
    assert!(matches!(refused, RegisterError::EarlierHistory { .. }), "{refused}");
}
