//! The parameters of a run of the model: the rules that are on, the possible faults, and the policy.

/// The rules of the cluster, each with a switch. If a rule is off, the model does what an implementation without that
/// rule would do.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// N2: a receiver that has lost its connection registers a new session. Off: it reads the list and goes on in its
    /// old session.
    pub(crate) registers: bool,
    /// N2: the list is read in the transaction that registers, behind the lock. Off: in a transaction before it.
    pub(crate) list_behind_lock: bool,
    /// N2: sessions are random. Off: they are counted, so that a failover gives one twice.
    pub(crate) random_sessions: bool,
    /// N3: a transaction fails where its session is not that of its node's row. Off: it commits.
    pub(crate) fence: bool,
    /// N4: a warning during the flight makes its outcome unknown. Off: an answered flight is committed.
    pub(crate) warning: bool,
    /// N4: so do names of standbys that are empty behind COMMIT. Off: nothing looks.
    pub(crate) names_behind_commit: bool,
    /// N4: so does a configuration that was loaded again during the flight. Off: names that were emptied and set again
    /// before the look pass.
    pub(crate) loaded_behind_commit: bool,
    /// N4: so does a lost connection. Off: a flight that was sent counts as committed.
    pub(crate) lost_answer: bool,
    /// N5: a duplicate is answered after a commit that wrote to the log. Off: after the read.
    pub(crate) commit_before_answer: bool,
    /// N10: what a handler gets is read in the session's history. Off: on any server that takes writes.
    pub(crate) bound: bool,
    /// N15: a node claims no job of which its runner lists an attempt. Off: neither node nor runner looks.
    pub(crate) claims_unlisted: bool,
    /// N16: a node judges its own rows. Off: all rows.
    pub(crate) own_rows: bool,
    /// N16: an attempt that never started is settled as such after registering. Off: nothing is done.
    pub(crate) put_back: bool,
    /// N16: what a receiver has claimed and not begun is begun after registering only if the list has it. Off: always.
    pub(crate) only_if_listed: bool,
    /// N16: from the sending of a registration to its answer, a node begins nothing. Off: it begins its claims.
    pub(crate) begins_registered: bool,
    /// N18: a completion names the claimant. Off: job and attempt.
    pub(crate) claimant: bool,
    /// N18: the acknowledgement follows the commit. Off: it is sent with the completion.
    pub(crate) ack_after_commit: bool,
    /// N22: a person declares a node lost. Off: the silence of its connection does.
    pub(crate) person: bool,
    /// N25: each node keeps the marks that it has seen, and smaller ones hold every unfinished job. Off: jobs go on.
    pub(crate) marks: bool,
    /// N26: a commit waits for the standby that is promoted. Off: it does not wait.
    pub(crate) standby_waits: bool,
    /// N27: where commits do not wait, a new timeline holds every unfinished job. Off: jobs go on.
    pub(crate) restored: bool,
    /// N40: a held job is replayed once each node has registered in this history and lists no attempt of it. Off: at
    /// once.
    pub(crate) roll_call: bool,
    /// N40: a declaration of an earlier history counts for nothing. Off: the node is lost still.
    pub(crate) declared_again: bool,
}

impl Rules {
    pub(crate) const ALL: Rules = Rules {
        registers: true,
        list_behind_lock: true,
        random_sessions: true,
        fence: true,
        warning: true,
        names_behind_commit: true,
        loaded_behind_commit: true,
        lost_answer: true,
        commit_before_answer: true,
        bound: true,
        claims_unlisted: true,
        own_rows: true,
        put_back: true,
        only_if_listed: true,
        begins_registered: true,
        claimant: true,
        ack_after_commit: true,
        person: true,
        marks: true,
        standby_waits: true,
        restored: true,
        roll_call: true,
        declared_again: true,
    };

    /// A cluster whose commits do not wait for a standby.
    pub(crate) const ASYNCHRONOUS: Rules = Rules { standby_waits: false, ..Rules::ALL };
}

/// How often each fault may still happen in a run, and how often the event is still delivered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Faults {
    pub(crate) deliveries: u8,
    /// A connection to the database ends; the server may still execute a flight that was sent on it.
    pub(crate) lost_connections: u8,
    /// A commit stops waiting for its standby: cancelled, its backend ended, or the names emptied.
    pub(crate) broken_waits: u8,
    pub(crate) receiver_kills: u8,
    /// A node's machine starts again.
    pub(crate) power_cuts: u8,
    /// A node is cut off from the database for a time.
    pub(crate) partitions: u8,
    /// The standby takes the place of the primary.
    pub(crate) failovers: u8,
    /// The old primary is up again beside the new one, and takes writes.
    pub(crate) returns: u8,
    /// A copy of the running server's data is made, and later put back on the same timeline.
    pub(crate) copies: u8,
    /// `node lost`, whether or not it is true.
    pub(crate) declarations: u8,
    pub(crate) replays: u8,
}

/// What happens after an unknown outcome: the handler's `on_unknown`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Hold,
    Rerun,
}
