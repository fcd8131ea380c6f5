//! The events that this process has accepted last (N28). A database that has lost one of them has gone back.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::model::{EventId, Name, NoticeType};
use crate::store::codec;

use super::flight::Flight;
use super::params::params;
use super::stop::{Stop, ask};

const MOST: usize = 65_536;

/// Retention keeps an id for a day at least: an older one may be gone rightly.
const KEPT_FOR: Duration = Duration::from_secs(23 * 3600);

/// The places of those events ($1 sources, $2 ids) that are missing. A join might read all events.
const MISSING: &str = "
    SELECT place FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (source, event_id, place)
    WHERE (SELECT true FROM event e WHERE e.source = asked.source AND e.event_id = asked.event_id LIMIT 1) IS NULL
    ORDER BY place";

const NOTE: &str = "
    INSERT INTO notice (type, subject, reason, count, first_at, last_at)
    VALUES ($1, $2, $3, $4, now_ms() - $5::bigint, now_ms())
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + excluded.count,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at";

#[derive(Debug, Default)]
pub(super) struct Remembered(VecDeque<(Duration, Name, EventId)>);

impl Remembered {
    /// A new event was committed, and is about to be acknowledged.
    pub(super) fn note(&mut self, source: &Name, event: &EventId) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((since_boot(), source.clone(), event.clone()));
    }

    /// Those that the database lacks, oldest first.
    pub(super) async fn missing(
        &mut self,
        flight: &mut Flight,
    ) -> Result<Vec<(Name, EventId)>, Stop> {
        let now = since_boot();
        self.0.retain(|(at, ..)| now.saturating_sub(*at) < KEPT_FOR);
        let names = self.0.iter().map(|(_, source, id)| (source.to_string(), id.to_string()));
        let (sources, ids): (Vec<String>, Vec<String>) = names.unzip();
        let mut missing = Vec::new();
        for row in ask(flight, MISSING, vec![Box::new(sources), Box::new(ids)]).await? {
            let place = usize::try_from(row.try_get::<_, i64>(0)? - 1).unwrap_or(usize::MAX);
            missing.extend(self.0.get(place).map(|(_, source, id)| (source.clone(), id.clone())));
        }
        Ok(missing)
    }

    /// They are reported: a redelivery may bring them again.
    pub(super) fn forget(&mut self, reported: &[(Name, EventId)]) {
        let reported: HashSet<_> = reported.iter().map(|(source, id)| (source, id)).collect();
        self.0.retain(|(_, source, id)| !reported.contains(&(source, id)));
    }
}

/// Goes on while the machine is suspended.
fn since_boot() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap_or_default()
}

/// Counts a notice for each source that has lost events.
pub(super) async fn note_lost(flight: &mut Flight, lost: &[(Name, EventId)]) {
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
