//! Judges kept deliveries again, and accepts those that verify now.
//!
//! An accepted one goes the ordinary way, with the time it arrived: one event per id, a duplicate where
//! there is one, the replay guard's word, jobs by the configuration in force. It is forgotten here after
//! the commit: a crash between the two makes it a duplicate the next time.

use crate::model::Name;
use crate::store::border::{
    Accepted, AuditSubject, Error, QuarantineFilter, QuarantinedDelivery, Refused, ReverifyResult,
};
use crate::store::mutex::lock;
use crate::store::quarantine::folder::QuarantineFolder;
use crate::store::quarantine::keeper::QuarantineKeeper;

use super::Admin;
use super::quarantine::subject;

/// Most deliveries of one [`Step`], and most bytes of their bodies but for the first: an answer in far
/// less than [`ADMIN_WAIT`](crate::limits::ADMIN_WAIT).
const STEP_COUNT: usize = 128;
const STEP_BYTES: usize = 4 << 20;

/// A part of the deliveries to judge.
#[derive(Default)]
struct Step {
    /// Oldest first, with its source; nothing where it has no body.
    found: Vec<(Name, Option<QuarantinedDelivery>)>,
    /// Where to go on; none at the end.
    next: Option<i64>,
    /// Why the next one cannot be read now.
    error: Option<String>,
}

/// The next deliveries after the number `after` that `filter` selects.
fn next(folder: &QuarantineFolder, filter: &QuarantineFilter, after: i64) -> Step {
    let mut step = Step::default();
    let mut last = after;
    let mut bytes = 0;
    for id in folder.select(filter).filter(|id| *id > after) {
        if step.found.len() == STEP_COUNT || bytes > STEP_BYTES {
            step.next = Some(last);
            break;
        }
        last = id;
        match folder.read(id) {
            Ok((source, kept)) => {
                bytes += kept.as_ref().map_or(0, |kept| kept.body.len());
                step.found.push((source, kept));
            }
            Err(error) => {
                step.error = Some(format!("failed to read delivery {id}: {error}"));
                break;
            }
        }
    }
    step
}

impl Admin {
    /// Verifies the next kept deliveries after the number `after` that `filter` selects, as of their arrival. With
    /// `accept` those that are good are accepted and deleted here; `keys` are tried in place of the source's.
    pub async fn reverify(
        &self,
        mut filter: QuarantineFilter,
        after: i64,
        accept: bool,
        keys: Option<String>,
    ) -> Result<ReverifyResult, Error> {
        let Some(judge) = lock(&self.quarantine().judge).clone() else {
            return Err(Refused::Failed("nothing judges the quarantine here".to_owned()).into());
        };
        let subject = AuditSubject { after: Some(after), ..subject(&filter) };
        let mut step = self
            .quarantine()
            .ask(move |keeper| {
                // Expired deliveries may still be in the folder.
                filter.since = filter.since.max(Some(keeper.oldest()));
                keeper.folder().map(|folder| next(folder, &filter, after)).unwrap_or_default()
            })
            .await?;
        let refused = step.error.take();
        let mut judged = ReverifyResult { next: step.next, refused, ..ReverifyResult::default() };
        let (mut settled, mut row) = (Vec::new(), None);
        // On a thread that may be kept busy: it is hashing of some megabytes.
        let judge_all = move || {
            let one = |kept: QuarantinedDelivery| (kept.id, judge(kept, keys.as_deref()));
            step.found.into_iter().map(|(source, kept)| (source, kept.map(one))).collect()
        };
        let verdicts: Vec<(Name, Option<_>)> = tokio::task::spawn_blocking(judge_all)
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        for (source, verdict) in verdicts {
            judged.looked_at += 1;
            let verdicts = judged.sources.entry(source).or_default();
            let (id, new) = match verdict {
                None => {
                    verdicts.bodiless += 1;
                    continue;
                }
                Some((_, Err(reason))) => {
                    *verdicts.bad.entry(reason.to_owned()).or_default() += 1;
                    continue;
                }
                Some((id, Ok(new))) => (id, new),
            };
            verdicts.good += 1;
            if !accept {
                continue;
            }
            // One after the other: the order of arrival is the order of their rows.
            let events: Vec<_> = new.iter().map(|one| one.delivery.event_id().clone()).collect();
            let known = new.first().map(|one| (one.source.clone(), one.received_at));
            let accepted = match self.accept_kept(new, &subject, row).await {
                Ok((accepted, noted)) => {
                    row = Some(noted);
                    accepted
                }
                Err(why) => {
                    judged.refused = Some(why.to_string());
                    judged.next = None;
                    break;
                }
            };
            // A list of which one event is new is no duplicate.
            let created = accepted.iter().filter_map(|one| match one {
                Accepted::Created { held, .. } => Some(*held),
                Accepted::Duplicate { .. } => None,
            });
            let held: Vec<_> = created.collect();
            verdicts.accepted += u64::from(!held.is_empty());
            verdicts.duplicates += u64::from(held.is_empty());
            verdicts.held += u64::from(held.iter().any(Option::is_some));
            for (event, (source, received_at)) in events.iter().zip(known.iter().cycle()) {
                tracing::info!(%source, %event, %received_at, "accepted from quarantine");
            }
            settled.push(id);
        }
        if !settled.is_empty() {
            let forget = move |keeper: &mut QuarantineKeeper| {
                if let Some(folder) = keeper.folder() {
                    settled.into_iter().for_each(|id| drop(folder.remove(id)));
                }
            };
            self.quarantine().ask(forget).await?;
        }
        Ok(judged)
    }
}
