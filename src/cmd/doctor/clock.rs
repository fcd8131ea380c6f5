//! Checks that this machine's clock is synchronised: a wrong clock makes the receiver refuse signatures
//! that include a time.

use crate::config::duration_text;

use super::finding::Finding;
use super::machine::Machine;

/// `STA_UNSYNC` of adjtimex(2): the clock is not synchronised.
const UNSYNCHRONISED: i32 = 0x0040;

pub(super) fn check(machine: &Machine<'_>) -> Vec<Finding> {
    let strict = machine.config.sources.iter().filter_map(|source| {
        let tolerance = duration_text(source.scheme.proof().tolerance()?);
        Some(format!("{} allows {tolerance}", source.name))
    });
    vec![judge(status(), &strict.collect::<Vec<_>>().join(", "))]
}

/// `strict` lists the sources that depend on the clock, with their tolerances.
pub(super) fn judge(status: Option<i32>, strict: &str) -> Finding {
    let fix = "timedatectl set-ntp true";
    match status {
        None => Finding::unknown("the kernel does not say whether it is synchronised"),
        Some(status) if status & UNSYNCHRONISED == 0 => Finding::ok("synchronised"),
        Some(_) if strict.is_empty() => {
            Finding::unwise("not synchronised: times in listings may be wrong", fix)
        }
        Some(_) => Finding::unwise(
            format!("not synchronised; once it is off, good deliveries are refused ({strict})"),
            fix,
        ),
    }
}

/// The kernel's clock status; `None` if the kernel does not report one.
#[allow(unsafe_code)]
pub(super) fn status() -> Option<i32> {
    // SAFETY: all zeroes is a valid value of this plain struct; without a mode the call only reads the
    // clock and fills the struct.
    let (state, clock) = unsafe {
        let mut clock: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut clock), clock)
    };
    (state >= 0).then_some(clock.status)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn an_unsynchronised_clock_names_the_sources_that_depend_on_it() {
        assert_eq!(judge(Some(0), "shop allows 5min").verdict, Verdict::Ok);
        assert_eq!(judge(None, "").verdict, Verdict::Unknown);
        let found = judge(Some(UNSYNCHRONISED), "shop allows 5min");
        assert_eq!(found.verdict, Verdict::Unwise);
        assert!(found.seen.contains("shop allows 5min"), "{}", found.seen);
        assert_eq!(found.fix.unwrap(), "timedatectl set-ntp true");
    }

    #[test]
    fn the_kernel_reports_its_clock_status() {
        assert!(status().is_some());
    }
}
