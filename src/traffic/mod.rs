//! Statistics since the start: deliveries of each source, attempts of each handler, and requests to no source.
//!
//! `http` and `dispatcher` write them, `admin` (for `status`) and `metrics` read them; all share the one that
//! `serve` makes. What must stay true: the statistics are in memory only and decide nothing; a good delivery takes
//! no lock; text from strangers is bounded in number and length.

mod burst;
mod handler;
mod oversized;
mod recent;
mod seen;
mod source;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::document::nearest;
use crate::limits::{UNKNOWN_PATH_BYTES, UNKNOWN_PATHS};
use crate::measure::Tally;
use crate::model::{Broken, Name, Timestamp};
use crate::routing::Decision;

pub use burst::RefusalCount;
pub use handler::HandlerTraffic;
pub use oversized::TooLarge;
pub use recent::{HandlerSlot, RecentTraffic, SourceSlot};
pub use seen::{HandlerSeen, Seen, SourceSeen, UnknownPath};
pub use source::{CountedSource, Keyed, Refusal, Refused, SourceTraffic};

use burst::Bursts;
use handler::counts;
use recent::SLOT_MILLIS;

/// The reasons of refused requests to no source.
pub(crate) const UNKNOWN_PATH: &str = "unknown_path";
pub(crate) const UNREADABLE: &str = "unreadable";

/// Clones share their counts.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<All>);

#[derive(Debug, Default)]
struct All {
    known: Mutex<Known>,
    /// Notified by the first refusal of a burst.
    failing: Notify,
}

#[derive(Debug, Default)]
struct Known {
    sources: Vec<SourceTraffic>,
    handlers: BTreeMap<Name, Arc<HandlerTraffic>>,
    /// The decisions about new events of each handler that has a condition or a key.
    decisions: BTreeMap<Name, Arc<Tally>>,
    /// Their `nearest` is filled in when they are read.
    unknown_paths: Vec<UnknownPath>,
    /// The refusals of requests to no source.
    refusals: Bursts,
}

impl Traffic {
    /// Replaces the sources and returns their statistics in the same order. A source whose name stays keeps its
    /// counts; the counts of others are dropped.
    pub fn set_sources(&self, sources: Vec<CountedSource>) -> Vec<SourceTraffic> {
        self.with(|known| {
            let traffic = |source: CountedSource| {
                let before = known.sources.iter().find(|one| one.name() == source.name.as_str());
                let counts = before.map(|one| Arc::clone(&one.counts)).unwrap_or_default();
                SourceTraffic { configured: Arc::new(source), counts }
            };
            let sources: Vec<_> = sources.into_iter().map(traffic).collect();
            let is_one = |path: &str| sources.iter().any(|one| one.configured.path == path);
            known.unknown_paths.retain(|unknown| !is_one(&unknown.path));
            known.sources.clone_from(&sources);
            sources
        })
    }

    /// Replaces the handlers in the same way.
    pub fn set_handlers(
        &self,
        names: impl IntoIterator<Item = Name>,
    ) -> BTreeMap<Name, Arc<HandlerTraffic>> {
        self.with(|known| replace(&mut known.handlers, names, HandlerTraffic::default))
    }

    /// Replaces the handlers that have a condition or a key in the same way.
    pub fn set_deciding(
        &self,
        names: impl IntoIterator<Item = Name>,
    ) -> BTreeMap<Name, Arc<Tally>> {
        self.with(|known| replace(&mut known.decisions, names, || Tally::new(Decision::WORDS)))
    }

    pub fn decisions(&self) -> BTreeMap<Name, Arc<Tally>> {
        self.with(|known| known.decisions.clone())
    }

    pub fn sources(&self) -> Vec<SourceTraffic> {
        self.with(|known| known.sources.clone())
    }

    pub fn handlers(&self) -> BTreeMap<Name, Arc<HandlerTraffic>> {
        self.with(|known| known.handlers.clone())
    }

    /// The statistics that `status` shows.
    pub fn seen(&self) -> Seen {
        let (sources, mut unknown_paths) =
            self.with(|known| (known.sources.clone(), known.unknown_paths.clone()));
        // Not for each request, or strangers could make the receiver compare many long paths.
        for unknown in &mut unknown_paths {
            let paths = sources.iter().map(|one| one.configured.path.as_str());
            unknown.nearest = meant(&unknown.path, paths);
        }
        let seen = |source: SourceTraffic| (source.configured.name.clone(), source.seen());
        Seen {
            sources: sources.into_iter().map(seen).collect(),
            unknown_paths,
            broken: self.broken(),
            handlers: self.handlers_seen(),
        }
    }

    fn handlers_seen(&self) -> BTreeMap<Name, HandlerSeen> {
        let decisions = self.decisions();
        let seen = |(name, traffic): (Name, Arc<HandlerTraffic>)| {
            let decided = decisions.get(&name).map(|tally| counts(tally)).unwrap_or_default();
            (name, HandlerSeen { decided, ..traffic.seen() })
        };
        self.handlers().into_iter().map(seen).collect()
    }

