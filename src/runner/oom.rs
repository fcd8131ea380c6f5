//! Gives commands back what the runner's unit takes from the out-of-memory killer.
//!
//! The unit protects the runner, since all commands are lost with it (`OOMScoreAdjust=`), and what it
//! starts inherits that: a command that takes all memory would then be the last to be killed. What must
//! stay true: where nobody has protected the runner nothing is touched.

use std::fs;
use std::sync::OnceLock;

/// Lets the killer choose this child like any other process. A child that has started another one before
/// this, some microseconds after its own start, leaves that one protected; a program of another user's
/// (setuid) stays so too.
pub(super) fn give_back(pid: u32) {
    static PROTECTED: OnceLock<bool> = OnceLock::new();
    if *PROTECTED.get_or_init(is_protected) {
        let file = format!("/proc/{pid}/oom_score_adj");
        if let Err(error) = fs::write(&file, "0") {
            tracing::debug!(file, %error, "a command stays protected when memory runs out");
        }
    }
}

/// Whether this process is less likely to be chosen than by its memory alone (proc_pid_oom_score_adj(5)).
fn is_protected() -> bool {
    let own = fs::read_to_string("/proc/self/oom_score_adj");
    own.ok().and_then(|text| text.trim().parse::<i32>().ok()).is_some_and(|own| own < 0)
}
