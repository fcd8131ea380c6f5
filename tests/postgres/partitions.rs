//! Nodes whose packets to and from the server are dropped: neither side learns of it. Each node is in a network
//! namespace of its own, behind a switch that is in one, too.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::dispatching;
use super::node_site::{NodeSite, Place, becomes, deliver, lives};
use super::server::PATIENCE;
use super::support::{Receiver, stripe_event, stripe_header, try_post};
use super::working::hold_rows;

/// What a cut drops.
const ALL: [&str; 2] = ["iifname NODE tcp dport", "oifname NODE tcp sport"];
const ANSWERS: [&str; 1] = ["oifname NODE tcp sport"];

/// How long the nodes let a provider wait, and how much longer a busy machine may take.
const LIMIT: &str = "accept_wait_millis = \"2s\"\n";
const WAIT: Duration = Duration::from_secs(2 + 3);

/// By then the server has ended a transaction that hears nothing of its node: after 10 s by its rule, where TCP takes 25.
const FREED: Duration = Duration::from_secs(18);

/// By then a node has learnt by TCP that it is cut off.
const LEARNT: Duration = Duration::from_secs(40);

const HANDLERS: &str = "[handlers.long]\nsource = \"stripe\"\nevents = [\"a.b\"]\ncommand = [\"./work\"]\n\
    max_attempts = 1\non_unknown = \"hold\"\nnodes = [\"b\"]\n\
    [handlers.order]\nsource = \"stripe\"\nevents = [\"order\"]\ncommand = [\"./note\"]\norder_by = \"/customer\"\n\
    concurrency = 4\n\
    [handlers.paced]\nsource = \"stripe\"\nevents = [\"paced\"]\ncommand = [\"./note\"]\nrate = \"100/s\"\n";

const NOTE: &str = "echo \"$HOOKLATCH_EVENT_ID\" >> \"$SITE/ran\"";

/// A transaction of b that waits for the node.
const IDLE: &str = "SELECT 1 FROM pg_stat_activity
    WHERE application_name = 'hooklatch b' AND state = 'idle in transaction'";

/// A switch with the nodes a and b, and the test with its server.
struct Net {
    /// Of the switch's namespace. It begins the other names.
    name: String,
    /// Of 198.18.0.0/15, which is kept for tests of networks.
    subnet: String,
}

