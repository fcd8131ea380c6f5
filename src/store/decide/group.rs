//! The order of a group: which new jobs take part in it, and what makes a job out of date.

use crate::model::{GroupRule, HeldReason, JobId, Timestamp};
use crate::store::border::Newer;

/// Whether a new job takes part in its group's order: what may be forged, and under [`GroupRule::Latest`] what is
/// held, keeps no other waiting. As the schema's `holds`.
pub(crate) fn keeps_place(rule: GroupRule, held: Option<HeldReason>) -> bool {
    match held {
        None => true,
        Some(HeldReason::SuspectedReplay | HeldReason::IdReused) => false,
        Some(_) => rule != GroupRule::Latest,
    }
}

/// When the first of the replaced jobs came that have made no attempt: each has its last attempt, and since when it
/// waits.
pub(crate) fn first_wait(replaced: &[(u32, Option<Timestamp>)]) -> Option<Timestamp> {
    let never_begun = replaced.iter().filter(|(attempt, _)| *attempt == 0);
    never_begun.filter_map(|(_, since)| *since).min()
}

/// What makes the job of `event` out of date: the newest job of a later event that has begun or is to begin. Retention
/// may have removed that job, of this group or another: then every event older than `newest_removed` counts as out of
/// date.
pub(crate) fn newer(newest: Option<JobId>, event: i64, newest_removed: i64) -> Option<Newer> {
    newest.map(Newer::Job).or((event < newest_removed).then_some(Newer::Removed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::START;

    #[test]
    fn what_may_be_forged_keeps_no_other_waiting() {
        use GroupRule::{Block, Latest, StepOver};
        for held in [HeldReason::SuspectedReplay, HeldReason::IdReused] {
            assert!(GroupRule::ALL.iter().all(|rule| !keeps_place(*rule, Some(held))));
        }
        assert!(GroupRule::ALL.iter().all(|rule| keeps_place(*rule, None)));
        for held in HeldReason::ALL.iter().copied() {
            if [HeldReason::SuspectedReplay, HeldReason::IdReused].contains(&held) {
                continue;
            }
            let kept = [Block, StepOver, Latest].map(|rule| keeps_place(rule, Some(held)));
            assert_eq!(kept, [true, true, false], "{held}");
        }
    }

    #[test]
    fn a_wait_begins_with_the_first_replaced_job_that_made_no_attempt() {
        let at = |minutes: i64| Some(Timestamp(START.0 + minutes));
        for (replaced, expected) in [
            (&[][..], None),
            (&[(0, None)], None),
            (&[(1, at(1))], None),
            (&[(0, at(3)), (0, at(2)), (0, None), (1, at(1))], at(2)),
        ] {
            assert_eq!(first_wait(replaced), expected, "{replaced:?}");
        }
    }

    #[test]
    fn a_newer_job_or_one_that_retention_removed_makes_a_job_out_of_date() {
        let job = JobId::from_bytes([7; 16]);
        for (newest, removed, expected) in [
            (None, 4, None),
            (None, 5, None),
            (None, 6, Some(Newer::Removed)),
            (Some(job), 4, Some(Newer::Job(job))),
            (Some(job), 6, Some(Newer::Job(job))),
        ] {
            assert_eq!(newer(newest, 5, removed), expected, "{newest:?} {removed}");
        }
    }
}
