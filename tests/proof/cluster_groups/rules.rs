//! The parameters of a run of the model: the rules that are on, and the possible faults.

/// The rules of groups in a cluster, each with a switch. If a rule is off, the model does what an implementation
/// without that rule would do.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// N35: an accept locks the row of its group.
    pub(crate) accept_locks: bool,
    /// N35: so does a completion.
    pub(crate) end_locks: bool,
    /// N35: so does what an operator, a redelivery or retention moves.
    pub(crate) move_locks: bool,
    /// N35: so does a declaration.
    pub(crate) lost_locks: bool,
    /// Not a rule: a claim locks the row of its group too.
    pub(crate) claim_locks: bool,
    /// N36: a transaction decides in statements that begin behind the lock. Off: by the snapshot from before it waited.
    pub(crate) decides_behind_lock: bool,
    /// N36: it decides on rows of jobs that it has locked, too. Off: a claim may come between.
    pub(crate) decides_behind_rows: bool,
    /// N36: a unique index lets one job hold a group, and a transaction that meets it starts again.
    pub(crate) index: bool,
    /// N37: an event takes its number behind the locks of its groups. Off: as the transaction begins.
    pub(crate) number_behind_lock: bool,
    /// N37: numbers come one by one. Off: each connection takes them in twos.
    pub(crate) no_cache: bool,
    /// N38: a claim asks its own row, whether it is behind. Off: it takes the oldest job whose row is not locked,
    /// if no job of the group runs.
    pub(crate) own_row: bool,
    /// N39: a node claims no job of a group of which its runner lists an attempt. Off: of which it lists one of the job.
    pub(crate) none_of_group: bool,
    /// N40: after a failover that may have lost commits, a group's jobs are claimed once no node lists an attempt of the
    /// old history. Off: at once.
    pub(crate) roll_call: bool,
}

impl Rules {
    pub(crate) const ALL: Rules = Rules {
        accept_locks: true,
        end_locks: true,
        move_locks: true,
        lost_locks: true,
        claim_locks: false,
        decides_behind_lock: true,
        decides_behind_rows: true,
        index: true,
        number_behind_lock: true,
        no_cache: true,
        own_row: true,
        none_of_group: true,
        roll_call: true,
    };
}

/// How often each fault may still happen in a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Faults {
    /// A transaction is lost before its COMMIT.
    pub(crate) aborts: u8,
    /// `node lost` while the node lives.
    pub(crate) declarations: u8,
    /// A standby that may lack the last commits takes the place of the primary.
    pub(crate) failovers: u8,
}