impl Net {
    /// `None` where that is not possible, after printing the reason.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (own, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut subnets = (own * 8 + nth..).map(|number| format!("198.18.{}", number % 256));
        let is_free = |subnet: &String| UdpSocket::bind(format!("{subnet}.1:0")).is_err();
        let net = Net { name: format!("hl{own}-{nth}"), subnet: subnets.find(is_free).unwrap() };
        match net.make() {
            Ok(()) => Some(net),
            Err(why) => {
                assert!(std::env::var_os("HOOKLATCH_CI").is_none(), "no network: {why}");
                // The text of a macro would be captured, and lost.
                let _ = writeln!(std::io::stderr(), "skipped: no network namespaces: {why}");
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let Net { name, subnet } = self;
        let mut script = format!(
            "ip netns add {name}
            ip -n {name} link add name switch type bridge
            ip -n {name} link set switch up
            ip link add name {name} type veth peer name test netns {name}
            ip -n {name} link set test master switch up
            ip addr add {subnet}.1/24 dev {name}
            ip link set {name} up
            ip netns exec {name} nft 'add table bridge cut; add chain bridge cut c {{ type filter hook forward priority 0; }}'\n"
        );
        for (node, host) in [("a", 2), ("b", 3)] {
            script.push_str(&format!(
                "ip netns add {name}{node}
                ip -n {name} link add name {node} type veth peer name net netns {name}{node}
                ip -n {name} link set dev {node} master switch up
                ip -n {name}{node} addr add {subnet}.{host}/24 dev net
                ip -n {name}{node} link set net up
                ip -n {name}{node} link set lo up\n"
            ));
        }
        shell(&script)
    }

    /// A server with an address in this network.
    async fn cluster(&self) -> Cluster {
        let addresses = format!("listen_addresses=127.0.0.1,{}.1", self.subnet);
        let cluster = Cluster::new(&[&addresses]).await;
        cluster
            .server
            .write("data/pg_hba.conf", "local all all trust\nhost all all all scram-sha-256\n");
        cluster.server.reload().await;
        cluster
    }

    fn node(&self, cluster: &Cluster, name: &'static str) -> NodeSite {
        let Net { name: own, subnet } = self;
        let place = Place {
            own: format!("{subnet}.{}", if name == "a" { 2 } else { 3 }),
            server: format!("{subnet}.1"),
            namespace: Some(format!("{own}{name}")),
            limits: LIMIT,
        };
        let node = NodeSite::at(place, cluster, name, HANDLERS);
        node.site.script("note", NOTE);
        node
    }

    /// From now on these packets between b and the server are dropped.
    fn cut(&self, cluster: &Cluster, what: &[&str]) {
        let rule = |what: &&str| {
            let what = what.replace("NODE", "b");
            format!("add rule bridge cut c {what} {} drop;", cluster.server.port)
        };
        self.nft(&what.iter().map(rule).collect::<String>());
    }

    fn heal(&self) {
        self.nft("flush chain bridge cut c");
    }

    fn nft(&self, rules: &str) {
        shell(&format!("ip netns exec {} nft '{rules}'", self.name)).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // What was not made is not there.
        for which in ["a", "b", ""] {
            let _ = shell(&format!("ip netns del {}{which}", self.name));
        }
        let _ = shell(&format!("ip link del {}", self.name));
    }
}

fn shell(script: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-ec", script]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Delivers an order of a customer. Returns the status and how long it took.
fn order(address: SocketAddr, id: &str, customer: &str) -> (u16, Duration) {
    let (body, began) =
        (stripe_event(id, "order", &format!(r#","customer":"{customer}""#)), Instant::now());
    let answer = try_post(address, "/stripe", &stripe_header(&body, 0), body.as_bytes());
    (answer.unwrap().0, began.elapsed())
}

/// The same in a thread, in which it may wait.
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
    let (a, b) = (net.node(&cluster, "a"), net.node(&cluster, "b"));
    let (at_a, at_b) = (a.start(), b.start());
    let job = deliver(&cluster, &at_b, "long").await;
    let process = b.begun(1).await;

    // The cut meets a transaction that has locked the customer and stored the event.
    let gate = hold_rows(&cluster, "event").await;
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
    fs::write(b.site.path("go"), "").unwrap();
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
struct Course {
    addresses: [SocketAddr; 2],
    accepted: [AtomicUsize; 2],
    is_over: AtomicBool,
}

impl Course {
    /// Delivers orders, each to one node and the other by turns until it is answered 2xx, and returns those.
    fn provide(&self, own: usize) -> Vec<String> {
        let mut accepted = Vec::new();
        for number in 0.. {
            let id = format!("p{own}-{number:03}");
            for node in (own..).map(|turn| turn % 2) {
                if self.is_over.load(Ordering::Relaxed) {
                    return accepted;
                }
                if order(self.addresses[node], &id, &id).0 == 200 {
                    self.accepted[node].fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
            accepted.push(id);
            // No more than the commands can follow.
            std::thread::sleep(Duration::from_millis(50));
        }
        unreachable!("numbers do not end")
    }

    /// Waits until the node has accepted some more.
    async fn goes_on(&self, node: usize) {
        let count = || self.accepted[node].load(Ordering::Relaxed);
        let wanted = count() + 20;
        until(PATIENCE, "accepts", || count() >= wanted).await;
    }
}

/// The node's connections live on: no cut is so long that node or server give them up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delivered_around_a_cut_is_stored_once_and_runs_once() {
    let Some(net) = Net::new() else { return };
    let cluster = net.cluster().await;
    let (a, b) = (net.node(&cluster, "a"), net.node(&cluster, "b"));
    let (at_a, at_b) = (a.start(), b.start());
    let (addresses, accepted) = ([at_a.address, at_b.address], Default::default());
    let course = Arc::new(Course { addresses, accepted, is_over: AtomicBool::new(false) });
    let providers: Vec<_> = (0..6)
        .map(|own| {
            let course = Arc::clone(&course);
            tokio::task::spawn_blocking(move || course.provide(own))
        })
        .collect();
    for what in [&ALL[..], &ANSWERS] {
        course.goes_on(1).await;
        net.cut(&cluster, what);
        course.goes_on(0).await;
        // The providers of b have been refused there.
        course.goes_on(0).await;
        net.heal();
    }
    course.goes_on(1).await;
    course.is_over.store(true, Ordering::Relaxed);
    let mut accepted = BTreeSet::new();
    for provider in providers {
        accepted.extend(provider.await.unwrap());
    }
    let ran = ran(&cluster, [&a, &b]).await;
    let once: BTreeSet<String> = ran.iter().cloned().collect();
    println!("{} accepted, {} ran", accepted.len(), ran.len());
    assert_eq!(ran.len(), once.len(), "something ran twice: {ran:?}");
    let lost: Vec<_> = accepted.difference(&once).collect();
    assert!(lost.is_empty(), "accepted and did not run: {lost:?}");
    assert_eq!(cluster.count("event").await, i64::try_from(ran.len()).unwrap());
    assert_eq!(
        cluster.count("attempt WHERE outcome = 'succeeded'").await,
        i64::try_from(ran.len()).unwrap()
    );
}

/// The cut meets the claim of a handler with a rate: it has locked the node, the lane and a job, and waits for the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_declared_lost_behind_a_cut_is_awaited_by_nobody_and_its_end_comes_late() {
    let Some(net) = Net::new() else { return };
    let cluster = net.cluster().await;
    let (a, b) = (net.node(&cluster, "a"), net.node(&cluster, "b"));
    let at_b = b.start();
    let job = deliver(&cluster, &at_b, "long").await;
    let process = b.begun(1).await;
    becomes(&cluster, &job, "running 1").await;
    let gate = hold_rows(&cluster, "attempt").await;
    let paced = stripe_event("paced", "paced", "");
    assert_eq!(at_b.stripe(&paced, 0).0, 200);
    cluster.blocked(1).await;
    net.cut(&cluster, &ALL);
    let cut = Instant::now();
    drop(gate);
    cluster.server.wait_for(IDLE).await;

    let _at_a = a.start();
    a.run(&["node", "lost", "b", "--yes"]).await;
    println!("declared {} ms after the cut", cut.elapsed().as_millis());
    becomes(&cluster, &job, "held unknown outcome 1").await;
    until(PATIENCE, "the job that was being claimed", || a.site.lines("ran") == ["paced"]).await;
    println!("ran elsewhere {} ms after the cut", cut.elapsed().as_millis());
    assert!(cut.elapsed() < FREED && lives(&process));

    net.heal();
    let is_back = "SELECT count(*) = 1 FROM node WHERE name = 'b' AND state = 'active'";
    dispatching::becomes(&cluster, is_back).await;
    fs::write(b.site.path("go"), "").unwrap();
    let late = "SELECT count(*) = 1 AND bool_and(job = '{}' AND outcome = 'failed') FROM late_end";
    dispatching::becomes(&cluster, &late.replace("{}", &job)).await;
    becomes(&cluster, &job, "held unknown outcome 1").await;
    assert_eq!((b.site.lines("begun").len(), b.site.lines("ran").len()), (1, 0));
    assert_eq!(cluster.count("attempt").await, 2);
}
