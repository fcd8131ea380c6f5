//! The events that this node has accepted last (N28). A database that has lost one of them has gone back.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::clock::Clock;
use crate::model::{EventId, Name, NoticeType, Timestamp};
use crate::store::codec;

use super::accepted_file::{self, REPLACE_BYTES};
use super::flight::Flight;
use super::params::params;
use super::stop::{Stop, ask};

/// A bound for memory, and for the time of a look.
const MOST: usize = 65_536;

/// Retention keeps an id for a day at least: an older one may be gone rightly.
const KEPT_FOR: Duration = Duration::from_secs(23 * 3600);

/// The places of those events ($1 sources, $2 ids, $3 times) that are missing, and younger than $4 by the database's clock
/// too. A join might read all events.
const MISSING: &str = "
    SELECT place FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS asked (source, event_id, at, place)
    WHERE at > now_ms() - $4::bigint AND (SELECT true FROM event e
        WHERE e.source = asked.source AND e.event_id = asked.event_id LIMIT 1) IS NULL
    ORDER BY place";

const NOTE: &str = "
    INSERT INTO notice (type, subject, reason, count, first_at, last_at)
    VALUES ($1, $2, $3, $4, now_ms() - $5::bigint, now_ms())
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + excluded.count,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at";

/// Adds to the last change of the history.
const COUNT_LOST: &str =
    "UPDATE restored SET lost = lost + $1 WHERE row = (SELECT max(row) FROM restored)";

/// An accepted event: when by the time since boot, which no change of the clock moves, and by the wall clock, which the next
/// process can compare.
type Accepted = (Duration, Timestamp, Name, EventId);

#[derive(Debug)]
pub(super) struct Remembered {
    clock: Clock,
    events: VecDeque<Accepted>,
    /// How many of the last ones the file lacks.
    unsaved: usize,
    /// What this process has written to the file: its store, and its bytes. None where its end is not known.
    written: Option<(Uuid, u64)>,
    /// The store in which they were accepted, or looked for last.
    pub(super) store: Option<Uuid>,
}

impl Remembered {
    pub(super) fn new(clock: Clock) -> Self {
        let events = VecDeque::new();
        Remembered { clock, events, unsaved: 0, written: None, store: None }
    }

    /// The events that earlier processes have kept, where they are young by this machine's clock. An unreadable file is a
    /// warning: marks may still show that the database has gone back.
    pub(super) fn load(path: &Path, clock: Clock) -> Self {
        let now = clock.now();
        let kept = accepted_file::read(path).inspect_err(|error| {
            tracing::warn!(file = %path.display(), %error, "the last accepted events cannot be read");
        });
        let Ok(Some((store, kept))) = kept else { return Remembered::new(clock) };
        let boot = since_boot();
        let young = kept.into_iter().filter_map(|(at, source, id)| {
            let age = now.since(at);
            (at <= now && age < KEPT_FOR).then(|| (boot.saturating_sub(age), at, source, id))
        });
        let mut events: VecDeque<_> = young.collect();
        events.drain(..events.len().saturating_sub(MOST));
        Remembered { clock, events, unsaved: 0, written: None, store: Some(store) }
    }