    /// What happened in the day before `now`, for a receiver that started at `since`.
    pub fn recent(&self, since: Timestamp, now: Timestamp) -> RecentTraffic {
        let sources = self.sources().into_iter();
        let handlers = self.handlers().into_iter();
        RecentTraffic {
            since,
            now,
            slot_millis: SLOT_MILLIS,
            sources: sources
                .map(|source| (source.configured.name.clone(), source.recent(now)))
                .collect(),
            handlers: handlers.map(|(name, handler)| (name, handler.recent(now))).collect(),
        }
    }

    /// The handlers that cannot run, by name.
    pub fn broken(&self) -> Vec<Broken> {
        self.handlers().values().filter_map(|handler| handler.broken()).collect()
    }

    /// Counts a request to a path that no source has. True if it is the first of a burst and needs a log line.
    pub fn unknown_path(&self, path: &str, now: Timestamp) -> bool {
        let path = &path[..path.floor_char_boundary(UNKNOWN_PATH_BYTES)];
        self.with(|known| {
            let at = known.unknown_paths.iter().position(|known| known.path == path);
            let before = at.map_or(0, |at| known.unknown_paths.remove(at).requests);
            let (path, requests) = (path.to_owned(), before + 1);
            let entry = UnknownPath { path, requests, last_at: now, nearest: None };
            known.unknown_paths.insert(0, entry);
            known.unknown_paths.truncate(UNKNOWN_PATHS);
            known.refusals.add("not_found", UNKNOWN_PATH)
        })
    }

    /// Counts a malformed request. Returns the same as [`Traffic::unknown_path`].
    pub fn unreadable(&self) -> bool {
        self.with(|known| known.refusals.add("bad_request", UNREADABLE))
    }

    /// The requests to no source that were refused for `reason`: [`UNKNOWN_PATH`] or [`UNREADABLE`].
    pub fn no_source_requests(&self, reason: &str) -> u64 {
        self.with(|known| {
            let mut totals = known.refusals.totals();
            totals.find(|(_, one, _)| *one == reason).map_or(0, |(.., count)| count)
        })
    }

    /// Wakes [`Traffic::first_refusal`]. Called after the first refusal of a burst is logged.
    pub fn wake_refusal_log(&self) {
        self.0.failing.notify_one();
    }

    /// Waits for the first refusal of a burst. Only one task may wait.
    pub async fn first_refusal(&self) {
        self.0.failing.notified().await;
    }

    /// The refusals since the last call by source and reason, for one log line each. If it is empty, all bursts are
    /// over.
    pub fn take_refusal_counts(&self) -> Vec<RefusalCount> {
        let (mut counts, sources) =
            self.with(|known| (known.refusals.take_unlogged(None), known.sources.clone()));
        counts.extend(sources.iter().flat_map(SourceTraffic::take_refusal_counts));
        counts
    }

    /// A panic elsewhere cannot have left broken counts.
    fn with<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Replaces the statistics by those of `names`. A name that stays keeps its statistics.
fn replace<T>(
    known: &mut BTreeMap<Name, Arc<T>>,
    names: impl IntoIterator<Item = Name>,
    new: fn() -> T,
) -> BTreeMap<Name, Arc<T>> {
    let before = std::mem::take(known);
    let of = |name: Name| {
        let kept = before.get(&name).map(Arc::clone);
        (name, kept.unwrap_or_else(|| Arc::new(new())))
    };
    known.extend(names.into_iter().map(of));
    known.clone()
}

/// The source's path that is near enough to be meant: a slash too many or another case is nearer than
/// any misspelling.
fn meant<'a>(path: &str, paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let plain = |path: &str| path.trim_end_matches('/').to_ascii_lowercase();
    let paths: Vec<&str> = paths.collect();
    let same = paths.iter().copied().find(|known| plain(known) == plain(path));
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let same_end = || {
        let end = last(&plain(path));
        paths.iter().copied().find(|known| !end.is_empty() && last(&plain(known)) == end)
    };
    same.or_else(same_end).or_else(|| nearest(path, paths.iter().copied())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp(1_000);

    fn source(name: &str, path: &str) -> CountedSource {
        let (name, path) = (name.parse().unwrap(), path.to_owned());
        let deadline = Some(Duration::from_secs(10));
        CountedSource { name, path, deadline, secrets: Vec::new(), answers: false }
    }

    fn traffic() -> Traffic {
        let traffic = Traffic::default();
        traffic.set_sources(vec![source("github", "/github"), source("stripe", "/hooks/stripe")]);
        traffic
    }

    fn forged() -> Refusal<'static> {
        let reason = "bad_signature";
        Refusal { answer: "rejected", reason, shown: reason, unproven: true }
    }

