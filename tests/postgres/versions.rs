//! Two versions of the program on one database. The newer one knows a migration that older programs outlive, and behind it
//! one that takes something away.

use rustix::process::{Pid, Signal, kill_process};

use super::cluster::Cluster;
use super::dispatching;
use super::node_site::{NodeSite, becomes, deliver};
use super::support::{Receiver, stripe_event};

const HANDLER: &str = "[handlers.h]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./work\"]\nmax_attempts = 1\n\
    nodes = [\"a\"]\n";

async fn schema(cluster: &Cluster) -> String {
    let columns = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'tested'";
    let schema = format!("SELECT concat_ws(' ', schema, oldest, ({columns})) FROM meta");
    cluster.get(&schema).await
}

fn signal(receiver: &Receiver, signal: Signal) {
    kill_process(Pid::from_raw(receiver.pid().cast_signed()).unwrap(), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_programs_run_on_beside_a_newer_one_until_it_takes_away_what_they_use() {
    let cluster = Cluster::new(&[]).await;
    let mut a = NodeSite::new(&cluster, "a", HANDLER);
    let at_a = a.start();
    let across = deliver(&cluster, &at_a, "evt_1").await;
    a.begun(1).await;
    assert_eq!(schema(&cluster).await, "1 1 0");
    a.run(&["events"]).await;

    let mut b = NodeSite::new(&cluster, "b", HANDLER);
    b.is_newer = true;
    let at_b = b.start();
    assert_eq!(schema(&cluster).await, "2 1 1");
    let said = format!("node a runs version {}: upgrade it, too", env!("CARGO_PKG_VERSION"));
    let notes = b.status().await["notes"].clone();
    assert!(notes.as_array().unwrap().contains(&said.into()), "{notes}");
    // What it has prepared returns other columns now: it says so once at most.
    a.output(&["events"]).await;
    a.run(&["events"]).await;
    a.finish();
    becomes(&cluster, &across, "dead attempts exhausted 1").await;
    for (receiver, event) in [(&at_a, "evt_2"), (&at_b, "evt_3")] {
        let job = deliver(&cluster, receiver, event).await;
        becomes(&cluster, &job, "dead attempts exhausted 1").await;
    }

    // It is declared lost, and comes back to a database that it does not know.
    signal(&at_a, Signal::STOP);
    b.run(&["node", "lost", "a", "--yes", "--connected"]).await;
    at_b.kill();
    let at_b = b.start();
    assert_eq!(schema(&cluster).await, "3 3 0");
    signal(&at_a, Signal::CONT);
    at_a.log_when(|line| line["why"].to_string().contains("newer version of this program"));
    assert_eq!(at_a.stripe(&stripe_event("evt_4", "a.b", ""), 0).0, 503);
    dispatching::becomes(&cluster, "SELECT state = 'lost' FROM node WHERE name = 'a'").await;
    at_a.kill();
    let refused = a.output(&["jobs"]).await;
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("newer version of this program; upgrade it"), "{refused}");

    a.is_newer = true;
    let at_a = a.start();
    let job = deliver(&cluster, &at_a, "evt_4").await;
    becomes(&cluster, &job, "dead attempts exhausted 1").await;
    assert_eq!(cluster.count("event").await, 4);
    let notes = b.status().await["notes"].to_string();
    assert!(!notes.contains("upgrade it"), "{notes}");
    drop(at_b);
}
