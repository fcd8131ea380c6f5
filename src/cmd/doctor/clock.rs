//! Whether this machine's clock is kept right: signatures with a time are judged by it.

use crate::config::ShownSource;

use super::Finding;

const CHECK: &str = "clock";

/// `STA_UNSYNC` of adjtimex(2): nothing keeps the clock right.
const UNSYNCHRONISED: i32 = 0x0040;

/// What the kernel says of its clock, and which sources depend on it.
pub(super) fn synchronised(sources: &[ShownSource]) -> Finding {
    let strict = sources.iter().filter_map(|source| {
        Some(format!("{} allows {}", source.name, source.tolerance.as_ref()?))
    });
    let strict: Vec<_> = strict.collect();
    judge(status(), &strict.join(", "))
}

fn judge(status: Option<i32>, strict: &str) -> Finding {
    let Some(status) = status else {
        return Finding::unknown(CHECK, "the kernel does not say whether it is synchronised");
    };
    if status & UNSYNCHRONISED == 0 {
        return Finding::ok(CHECK, "synchronised");
    }
    let fix = "timedatectl set-ntp true";
    if strict.is_empty() {
        return Finding::unwise(CHECK, "not synchronised: times in listings may be wrong", fix);
    }
    let seen = format!("not synchronised; once it is off, good deliveries are refused ({strict})");
    Finding::unwise(CHECK, seen, fix)
}

/// The kernel's clock status; none where it does not tell.
#[allow(unsafe_code)]
fn status() -> Option<i32> {
    // SAFETY: all zeroes is a value of this plain struct; with no mode set the call only fills it in.
    let (state, told) = unsafe {
        let mut told: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut told), told)
    };
    (state >= 0).then_some(told.status)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Verdict;
    use super::*;

    #[test]
    fn an_unkept_clock_is_told_with_the_sources_that_depend_on_it() {
        assert_eq!(judge(Some(0), "shop allows 5min").verdict, Verdict::Ok);
        assert_eq!(judge(None, "").verdict, Verdict::Unknown);
        let found = judge(Some(UNSYNCHRONISED), "shop allows 5min");
        assert_eq!(found.verdict, Verdict::Unwise);
        assert!(found.seen.contains("shop allows 5min"), "{}", found.seen);
        assert_eq!(found.fix.unwrap(), "timedatectl set-ntp true");
    }

    #[test]
    fn the_kernel_answers() {
        assert!(status().is_some());
    }
}
