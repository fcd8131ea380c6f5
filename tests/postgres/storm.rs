//! `hooklatch drill` over three nodes, in bad weather: receivers and runners are killed by the drill, backends and the
//! server here, and connections are cut at a message. Each second time that the server dies, its standby takes its place.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::proxy::{Act, Proxy, Side};
use super::server::{PASSWORD, ROLE, Server};

/// How often receivers are killed in CI. `HOOKLATCH_STORM` is another number, for a long storm by hand.
const KILLS: &str = "12";

/// The pause between two blows to the server.
const PAUSE: Duration = Duration::from_millis(700);

/// Most failovers of a storm. Each needs a server whose port the nodes know from the start.
const FAILOVERS: usize = 8;

/// The name of every standby. A promoted one has it in its settings, so its commits wait for the next.
const STANDBY: &str = "s1";

/// The blows from one cut to the next.
const CUT_EVERY: usize = 2;

/// A cut is at one of as many messages: more than a flight or a registration has.
const MESSAGES: usize = 400;

/// Two backends of the nodes, whichever they are. The account at the end is no node's.
const TERMINATE: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
        WHERE application_name LIKE 'hooklatch n_' ORDER BY random() LIMIT 2) AS chosen";

/// Three nodes of one server for each of the kills, to their end.
fn drill(hosts: &str) -> Output {
    let kills = std::env::var("HOOKLATCH_STORM").unwrap_or_else(|_| KILLS.to_owned());
    let url = format!("postgresql://{ROLE}@{hosts}/app?sslmode=disable");
    Command::new(env!("CARGO_BIN_EXE_hooklatch"))
        .args(["drill", "--json", "--runner-kills", "--nodes", "3", "--kills", &kills])
        .args(["--url", &url, "--password-from", "env:STORM_PASSWORD"])
        .arg("--require-synchronous-standby")
        .env("STORM_PASSWORD", PASSWORD)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_keep_the_promises_while_processes_servers_and_connections_end() {
    const OPTIONS: [&str; 1] = ["max_connections=80"];
    let mut server = Server::start(&OPTIONS).await;
    let mut spare: Vec<Server> = (0..=FAILOVERS).map(|_| Server::empty(&OPTIONS)).collect();
    // One in front of each server.
    let mut proxies = Vec::new();
    for server in [&server].into_iter().chain(&spare) {
        proxies.push(Proxy::start(server).await);
    }
    let hosts: Vec<String> =
        proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
    let hosts = hosts.join(",");
    server.set("synchronous_standby_names", STANDBY).await;
    let mut standby = server.standby_in(spare.pop().unwrap(), STANDBY);
    let mut drill = tokio::task::spawn_blocking(move || drill(&hosts));
    let (mut blows, mut cuts, mut terminated, mut deaths, mut failovers, mut last) =
        (0, 0, 0, 0, 0, 0);
    let output = loop {
        match timeout(PAUSE, &mut drill).await {
            Ok(output) => break output.unwrap(),
            Err(_) => blows += 1,
        }
        if blows % CUT_EVERY == 1 {
            let side = [Side::Client, Side::Server][blows / CUT_EVERY % 2];
            let act = if blows % 3 == 0 { Act::Cut } else { Act::Break };
            for proxy in &proxies {
                cuts += usize::from(proxy.has_cut());
                proxy.arm(side, blows * 37 % MESSAGES + 1, act.clone());
            }
        }
        if blows % 6 != 0 || last == 0 {
            let row = server.admin().await.query_one(TERMINATE, &[]).await.unwrap();
            last = row.get::<_, i64>(0);
            terminated += last;
            continue;
        }
        deaths += 1;
        server.crash();
        match spare.pop().filter(|_| deaths % 2 == 1) {
            Some(next) => {
                standby.promote().await;
                server = standby;
                standby = server.standby_in(next, STANDBY);
                failovers += 1;
            }
            None => server.launch(),
        }
    };
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    println!(
        "{cuts} connections cut, {terminated} backends terminated, {deaths} deaths of the server, {failovers} failovers; {report:#}"
    );
    let ledger = &report["ledger"];
    assert_eq!(report["as_promised"], true, "{report:#}");
    assert_eq!((&ledger["lost"], &ledger["doubled"]), (&0.into(), &0.into()), "{report:#}");
    assert!(
        cuts > 0 && terminated > 0 && failovers > 0 && ledger["acknowledged"].as_u64() > Some(100)
    );
}
