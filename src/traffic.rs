//! What the front door has seen since it was opened: of each source the last good and the last refused
//! delivery, and the requests to paths that no source has.
//!
//! `http` writes it, `control` reads it for `status`, and `serve` hands both the same one. What must
//! stay true: it is memory alone and decides nothing; what strangers can choose in it is bounded in
//! number and length.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::document::nearest;
use crate::model::{Name, Timestamp};

/// Most unknown paths remembered, the one that was asked for the longest ago given up first: enough for
/// a misspelt one to be seen among what scanners try, if it is looked for soon.
const PATHS: usize = 10;

/// Longest part of an unknown path that is kept, in bytes; it is longer than any path that was meant.
const PATH_BYTES: usize = 200;

/// What was seen. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<Mutex<Seen>>);

/// What was seen, at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Every configured source.
    pub sources: BTreeMap<Name, SourceSeen>,
    /// Paths that no source has, the one asked for last first.
    pub unknown_paths: Vec<UnknownPath>,
}

/// What was seen of one source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSeen {
    /// Its path.
    pub path: String,
    /// New events.
    pub accepted: u64,
    /// Deliveries of events that were there already.
    pub duplicates: u64,
    /// Deliveries that were refused, for whatever reason.
    pub refused: u64,
    /// The last accepted or duplicate one.
    pub last_good_at: Option<Timestamp>,
    /// The last refused one, and the fixed word or the sentence that says why.
    pub last_refused: Option<(Timestamp, String)>,
}

/// Requests to a path that no source has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPath {
    /// The path as it was sent, perhaps cut.
    pub path: String,
    /// How many requests.
    pub requests: u64,
    /// The last one.
    pub last_at: Timestamp,
    /// The source's path that may be meant.
    pub nearest: Option<String>,
}

impl Traffic {
    /// For the sources with these paths.
    pub fn new(paths: impl IntoIterator<Item = (Name, String)>) -> Self {
        let seen = |path| SourceSeen { path, ..SourceSeen::default() };
        let sources = paths.into_iter().map(|(name, path)| (name, seen(path))).collect();
        Traffic(Arc::new(Mutex::new(Seen { sources, unknown_paths: Vec::new() })))
    }

    /// For these sources from now on: what was seen of those that stay is kept, under their paths as they
    /// are now, and a path that has become a source's is unknown no more.
    pub fn keep(&self, paths: impl IntoIterator<Item = (Name, String)>) {
        self.with(|seen| {
            let kept = paths.into_iter().map(|(name, path)| {
                let before = seen.sources.remove(&name).unwrap_or_default();
                (name, SourceSeen { path, ..before })
            });
            let kept: BTreeMap<_, _> = kept.collect();
            seen.unknown_paths.retain(|known| kept.values().all(|own| own.path != known.path));
            for unknown in &mut seen.unknown_paths {
                unknown.nearest = meant(&unknown.path, kept.values());
            }
            seen.sources = kept;
        });
    }

    /// All of it as it is now.
    pub fn seen(&self) -> Seen {
        self.with(|seen| seen.clone())
    }

    /// A genuine delivery was made durable, or repeated an event that is.
    pub fn good(&self, source: &Name, duplicate: bool, now: Timestamp) {
        self.source(source, |seen| {
            match duplicate {
                true => seen.duplicates += 1,
                false => seen.accepted += 1,
            }
            seen.last_good_at = Some(now);
        });
    }

    /// A delivery was refused: one of our own words or sentences says why.
    pub fn refused(&self, source: &Name, reason: &str, now: Timestamp) {
        self.source(source, |seen| {
            seen.refused += 1;
            seen.last_refused = Some((now, reason.to_owned()));
        });
    }

