//! Power cuts under a server whose nodes accept, claim and settle under load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hooklatch::model::JobId;
use hooklatch::store::Refused;
use hooklatch::store::postgres::{EndResult, Exchanged, NodeAttempt, Writer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::cluster::{Cluster, new, ready, stripe};
use super::server::{PATIENCE, Server};
use super::support::disk::Disk;
use super::working::{SUCCEEDED, claim_of, exchange, holder, succeeded};

const CUTS: usize = 3;

/// Deliveries under way at each node.
const PROVIDERS: usize = 4;

/// How long a provider waits. A server is longer without power.
const DEADLINE: Duration = Duration::from_millis(200);

/// Small, for a small disk, and with many checkpoints. The server's setting lets commits be answered before they are
/// flushed, which then happens much later: the product must ask for it.
const OPTIONS: [&str; 6] = [
    "synchronous_commit=off",
    "wal_writer_delay=10s",
    "wal_keep_size=0",
    "min_wal_size=32MB",
    "max_wal_size=32MB",
    "max_connections=60",
];

/// Job, number and claimant of an attempt.
type Key = (JobId, i64, Uuid);

/// What the nodes have said.
#[derive(Default, Clone)]
struct Course {
    accepted: BTreeSet<String>,
    unanswered: usize,
    claimed: BTreeSet<Key>,
    /// Claimed ones that do not end while the load goes on.
    kept: BTreeSet<Key>,
    ended: BTreeSet<Key>,
    /// Providers that go on until the load is over.
    delivering: usize,
    is_over: bool,
}

type Shared = Arc<watch::Sender<Course>>;

fn key(own: &NodeAttempt) -> Key {
    (own.running.job, own.running.attempt.into(), own.claimant)
}

/// Delivers one event after another, each to the next node until one has answered that it is stored.
async fn deliver(nodes: [Writer; 3], provider: usize, course: Shared) {
    for number in 0.. {
        let id = format!("{provider}_{number}");
        for node in nodes.iter().cycle().skip(provider) {
            match node.accept(new(stripe(&id, "{}")), Instant::now() + DEADLINE).await {
                Ok(_) => break,
                Err(Refused::Unreachable(_) | Refused::Unconfirmed(_)) => {}
                Err(refused) => panic!("{refused}"),
            }
            course.send_modify(|course| course.unanswered += 1);
            ready(node).await;
        }
        course.send_modify(|course| _ = course.accepted.insert(id));
        if course.borrow().is_over {
            break;
        }
    }
    course.send_modify(|course| course.delivering -= 1);
}

/// Claims and settles until the load is over and nothing is left.
async fn work(node: Writer, course: Shared) {
    let (mut ending, mut kept) = (Vec::<NodeAttempt>::new(), Vec::new());
    loop {
        let is_over = course.borrow().delivering == 0;
        if is_over {
            ending.append(&mut kept);
        }
        let ends = ending.iter().map(succeeded).collect();
        let Exchanged { ended, claims } = exchange(&node, ends, Some(claim_of(8))).await;
        let mut ended = ended.into_iter();
        ending.retain(|own| match ended.next().unwrap() {
            Ok(SUCCEEDED | EndResult::Repeated) => {
                course.send_modify(|course| _ = course.ended.insert(key(own)));
                false
            }
            Ok(ended) => panic!("{ended:?}: {own:?}"),
            Err(_) => true,
        });
        let Ok(claims) = claims else { continue };
        if is_over && ending.is_empty() && claims.attempts.is_empty() {
            return;
        }
        for (number, own) in claims.attempts.into_iter().enumerate() {
            let is_kept = !is_over && number == 0 && kept.len() < 20;
            course.send_modify(|course| {
                assert!(course.claimed.insert(key(&own)), "claimed twice: {own:?}");
                if is_kept {
                    course.kept.insert(key(&own));
                }
            });
            (if is_kept { &mut kept } else { &mut ending }).push(own);
        }
    }
}

/// The database has everything that was said, and each event and attempt once.
async fn account(cluster: &Cluster, said: &Course) {
    let admin = cluster.admin().await;
    let mut events = BTreeSet::new();
    let jobs = "SELECT event_id, count(job.row) FROM event LEFT JOIN job ON job.event = event.row GROUP BY event.row";
    for row in admin.query(jobs, &[]).await.unwrap() {
        let (id, jobs): (String, i64) = (row.get(0), row.get(1));
        assert_eq!(jobs, 1, "{id}");
        assert!(events.insert(id), "an event is stored twice");
    }
    let lost: Vec<_> = said.accepted.difference(&events).collect();
    assert!(lost.is_empty(), "{} of {} events lost: {lost:?}", lost.len(), said.accepted.len());

    let attempts = "SELECT id, number, claimant, outcome, state, attempt.number = job.attempt
        FROM attempt JOIN job ON job.row = attempt.job WHERE outcome IS DISTINCT FROM 'not_started'";
    let (mut stored, mut jobs) = (BTreeMap::new(), BTreeSet::new());
    for row in admin.query(attempts, &[]).await.unwrap() {
        let job = JobId::from_bytes(*row.get::<_, Uuid>(0).as_bytes());
        let key: Key = (job, row.get(1), row.get(2));
        let (outcome, state, is_last): (Option<String>, String, bool) =
            (row.get(3), row.get(4), row.get(5));
        assert!(jobs.insert(job), "two attempts of {job}");
        assert!(is_last, "a later attempt than {key:?}");
        assert_eq!(state, outcome.as_deref().unwrap_or("running"), "{key:?}");
        stored.insert(key, state);
    }
    for key in &said.claimed {
        let state = stored.get(key).unwrap_or_else(|| panic!("the claim of {key:?} is lost"));
        if said.ended.contains(key) {
            assert_eq!(state, "succeeded", "{key:?}");
        } else if said.kept.contains(key) {
            assert_eq!(state, "running", "{key:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_the_power_cuts_of_the_server() {
    let Some(disk) = Disk::new() else { return };
    let mut cluster = Cluster::on(Server::start_on(&disk.root(), &OPTIONS)).await;
    let nodes =
        [holder(&cluster, "a").await, holder(&cluster, "b").await, holder(&cluster, "c").await];
    let delivering = PROVIDERS * nodes.len();
    let course = Shared::new(watch::Sender::new(Course { delivering, ..Course::default() }));
    let mut load = JoinSet::new();
    for provider in 0..delivering {
        load.spawn(deliver(nodes.clone(), provider, Arc::clone(&course)));
    }
    for node in &nodes {
        load.spawn(work(node.clone(), Arc::clone(&course)));
    }
    let mut seen = course.subscribe();
    for cut in 1..=CUTS {
        let before = seen.borrow().clone();
        let grown = seen.wait_for(|now| {
            now.accepted.len() > before.accepted.len() + 100
                && now.ended.len() > before.ended.len() + 50
        });
        drop(timeout(PATIENCE, grown).await.unwrap().unwrap());
        cluster.server.lose_power(|| _ = disk.cut());
        // Answers that were on their way.
        let said = seen.borrow().clone();
        disk.mount_again();
        cluster.server.launch();
        account(&cluster, &said).await;
        println!(
            "cut {cut}: {} accepted, {} claimed, {} ended, {} kept; {} unanswered before",
            said.accepted.len(),
            said.claimed.len(),
            said.ended.len(),
            said.kept.len(),
            said.unanswered
        );
    }
    course.send_modify(|course| {
        assert!(course.unanswered > 0 && !course.kept.is_empty(), "the cuts have met nothing");
        course.kept.clear();
        course.is_over = true;
    });
    while let Some(done) = timeout(PATIENCE, load.join_next()).await.unwrap() {
        done.unwrap();
    }
    let said = seen.borrow().clone();
    account(&cluster, &said).await;
    assert_eq!(said.claimed, said.ended);
    let all = i64::try_from(said.accepted.len()).unwrap();
    assert_eq!(cluster.count("event").await, all);
    assert_eq!(cluster.count("job WHERE state = 'succeeded'").await, all);
    // A node that missed an event would have held all jobs (N28).
    assert_eq!((cluster.count("late_end").await, cluster.count("restored").await), (0, 0));
    let unstarted = cluster.count("attempt WHERE outcome = 'not_started'").await;
    println!("{all} events, {} unanswered, {unstarted} attempts never started", said.unanswered);
}

/// Checks that the cut is one. Without the product's settings, a commit is answered before it is flushed.
#[tokio::test]
async fn what_is_not_flushed_does_not_survive_a_power_cut_of_the_server() {
    let Some(disk) = Disk::new() else { return };
    let mut server = Server::start_on(&disk.root(), &OPTIONS);
    let client = server.client("postgres", "app").await;
    client.batch_execute("CREATE TABLE item ()").await.unwrap();
    server.lose_power(|| _ = disk.cut());
    disk.mount_again();
    server.launch();
    let client = server.client("postgres", "app").await;
    let row = client.query_one("SELECT to_regclass('item') IS NULL", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0), "the cut lost nothing, so it does not simulate a power cut");
}
