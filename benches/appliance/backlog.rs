//! A receiver whose one handler has a backlog of ready jobs, and how long it takes to run it.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::load::flood;
use super::site::{Receiver, Site, get};

/// Connections that store it.
const CONNECTIONS: usize = 64;

/// Attempts of the handler at once, and of whatever it is compared with.
pub(crate) const ABREAST: usize = 8;

/// Where the receiver tells how many jobs have succeeded. It counts them when their ends are committed.
const METRICS: &str = "\n[metrics]\nlisten = \"127.0.0.1:0\"\n";

/// What that line begins with.
const SUCCEEDED: &str = r#"hooklatch_jobs_settled_total{handler="job",state="succeeded"} "#;

/// No job is run faster than this, so whoever waits for many need not ask often: a page is asked for
/// some fifty times in a run of seconds, and costs the receiver a fraction of a millisecond each time.
const SHORTEST_JOB: Duration = Duration::from_micros(50);

/// Between two questions at least.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

pub(crate) struct Backlog {
    pub(crate) site: Site,
    pub(crate) receiver: Receiver,
    metrics: SocketAddr,
}

impl Backlog {
    /// With a handler that does `what` (a line of its configuration) for the events of both sources.
    pub(crate) fn of(what: &str) -> Self {
        let site = Site::new(&format!(
            "{METRICS}[handlers.job]\nsource = [\"github\", \"stripe\"]\nevents = [\"*\"]\n{what}\n\
             concurrency = {ABREAST}\n"
        ));
        let receiver = site.start();
        // Said at the same time as that it serves, and perhaps written after it.
        let metrics = loop {
            match site.address(r#""message":"serving metrics""#) {
                Some(metrics) => break metrics,
                None => sleep(SHORTEST_WAIT),
            }
        };
        Backlog { site, receiver, metrics }
    }

    /// Stores these deliveries, and returns how many of their jobs succeed in a second once they may run.
    pub(crate) fn rate(&self, requests: &[Vec<u8>]) -> f64 {
        self.site.pause();
        let goal = self.succeeded() + requests.len() as u64;
        flood(self.receiver.address, requests, CONNECTIONS, 200);
        let begun = Instant::now();
        self.site.resume();
        self.wait(goal);
        requests.len() as f64 / begun.elapsed().as_secs_f64()
    }

    /// Waits until so many jobs have succeeded since the start.
    pub(crate) fn wait(&self, goal: u64) {
        loop {
            let left = goal.saturating_sub(self.succeeded());
            if left == 0 {
                return;
            }
            sleep((SHORTEST_JOB * u32::try_from(left).unwrap()).max(SHORTEST_WAIT));
        }
    }

    /// Jobs that have succeeded since the start.
    pub(crate) fn succeeded(&self) -> u64 {
        let page = get(self.metrics, "/metrics");
        let count = page.lines().find_map(|line| line.strip_prefix(SUCCEEDED));
        count.map_or(0, |count| count.parse().unwrap())
    }
}