    /// A request came to a path that no source has.
    pub fn unknown_path(&self, path: &str, now: Timestamp) {
        let path = &path[..path.floor_char_boundary(PATH_BYTES)];
        self.with(|seen| {
            let known = seen.unknown_paths.iter().position(|known| known.path == path);
            let mut entry = match known {
                Some(at) => seen.unknown_paths.remove(at),
                None => UnknownPath {
                    path: path.to_owned(),
                    requests: 0,
                    last_at: now,
                    nearest: meant(path, seen.sources.values()),
                },
            };
            entry.requests += 1;
            entry.last_at = now;
            seen.unknown_paths.insert(0, entry);
            seen.unknown_paths.truncate(PATHS);
        });
    }

    fn source(&self, source: &Name, note: impl FnOnce(&mut SourceSeen)) {
        self.with(|seen| {
            if let Some(seen) = seen.sources.get_mut(source) {
                note(seen);
            }
        });
    }

    /// A panic elsewhere has left nothing here that could matter.
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The source's path that is near enough to be meant: a slash too many or another case is nearer than
/// any misspelling.
fn meant<'a>(path: &str, sources: impl Iterator<Item = &'a SourceSeen>) -> Option<String> {
    let plain = |path: &str| path.trim_end_matches('/').to_ascii_lowercase();
    let paths: Vec<&str> = sources.map(|source| source.path.as_str()).collect();
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

    const NOW: Timestamp = Timestamp(1_000);

    fn traffic() -> Traffic {
        let path = |name: &str, path: &str| (name.parse().unwrap(), path.to_owned());
        Traffic::new([path("github", "/github"), path("stripe", "/hooks/stripe")])
    }

    #[test]
    fn an_unknown_path_comes_with_the_one_that_may_be_meant() {
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
    fn what_strangers_choose_is_bounded_and_the_latest_stays() {
        let traffic = traffic();
        for nth in 0..1_000 {
            traffic.unknown_path(&format!("/{nth}"), NOW);
        }
        traffic.unknown_path(&"ä".repeat(10_000), NOW);
        traffic.unknown_path("/999", Timestamp(2_000));
        let seen = traffic.seen().unknown_paths;
        assert_eq!(seen.len(), PATHS);
        assert_eq!((seen[0].path.as_str(), seen[0].requests), ("/999", 2));
        assert_eq!(seen[0].last_at, Timestamp(2_000));
        assert_eq!(seen[1].path.len(), PATH_BYTES);
    }

    #[test]
    fn what_was_seen_of_a_source_outlives_a_change_of_its_path() {
        let (traffic, github) = (traffic(), "github".parse().unwrap());
        traffic.good(&github, false, NOW);
        for path in ["/git", "/stripe"] {
            traffic.unknown_path(path, NOW);
        }
        traffic.keep([(github, "/git".to_owned()), ("shop".parse().unwrap(), "/shop".to_owned())]);
        let seen = traffic.seen();
        let known: Vec<_> = seen
            .sources
            .iter()
            .map(|(name, one)| (name.as_str(), &*one.path, one.accepted))
            .collect();
        assert_eq!(known, [("github", "/git", 1), ("shop", "/shop", 0)]);
        let unknown: Vec<_> =
            seen.unknown_paths.iter().map(|one| (&*one.path, one.nearest.as_deref())).collect();
        assert_eq!(unknown, [("/stripe", None)], "nothing is meant by a source that is gone");
    }

    #[test]
    fn deliveries_are_counted_for_their_source_alone() {
        let (traffic, github) = (traffic(), "github".parse().unwrap());
        traffic.good(&github, false, NOW);
        traffic.good(&github, true, Timestamp(2_000));
        traffic.refused(&github, "bad_signature", Timestamp(3_000));
        traffic.refused(&"nobody".parse().unwrap(), "bad_signature", NOW);
        let seen = traffic.seen().sources;
        let one = &seen[&github];
        assert_eq!((one.accepted, one.duplicates, one.refused), (1, 1, 1));
        assert_eq!(one.last_good_at, Some(Timestamp(2_000)));
        assert_eq!(one.last_refused, Some((Timestamp(3_000), "bad_signature".to_owned())));
        assert_eq!(seen[&"stripe".parse().unwrap()].refused, 0);
        assert_eq!(seen.len(), 2);
    }
}