    /// A new event was committed, and is about to be acknowledged.
    pub(super) fn note(&mut self, source: &Name, event: &EventId) {
        if self.events.len() == MOST {
            self.events.pop_front();
        }
        let (source, event) = (source.clone(), event.clone());
        self.events.push_back((since_boot(), self.clock.now(), source, event));
        self.unsaved = (self.unsaved + 1).min(MOST);
    }

    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.unsaved = 0;
    }

    /// Forgets the events that are no longer young, and returns the others that the database lacks, oldest first.
    pub(super) async fn missing(
        &mut self,
        flight: &mut Flight,
    ) -> Result<Vec<(Name, EventId)>, Stop> {
        let (boot, now) = (since_boot(), self.clock.now());
        let is_young =
            |boot_at, at| boot.saturating_sub(boot_at) < KEPT_FOR && now.since(at) < KEPT_FOR;
        self.events.retain(|(boot_at, at, ..)| is_young(*boot_at, *at));
        let times: Vec<i64> = self.events.iter().map(|(_, at, ..)| at.0).collect();
        let names = self.events.iter().map(|(.., source, id)| (source.to_string(), id.to_string()));
        let (sources, ids): (Vec<String>, Vec<String>) = names.unzip();
        let mut missing = Vec::new();
        for row in ask(flight, MISSING, params![sources, ids, times, KEPT_FOR]).await? {
            let place = usize::try_from(row.try_get::<_, i64>(0)? - 1).unwrap_or(usize::MAX);
            let event = self.events.get(place);
            missing.extend(event.map(|(.., source, id)| (source.clone(), id.clone())));
        }
        Ok(missing)
    }

    /// This store has all of them but these, which are reported: a redelivery may bring them again.
    pub(super) fn found(&mut self, store: Uuid, reported: &[(Name, EventId)]) {
        let reported: HashSet<_> = reported.iter().map(|(source, id)| (source, id)).collect();
        self.events.retain(|(.., source, id)| !reported.contains(&(source, id)));
        self.store = Some(store);
    }

    /// Adds to the file what it lacks. A file that another process has written, or that has grown long, is replaced.
    pub(super) async fn save(&mut self, path: &Path) {
        let Some(store) = self.store else { return };
        if let Err(error) = self.write(path.to_owned(), store).await {
            tracing::warn!(file = %path.display(), %error, "the last accepted events cannot be kept");
        }
    }

    async fn write(&mut self, path: PathBuf, store: Uuid) -> io::Result<()> {
        // Behind a write that fails the end is not known: a line that was cut would swallow the next one.
        let written = self.written.take();
        let written = written.filter(|(of, bytes)| *of == store && *bytes < REPLACE_BYTES);
        let skipped = match written {
            Some(_) => self.events.len().saturating_sub(self.unsaved),
            None => 0,
        };
        let lines = self.events.iter().skip(skipped);
        let lines = lines.map(|(_, at, source, id)| (*at, source.clone(), id.clone()));
        let lines: Vec<_> = lines.collect();
        let bytes = spawn_blocking(move || match written {
            Some((_, bytes)) => Ok(bytes + accepted_file::add(&path, &lines)?),
            None => accepted_file::replace(&path, store, &lines),
        });
        self.written = Some((store, bytes.await??));
        self.unsaved = 0;
        Ok(())
    }
}

/// Goes on while the machine is suspended.
fn since_boot() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap_or_default()
}

/// Counts a notice for each source that has lost events, and all of them for `status`.
pub(super) async fn note_lost(flight: &mut Flight, lost: &[(Name, EventId)]) {
    if !lost.is_empty() {
        flight.send(COUNT_LOST, params![lost.len()]).await;
    }
    let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
    for (source, _) in lost {
        *counts.entry(source).or_default() += 1;
    }
    for (source, count) in counts {
        let (kind, reason) = (NoticeType::StoreLost.as_str(), "the database has gone back");
        flight.send(NOTE, params![kind, source.as_str(), reason, count, 0_i64]).await;
    }
}

/// Counts a notice of the time in which the database could not be used.
pub(super) async fn note_away(flight: &mut Flight, away: Duration) {
    let (kind, millis) = (NoticeType::StoreDegraded.as_str(), codec::size(away.as_millis()));
    flight.send(NOTE, params![kind, "", "database away", 1_i64, millis]).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn a_process_adds_to_its_own_file_and_replaces_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.db.accepted");
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let ids = || {
            let (store, events) = accepted_file::read(&path).unwrap().unwrap();
            (store, events.into_iter().map(|(.., id)| id.to_string()).collect::<String>())
        };
        let source = "s".parse().unwrap();
        let mut first = Remembered::new(Clock::system());
        first.found(one, &[]);
        for id in ["a", "b"] {
            first.note(&source, &id.parse().unwrap());
            first.save(&path).await;
        }
        assert_eq!(ids(), (one, "ab".to_owned()));
        // A power cut has cut a line.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"4 s").unwrap();
        let mut next = Remembered::load(&path, Clock::system());
        assert_eq!(next.store, Some(one));
        next.note(&source, &"c".parse().unwrap());
        next.save(&path).await;
        assert_eq!(ids(), (one, "abc".to_owned()));
        next.found(other, &[(source.clone(), "b".parse().unwrap())]);
        next.save(&path).await;
        assert_eq!(ids(), (other, "ac".to_owned()));
    }
}
