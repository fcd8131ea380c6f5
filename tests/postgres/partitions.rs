//! Nodes whose packets to and from the server are dropped: neither side learns of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::dispatching;
use super::net::{ALL, ANSWERS, Net};
use super::node_site::{NodeSite, Place, becomes, deliver, lives};
use super::server::PATIENCE;
use super::support::{Receiver, stripe_event, stripe_header, try_post};
use super::working::{hold_attempts, hold_writes};

/// How long the nodes let a provider wait.
const LIMIT: &str = "accept_wait_millis = \"2s\"\n";

/// The longest wait of a provider: that limit on a busy machine. One that waits for the server waits for 25 s, until TCP
/// gives up.
const WAIT: Duration = Duration::from_secs(15);

/// The time after which the server has ended a transaction that hears nothing of its node: after 10 s, and TCP takes
/// 25.
const FREED: Duration = Duration::from_secs(22);

/// The time after which a node has learnt by TCP that it is cut off.
const LEARNT: Duration = Duration::from_secs(40);

/// Ends what the server does for b.
const ROLL_BACK: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hooklatch b'";

const HANDLERS: &str = "[handlers.long]\nsource = \"stripe\"\nevents = [\"a.b\"]\ncommand = [\"./work\"]\n\
    max_attempts = 1\non_unknown = \"hold\"\nnodes = [\"b\"]\n\
    [handlers.order]\nsource = \"stripe\"\nevents = [\"order\"]\ncommand = [\"./note\"]\norder_by = \"/customer\"\n\
    concurrency = 4\n\
    [handlers.paced]\nsource = \"stripe\"\nevents = [\"paced\"]\ncommand = [\"./note\"]\nrate = \"100/s\"\n";

/// A transaction of b that waits for the node.
const IDLE: &str = "SELECT 1 FROM pg_stat_activity
    WHERE application_name = 'hooklatch b' AND state = 'idle in transaction'";

fn nodes(net: &Net, cluster: &Cluster) -> [NodeSite; 2] {
    ["a", "b"].map(|name| {
        let place = Place { limits: LIMIT, ..net.place(name) };
        let node = NodeSite::at(place, cluster, name, HANDLERS);
        node.site.script("note", "echo \"$HOOKLATCH_EVENT_ID\" >> \"$SITE/ran\"");
        node
    })
}

