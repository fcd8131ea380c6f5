//! What a run of the model is given: the rules that hold, the faults that may happen, the policy.

/// The rules of `docs/protocol.md`-numbering, each a switch. A rule that is off is replaced by what
/// the code would naturally do without it.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// R1: one receiver per store. Off: a second may start beside the first.
    pub(crate) one_receiver: bool,
    /// R2: one runner per store. Off: an upgrade starts the new one beside the draining one.
    pub(crate) one_runner: bool,
    /// R2: a draining runner is reachable. Off: it refuses connections.
    pub(crate) drains_reachable: bool,
    /// R3: a Hello of a higher or equal epoch cuts every other connection, a lower one is refused.
    pub(crate) epoch: bool,
    /// R4: recover is committed before the first claim. Off: claims need only HelloOK.
    pub(crate) recover_first: bool,
    /// R5: the claim records the incarnation, Start repeats it. Off: it is recorded at Started.
    pub(crate) incarnation: bool,
    /// R6: another incarnation is no proof of death. Off: it is.
    pub(crate) proof_of_death: bool,
    /// R6: nor is the runner's death, while its children live. Off: it is.
    pub(crate) children_gone: bool,
    /// R7: the next runner reads the dead one's ledger. Off: there is none.
    pub(crate) ledger: bool,
    /// R9: Ack after the commit. Off: as soon as the outcome is read.
    pub(crate) ack_after_commit: bool,
    /// R11: only the runner ends an attempt. Off: the receiver's timer does.
    pub(crate) runner_ends: bool,
}

impl Rules {
    pub(crate) const ALL: Rules = Rules {
        one_receiver: true,
        one_runner: true,
        drains_reachable: true,
        epoch: true,
        recover_first: true,
        incarnation: true,
        proof_of_death: true,
        children_gone: true,
        ledger: true,
        ack_after_commit: true,
        runner_ends: true,
    };
}

/// How often each thing that nobody wishes for may still happen in a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    pub(crate) receiver_kills: u8,
    pub(crate) runner_kills: u8,
    pub(crate) power_cuts: u8,
    /// A runner told to drain, or to execute itself again in place.
    pub(crate) runner_stops: u8,
    /// Connections closed by the receiver with bytes still unread by the runner.
    pub(crate) lost_connections: u8,
    /// Replay, resolve and drop.
    pub(crate) operator: u8,
    /// A second receiver started beside the first; matters only without R1.
    pub(crate) second_receivers: u8,
}

/// What is done about an unknown outcome: the handler's `on_unknown`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Hold,
    Rerun,
}
