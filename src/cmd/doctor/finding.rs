//! What a check finds, and how bad that is.

use serde::Serialize;

use crate::document::Problem;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// No problem was found.
    Ok,
    /// The check was not possible.
    Unknown,
    /// It works now, but can cause harm later.
    Unwise,
    /// It breaks a promise, or makes every delivery of a source fail.
    Bad,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The name of the check, which `run` sets.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    /// What the check found, as a lower-case fragment.
    pub(super) seen: String,
    /// The command or the line that fixes it.
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn new(verdict: Verdict, seen: impl Into<String>, fix: Option<String>) -> Self {
        let seen = seen.into();
        Finding { check: "", verdict, seen, fix }
    }

    pub(super) fn ok(seen: impl Into<String>) -> Self {
        Finding::new(Verdict::Ok, seen, None)
    }

    pub(super) fn unknown(seen: impl Into<String>) -> Self {
        Finding::new(Verdict::Unknown, seen, None)
    }

    pub(super) fn unwise(seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding::new(Verdict::Unwise, seen, Some(fix.into()))
    }

    pub(super) fn bad(seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding::new(Verdict::Bad, seen, Some(fix.into()))
    }

    /// The finding for a problem of the configuration.
    pub(super) fn of(problem: &Problem, verdict: Verdict) -> Self {
        let mut seen = problem.file.clone();
        if problem.line > 0 {
            seen += &format!(":{}", problem.line);
        }
        if !problem.key.is_empty() {
            seen += &format!(": {}", problem.key);
        }
        Finding::new(verdict, format!("{seen}: {}", problem.message), problem.help.clone())
    }
}