    #[test]
    fn an_unknown_path_is_shown_with_the_nearest_path_of_a_source() {
        let cases = [
            ("/githb", Some("/github")),
            ("/GitHub", Some("/github")),
            ("/github/", Some("/github")),
            ("/stripe", Some("/hooks/stripe")),
            ("/hooks/strpe", Some("/hooks/stripe")),
            ("/wp-login.php", None),
            ("/", None),
            ("", None),
        ];
        for (path, wanted) in cases {
            let traffic = traffic();
            traffic.unknown_path(path, NOW);
            let seen = traffic.seen().unknown_paths.remove(0);
            assert_eq!(seen.nearest.as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn the_nearest_path_is_one_of_the_current_sources() {
        let traffic = traffic();
        traffic.unknown_path("/gitea", NOW);
        traffic.unknown_path("/githb", NOW);
        traffic.unknown_path("/gitea2", NOW);
        traffic.set_sources(vec![source("gitea", "/gitea2")]);
        let seen = traffic.seen().unknown_paths;
        let nearest = |at: usize| (seen[at].path.as_str(), seen[at].nearest.as_deref());
        assert_eq!([nearest(0), nearest(1)], [("/githb", None), ("/gitea", Some("/gitea2"))]);
    }

    #[test]
    fn unknown_paths_are_bounded_and_the_most_recent_stay() {
        let traffic = traffic();
        for nth in 0..1_000 {
            traffic.unknown_path(&format!("/{nth}"), NOW);
        }
        traffic.unknown_path(&"ä".repeat(10_000), NOW);
        traffic.unknown_path("/999", Timestamp(2_000));
        let seen = traffic.seen().unknown_paths;
        assert_eq!(seen.len(), UNKNOWN_PATHS);
        assert_eq!((seen[0].path.as_str(), seen[0].requests), ("/999", 2));
        assert_eq!(seen[0].last_at, Timestamp(2_000));
        assert_eq!(seen[1].path.len(), UNKNOWN_PATH_BYTES);
    }

    #[test]
    fn deliveries_are_counted_for_their_source_only() {
        let traffic = traffic();
        let github = &traffic.sources()[0];
        github.good(false, NOW, Duration::from_millis(3));
        github.good(true, Timestamp(2_000), Duration::from_secs(9));
        github.refused(forged(), Timestamp(3_000));
        let seen = traffic.seen().sources;
        let one = &seen[&"github".parse().unwrap()];
        assert_eq!((one.accepted, one.duplicates, one.refused), (1, 1, 1));
        assert_eq!(one.last_good_at, Some(Timestamp(2_000)));
        assert_eq!(one.last_refused, Some((Timestamp(3_000), "bad_signature".to_owned())));
        assert_eq!(seen[&"stripe".parse().unwrap()].refused, 0);
        assert_eq!(seen.len(), 2);
        let shares = github.counts.shares.get().buckets;
        assert!(shares.contains(&(0.75, 1)) && shares.contains(&(0.9, 2)), "{shares:?}");
    }

    #[test]
    fn a_reload_keeps_the_counts_of_sources_that_stay_and_drops_the_others() {
        let traffic = traffic();
        let before = traffic.sources();
        before[1].good(false, NOW, Duration::ZERO);
        traffic.set_sources(vec![source("stripe", "/elsewhere"), source("new", "/new")]);
        before[1].good(false, NOW, Duration::ZERO);
        let seen = traffic.seen().sources;
        let told = |name: &str| {
            (seen[&name.parse().unwrap()].path.as_str(), &seen[&name.parse().unwrap()].accepted)
        };
        assert_eq!(told("stripe"), ("/elsewhere", &2));
        assert_eq!(told("new"), ("/new", &0));
        assert_eq!(seen.len(), 2);
    }

    #[test]
    fn five_consecutive_forgeries_mark_a_source_as_failing_until_a_success() {
        let traffic = traffic();
        let github = &traffic.sources()[0];
        let failing = |count| {
            (0..count).filter_map(|_| github.refused(forged(), NOW).failing).collect::<Vec<_>>()
        };
        assert_eq!(failing(4), []);
        github.verified();
        assert_eq!(failing(4), []);
        assert_eq!(failing(1), [(5, NOW)]);
    }

    #[test]
    fn refusals_are_counted_by_source_and_reason() {
        let traffic = traffic();
        let github = &traffic.sources()[0];
        for nth in 0..5 {
            assert_eq!(github.refused(forged(), NOW).first, nth == 0);
            assert_eq!(traffic.unknown_path("/wp-login.php", NOW), nth == 0);
        }
        let counts = traffic.take_refusal_counts();
        let wanted = |source: Option<&str>, answer, reason| RefusalCount {
            source: source.map(|name| name.parse().unwrap()),
            answer,
            reason,
            count: 4,
        };
        assert_eq!(
            counts,
            [
                wanted(None, "not_found", "unknown_path"),
                wanted(Some("github"), "rejected", "bad_signature")
            ]
        );
        assert_eq!(traffic.take_refusal_counts(), []);
    }
}
