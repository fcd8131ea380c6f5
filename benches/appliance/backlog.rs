//! A receiver with one handler and a backlog of ready jobs; measures how long running them takes.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::load::flood;
use super::site::{Receiver, Site, get};
use super::start::prepare;

/// The number of connections that store the backlog.
const CONNECTIONS: usize = 64;

/// The number of concurrent attempts of the handler, and of the loop that it is compared with.
pub(crate) const ABREAST: usize = 8;

/// The metrics, which count the jobs that have succeeded. A job counts when its end is committed.
const METRICS: &str = "\n[metrics]\nlisten = \"127.0.0.1:0\"\n";

/// The beginning of the metric's line.
const SUCCEEDED: &str = r#"hooklatch_jobs_settled_total{handler="job",state="succeeded"} "#;

/// A lower bound for the time of a job. The wait for many jobs polls with it: about fifty times in a run of
/// seconds, each of which costs the receiver a fraction of a millisecond.
const SHORTEST_JOB: Duration = Duration::from_micros(50);

/// The shortest pause between two polls.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

pub(crate) struct Backlog {
    pub(crate) site: Site,
    pub(crate) receiver: Receiver,
    metrics: SocketAddr,
}

/// A site whose handler has the configuration line `what`.
fn site(what: &str) -> Site {
    Site::new(&format!(
        "{METRICS}[handlers.job]\nsource = [\"github\", \"stripe\"]\nevents = [\"*\"]\n{what}\n\
         concurrency = {ABREAST}\n"
    ))
}

impl Backlog {
    /// Starts a receiver whose handler has the configuration line `what` and takes the events of both sources.
    pub(crate) fn of(what: &str) -> Self {
        Self::start(site(what))
    }

    /// Starts a receiver as [`Backlog::of`] does, with so many ready jobs of its paused handler. `differ` says how the
    /// jobs differ from the first.
    pub(crate) fn filled(what: &str, jobs: usize, differ: &[(&str, &str)]) -> Self {
        let site = site(what);
        prepare(&site, jobs, differ);
        Self::start(site)
    }

    fn start(site: Site) -> Self {
        let receiver = site.start();
        // The receiver logs this line at about the same time as "serving", and may write it later.
        let metrics = loop {
            match site.address(r#""message":"serving metrics""#) {
                Some(metrics) => break metrics,
                None => sleep(SHORTEST_WAIT),
            }
        };
        Backlog { site, receiver, metrics }
    }

    /// Stores these deliveries while the handler is paused, resumes it, and returns the jobs per second.
    pub(crate) fn rate(&self, requests: &[Vec<u8>]) -> f64 {
        self.site.pause();
        let goal = self.succeeded() + requests.len() as u64;
        flood(self.receiver.address, requests, CONNECTIONS, 200);
        let begun = Instant::now();
        self.site.resume();
        self.wait(goal);
        requests.len() as f64 / begun.elapsed().as_secs_f64()
    }

    /// Waits until `goal` jobs have succeeded since the start.
    pub(crate) fn wait(&self, goal: u64) {
        loop {
            let left = goal.saturating_sub(self.succeeded());
            if left == 0 {
                return;
            }
            sleep((SHORTEST_JOB * u32::try_from(left).unwrap()).max(SHORTEST_WAIT));
        }
    }

    /// The number of jobs that have succeeded since the start.
    pub(crate) fn succeeded(&self) -> u64 {
        let page = get(self.metrics, "/metrics");
        let count = page.lines().find_map(|line| line.strip_prefix(SUCCEEDED));
        count.map_or(0, |count| count.parse().unwrap())
    }
}
