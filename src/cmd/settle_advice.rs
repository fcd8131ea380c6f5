//! How the operator settles a job that is held or dead: what to find out first, and the commands.

use crate::model::{DeadReason, HeldReason, JobId};

/// What the operator checks or does first; shown before the [commands](ways).
pub(super) fn advice(reason: &str) -> &'static str {
    if let Ok(held) = reason.parse() {
        return match held {
            HeldReason::UnknownOutcome => "check whether it did its work, then run one of these",
            HeldReason::SuspectedReplay => {
                "the same signed body came before; run the first if this one is genuine, else the second"
            }
            HeldReason::IdReused => {
                "another body came under this id before; run the first if this one is genuine, else the second"
            }
            HeldReason::Restored => {
                "it may have run after the state that was put back; check, then run one of these"
            }
            HeldReason::Cancelled => {
                "its command was cancelled while it ran; check what it did, then run one of these"
            }
            HeldReason::HandlerGone => {
                "its handler is not configured any more; configure it again and run the first, or give it up with the second"
            }
            HeldReason::ConditionFailed => {
                "its handler's condition could not be decided; correct `when`, reload, and run the first, which decides again"
            }
            HeldReason::PayloadUnreadable => {
                "its payload was read twice in vain; see the log and `hooklatch doctor`, and run the first, which reads it again"
            }
            HeldReason::PayloadDamaged => {
                "its payload is not what was accepted; have the provider send the event again, or drop it"
            }
            HeldReason::ValueRefused => {
                "a value of the event is not what the handler takes; correct `values`, reload, and run the first, or drop it"
            }
        };
    }
    match reason.parse() {
        Ok(DeadReason::Rejected) => {
            "its handler rejected it for good; fix the cause and replay it, or drop it"
        }
        Ok(DeadReason::Exhausted) => {
            "its last attempt failed; fix the cause and replay it, or drop it"
        }
        Ok(DeadReason::PayloadGone) => "its payload is deleted, so it cannot run again",
        Ok(DeadReason::Resolved) => "it was resolved as failed; run it again anyway, or drop it",
        Err(_) => "",
    }
}

/// The commands that settle a job of this reason, the likeliest first.
pub(super) fn ways(reason: &str, job: Option<JobId>, suffix: &str) -> Vec<String> {
    let job = job.map_or("JOB".to_owned(), |job| job.to_string());
    let replay = format!("hooklatch replay --job {job}{suffix}");
    let drop = format!("hooklatch drop {job}{suffix}");
    let resolve = |how| format!("hooklatch resolve {job} --{how}{suffix}");
    let looked_at = [HeldReason::UnknownOutcome, HeldReason::Restored, HeldReason::Cancelled];
    if looked_at.iter().any(|held| held.as_str() == reason) {
        return vec![resolve("succeeded"), replay, resolve("failed")];
    }
    match reason == DeadReason::PayloadGone.as_str() {
        true => vec![drop],
        false => vec![replay, drop],
    }
}
