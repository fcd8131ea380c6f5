//! Checks that this machine's clock is synchronised: a wrong clock makes the receiver refuse signatures
//! that include a time.

use std::time::Duration;

use crate::config::duration_text;

use super::finding::Finding;
use super::machine::Machine;

/// `STA_UNSYNC` of adjtimex(2): the clock is not synchronised.
const UNSYNCHRONISED: i32 = 0x0040;

/// An error is near a tolerance from this part of it on: the sender's clock and the way take some of it too.
const NEAR: u32 = 4;

/// What the kernel says of its clock (adjtimex(2)).
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    is_synchronised: bool,
    /// The most that it may be off (`maxerror`). The kernel counts up to 16 s.
    error: Duration,
}

pub(super) fn check(machine: &Machine<'_>) -> Vec<Finding> {
    let strict: Vec<(Duration, String)> = machine
        .config
        .sources
        .iter()
        .filter_map(|source| {
            // The shorter of both directions.
            let ahead = source.scheme.proof().tolerance_ahead()?;
            Some((ahead, format!("{} allows {}", source.name, duration_text(ahead))))
        })
        .collect();
    vec![judge(read(), &strict)]
}

/// `strict` lists the sources that depend on the clock, each with the shorter of its two tolerances.
pub(super) fn judge(clock: Option<Clock>, strict: &[(Duration, String)]) -> Finding {
    let fix = "timedatectl set-ntp true";
    let Some(clock) = clock else {
        return Finding::unknown("the kernel does not say whether it is synchronised");
    };
    let texts = |all: &[&(Duration, String)]| {
        all.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ")
    };
    let near: Vec<_> = strict.iter().filter(|(most, _)| clock.error * NEAR >= *most).collect();
    match clock.is_synchronised {
        false if strict.is_empty() => {
            Finding::unwise("not synchronised: times in listings may be wrong", fix)
        }
        false => {
            let strict = texts(&strict.iter().collect::<Vec<_>>());
            Finding::unwise(
                format!("not synchronised; once it is off, good deliveries are refused ({strict})"),
                fix,
            )
        }
        true if !near.is_empty() => {
            let (error, near) = (clock.error.as_secs_f64(), texts(&near));
            Finding::unwise(
                format!(
                    "it may be off by {error:.1} s, and good deliveries are refused soon ({near})"
                ),
                "look at the time server: timedatectl timesync-status, or chronyc tracking",
            )
        }
        true => Finding::ok("synchronised"),
    }
}

/// The kernel's clock; `None` if the kernel does not report one.
#[allow(unsafe_code)]
pub(super) fn read() -> Option<Clock> {
    // SAFETY: all zeroes is a valid value of this plain struct; without a mode the call only reads the
    // clock and fills the struct.
    let (state, clock) = unsafe {
        let mut clock: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut clock), clock)
    };
    let error = Duration::from_micros(u64::try_from(clock.maxerror).unwrap_or(0));
    let is_synchronised = clock.status & UNSYNCHRONISED == 0;
    (state >= 0).then_some(Clock { is_synchronised, error })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_clock_that_may_be_off_names_the_sources_that_depend_on_it() {
        let minute = Duration::from_secs(60);
        let strict =
            [(minute, "push allows 1min".to_owned()), (5 * minute, "shop allows 5min".to_owned())];
        let clock = |is_synchronised, millis| {
            Some(Clock { is_synchronised, error: Duration::from_millis(millis) })
        };
        assert_eq!(judge(None, &[]).verdict, Verdict::Unknown);
        for (clock, strict, seen) in [
            (clock(true, 900), &strict[..], None),
            (clock(true, 14_999), &strict, None),
            (clock(true, 16_000), &[], None),
            (
                clock(true, 15_000),
                &strict,
                Some("off by 15.0 s, and good deliveries are refused soon (push allows 1min)"),
            ),
            (clock(true, 75_000), &strict, Some("soon (push allows 1min, shop allows 5min)")),
            (clock(false, 900), &strict, Some("refused (push allows 1min, shop allows 5min)")),
            (clock(false, 900), &[], Some("times in listings")),
        ] {
            let found = judge(clock, strict);
            let expected = if seen.is_some() { Verdict::Unwise } else { Verdict::Ok };
            assert_eq!(found.verdict, expected, "{}", found.seen);
            assert!(found.seen.contains(seen.unwrap_or("synchronised")), "{}", found.seen);
            assert_eq!(found.fix.is_some(), seen.is_some());
        }
    }

    #[test]
    fn the_kernel_reports_its_clock() {
        assert!(read().is_some());
    }
}
