//! Removes the runner's protection from the out-of-memory killer from its commands.
//!
//! The unit protects the runner (`OOMScoreAdjust=`), because all commands are lost with it, and its commands
//! inherit that: the killer would choose a command that takes all memory last. Must stay true: nothing is
//! changed if the runner is not protected.

use std::fs;
use std::sync::OnceLock;

use rustix::process::Pid;

/// Lets the killer choose this child like any other process. A process that the child has started before this,
/// some microseconds after its own start, stays protected; so does a program of another user (setuid).
pub(super) fn give_back(pid: Pid) {
    static PROTECTED: OnceLock<bool> = OnceLock::new();
    if *PROTECTED.get_or_init(is_protected) {
        let file = format!("/proc/{}/oom_score_adj", pid.as_raw_pid());
        if let Err(error) = fs::write(&file, "0") {
            tracing::debug!(file, %error, "a command stays protected when memory runs out");
        }
    }
}

/// Whether the killer is less likely to choose this process than by its memory alone
/// (proc_pid_oom_score_adj(5)).
fn is_protected() -> bool {
    let own = fs::read_to_string("/proc/self/oom_score_adj");
    own.ok().and_then(|text| text.trim().parse::<i32>().ok()).is_some_and(|own| own < 0)
}