/// Delivers an order of a customer. Returns the status and how long it took.
fn order(address: SocketAddr, id: &str, customer: &str) -> (u16, Duration) {
    let (body, began) =
        (stripe_event(id, "order", &format!(r#","customer":"{customer}""#)), Instant::now());
    let answer = try_post(address, "/stripe", &stripe_header(&body, 0), body.as_bytes());
    (answer.unwrap().0, began.elapsed())
}

/// Delivers an order as [`order`] does, in a thread, in which it may wait.
async fn ordered(receiver: &Receiver, id: &'static str, customer: &'static str) -> (u16, Duration) {
    let address = receiver.address;
    tokio::task::spawn_blocking(move || order(address, id, customer)).await.unwrap()
}

/// Waits until it is so.
async fn until(limit: Duration, what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The events of the commands that ran, once all jobs of orders have succeeded.
async fn ran(cluster: &Cluster, nodes: [&NodeSite; 2]) -> Vec<String> {
    let all = "SELECT bool_and(state = 'succeeded') FROM job WHERE handler = 'order'";
    dispatching::becomes(cluster, all).await;
    let mut ran: Vec<String> = nodes.iter().flat_map(|node| node.site.lines("ran")).collect();
    ran.sort();
    ran
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_holds_up_nobody_and_goes_on_when_it_is_back() {
    let Some(net) = Net::new() else { return };
    let cluster = net.cluster().await;
    let [a, b] = nodes(&net, &cluster);
    let (at_a, at_b) = (a.start(), b.start());
    let job = deliver(&cluster, &at_b, "long").await;
    let process = b.begun(1).await;

    // The cut meets a transaction that has locked the customer and stored the event.
    let gate = hold_writes(&cluster, "INSERT ON event").await;
    let address = at_b.address;
    let caught = tokio::task::spawn_blocking(move || order(address, "o1", "caught"));
    cluster.blocked(1).await;
    net.cut(&cluster, &ALL);
    let cut = Instant::now();
    drop(gate);
    cluster.server.wait_for(IDLE).await;

    // The other node accepts and runs all else at once, and this event and customer as soon as the server lets go.
    for id in ["o2", "o3", "o4", "o5"] {
        assert_eq!(ordered(&at_a, id, id).await.0, 200);
    }
    until(PATIENCE, "4 commands", || a.site.lines("ran").len() == 4).await;
    let mut refused = 0;
    while ordered(&at_a, "o1", "caught").await.0 != 200 {
        refused += 1;
        assert!(cut.elapsed() < FREED, "the customer is still locked");
    }
    println!("free {} ms after the cut; {refused} deliveries refused", cut.elapsed().as_millis());
    assert!(refused > 0, "nothing was locked");
    assert_eq!(ordered(&at_a, "o6", "caught").await.0, 200);
    until(PATIENCE, "6 commands", || a.site.lines("ran").len() == 6).await;

    // The node itself accepts nothing, and keeps nobody waiting.
    let (status, took) = caught.await.unwrap();
    assert!(status == 503 && took < WAIT, "{status} after {took:?}");
    while at_b.is_ready() {
        let (status, took) = ordered(&at_b, "o7", "late").await;
        assert!(status == 503 && took < WAIT, "{status} after {took:?}");
        assert!(cut.elapsed() < LEARNT, "the node does not learn that it is cut off");
    }
    println!("the node knew {} ms after the cut", cut.elapsed().as_millis());
    assert_eq!(ordered(&at_b, "o7", "late").await.0, 503);
    let of_b = "attempt JOIN node ON node.id = attempt.node WHERE name = 'b'";
    assert_eq!(cluster.count(of_b).await, 1);

    // Its command runs, and ends, and nothing is guessed.
    assert!(lives(&process));
    b.finish();
    until(PATIENCE, "the command's end", || !lives(&process)).await;
    becomes(&cluster, &job, "running 1").await;
    net.heal();
    let healed = Instant::now();
    becomes(&cluster, &job, "dead attempts exhausted 1").await;
    println!("the end was recorded {} ms after the packets passed", healed.elapsed().as_millis());
    assert_eq!(cluster.count("late_end").await, 0);
    until(PATIENCE, "the node is ready", || at_b.is_ready()).await;
    assert_eq!(ordered(&at_b, "o7", "late").await.0, 200);
    assert_eq!(ran(&cluster, [&a, &b]).await, ["o1", "o2", "o3", "o4", "o5", "o6", "o7"]);
    assert_eq!(b.site.lines("begun").len(), 1);
}

/// What the providers have delivered, and when they stop.
#[derive(Default)]
struct Course {
    accepted: [AtomicUsize; 2],
    refused: AtomicUsize,
    is_over: AtomicBool,
}

impl Course {
    /// Delivers orders, each to one node and the other by turns until it is answered 2xx, and returns those.
    fn provide(&self, own: usize, nodes: [SocketAddr; 2]) -> Vec<String> {
        let mut accepted = Vec::new();
        for number in 0.. {
            let id = format!("p{own}-{number:03}");
            for node in (own..).map(|turn| turn % 2) {
                if self.is_over.load(Ordering::Relaxed) {
                    return accepted;
                }
                if order(nodes[node], &id, &id).0 == 200 {
                    self.accepted[node].fetch_add(1, Ordering::Relaxed);
                    break;
                }
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            accepted.push(id);
            // No more than the commands can follow.
            std::thread::sleep(Duration::from_millis(50));
        }
        unreachable!("numbers do not end")
    }
}

/// Waits until so many more are counted.
async fn more(count: &AtomicUsize, wanted: usize) {
    let wanted = count.load(Ordering::Relaxed) + wanted;
    until(PATIENCE, "deliveries", || count.load(Ordering::Relaxed) >= wanted).await;
}

/// The connections outlive a cut, or the server forgets them meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delivered_around_a_cut_is_stored_once_and_runs_once() {
    let Some(net) = Net::new() else { return };
    let cluster = net.cluster().await;
    let [a, b] = nodes(&net, &cluster);
    let (at_a, at_b) = (a.start(), b.start());
    let (addresses, course) = ([at_a.address, at_b.address], Arc::<Course>::default());
    let provider = |own| {
        let course = Arc::clone(&course);
        tokio::task::spawn_blocking(move || course.provide(own, addresses))
    };
    let providers: Vec<_> = (0..6).map(provider).collect();
    let [of_a, of_b] = &course.accepted;
    for (what, is_forgotten) in [(&ALL[..], false), (&ANSWERS, true)] {
        more(of_b, 20).await;
        net.cut(&cluster, what);
        if is_forgotten {
            net.forget(&cluster);
        }
        more(&course.refused, 3).await;
        more(of_a, 20).await;
        net.heal();
    }
    // Both nodes report ends. That of b is rolled back, and no answer comes.
    more(of_b, 20).await;
    let gate = hold_writes(&cluster, "UPDATE ON attempt").await;
    cluster.blocked(2).await;
    net.cut(&cluster, &ALL);
    cluster.run(ROLL_BACK).await;
    net.forget(&cluster);
    drop(gate);
    more(of_a, 20).await;
    net.heal();
    more(of_b, 20).await;
    course.is_over.store(true, Ordering::Relaxed);
    let mut accepted = BTreeSet::new();
    for provider in providers {
        accepted.extend(provider.await.unwrap());
    }
    let ran = ran(&cluster, [&a, &b]).await;
    let once: BTreeSet<String> = ran.iter().cloned().collect();
    let refused = course.refused.load(Ordering::Relaxed);
    println!("{} accepted, {refused} refused before, {} ran", accepted.len(), ran.len());
    assert_eq!(ran.len(), once.len(), "something ran twice: {ran:?}");
    let lost: Vec<_> = accepted.difference(&once).collect();
    assert!(lost.is_empty(), "accepted and did not run: {lost:?}");
    assert_eq!(cluster.count("event").await, i64::try_from(ran.len()).unwrap());
    assert_eq!(
        cluster.count("attempt WHERE outcome = 'succeeded'").await,
        i64::try_from(ran.len()).unwrap()
    );
}

/// The cut meets the claim of a handler with a rate, which has locked the lane and a job, and waits for the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_declared_lost_behind_a_cut_is_awaited_by_nobody_and_its_end_comes_late() {
    let Some(net) = Net::new() else { return };
    let cluster = net.cluster().await;
    let [a, b] = nodes(&net, &cluster);
    let at_b = b.start();
    let job = deliver(&cluster, &at_b, "long").await;
    let process = b.begun(1).await;
    becomes(&cluster, &job, "running 1").await;
    let gate = hold_attempts(&cluster).await;
    let paced = stripe_event("paced", "paced", "");
    assert_eq!(at_b.stripe(&paced, 0).0, 200);
    cluster.blocked(1).await;
    net.cut(&cluster, &ALL);
    let cut = Instant::now();
    drop(gate);
    cluster.server.wait_for(IDLE).await;

    let _at_a = a.start();
    a.run(&["node", "lost", "b", "--yes", "--connected"]).await;
    println!("declared {} ms after the cut", cut.elapsed().as_millis());
    becomes(&cluster, &job, "held unknown outcome 1").await;
    until(PATIENCE, "the job that was being claimed", || a.site.lines("ran") == ["paced"]).await;
    println!("ran elsewhere {} ms after the cut", cut.elapsed().as_millis());
    assert!(cut.elapsed() < FREED && lives(&process));

    net.heal();
    let is_back = "SELECT count(*) = 1 FROM node WHERE name = 'b' AND state = 'active'";
    dispatching::becomes(&cluster, is_back).await;
    b.finish();
    let late = "SELECT count(*) = 1 AND bool_and(job = '{}' AND outcome = 'failed') FROM late_end";
    dispatching::becomes(&cluster, &late.replace("{}", &job)).await;
    becomes(&cluster, &job, "held unknown outcome 1").await;
    assert_eq!((b.site.lines("begun").len(), b.site.lines("ran").len()), (1, 0));
    assert_eq!(cluster.count("attempt").await, 2);
}
