//! `hooklatch drill` over three nodes, in bad weather: receivers and runners are killed by the drill, backends and the
//! server here. Each second time that the server dies, its standby takes its place.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::server::{PASSWORD, ROLE, Server};

/// How often receivers are killed in CI. `HOOKLATCH_STORM` is another number, for a long storm by hand.
const KILLS: &str = "12";

/// Between two blows to the server.
const PAUSE: Duration = Duration::from_millis(700);

/// Most failovers of a storm. Each needs a server whose port the nodes know from the start.
const FAILOVERS: usize = 8;

/// The name of every standby. A promoted one has it in its settings, so its commits wait for the next.
const STANDBY: &str = "s1";

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
        .env("HOOKLATCH_UNRELEASED", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_keep_the_promises_while_nodes_runners_backends_and_the_server_are_killed() {
    const OPTIONS: [&str; 1] = ["max_connections=80"];
    let mut server = Server::start(&OPTIONS).await;
    let mut spare: Vec<Server> = (0..=FAILOVERS).map(|_| Server::empty(&OPTIONS)).collect();
    let ports = [server.port].into_iter().chain(spare.iter().map(|spare| spare.port));
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    let hosts = hosts.join(",");
    server.set("synchronous_standby_names", STANDBY).await;
    let mut standby = server.standby_in(spare.pop().unwrap(), STANDBY);
    let mut drill = tokio::task::spawn_blocking(move || drill(&hosts));
    let (mut blows, mut terminated, mut deaths, mut failovers, mut last) = (0, 0, 0, 0, 0);
    let output = loop {
        match timeout(PAUSE, &mut drill).await {
            Ok(output) => break output.unwrap(),
            Err(_) => blows += 1,
        }
        if blows % 10 != 0 || last == 0 {
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
        "{terminated} backends terminated, {deaths} deaths of the server, {failovers} failovers; {report:#}"
    );
    let ledger = &report["ledger"];
    assert_eq!(report["as_promised"], true, "{report:#}");
    assert_eq!((&ledger["lost"], &ledger["doubled"]), (&0.into(), &0.into()), "{report:#}");
    assert!(terminated > 0 && failovers > 0 && ledger["acknowledged"].as_u64() > Some(100));
}
