//! The parameters of a run of the model: the rules that are on, the possible faults, and the policy.

/// The rules of the protocol, each with a switch. If a rule is off, the model does what an implementation
/// without that rule would do.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// R1: one receiver per store, by a lock that only death releases. Off: a second one may start.
    pub(crate) one_receiver: bool,
    /// R2: one runner per store; the old one drains and exits before the new one starts. Off: the new one
    /// starts while the old one drains, and the socket's path leads to the new one.
    pub(crate) one_runner: bool,
    /// R2: a draining runner accepts connections, lists, takes Ack. Off: it refuses connections.
    pub(crate) drains_reachable: bool,
    /// R3: a receiver commits epoch + 1 when it starts and sends it in Hello; the runner refuses a lower
    /// one, and closes every other connection before it makes its list. Off: neither.
    pub(crate) epoch: bool,
    /// R4: recover is committed before the first claim. Off: a claim needs no more than HelloOK.
    pub(crate) recover_first: bool,
    /// R5: the claim records the runner's incarnation, and Start repeats it. Off: neither; what is
    /// not listed by the runner that answers has not started.
    pub(crate) incarnation: bool,
    /// R6: another incarnation does not prove that the recorded one is dead. Off: it does.
    pub(crate) proof_of_death: bool,
    /// R6: a runner waits for the end of a dead runner's children before it reports their attempts. Off: it
    /// does not wait.
    pub(crate) children_gone: bool,
    /// R7: the ledger outlives the runner, and the next one answers from it. Off: there is none.
    pub(crate) ledger: bool,
    /// R9: Ack follows the commit of the outcome. Off: it is sent when the outcome is read.
    pub(crate) ack_after_commit: bool,
    /// R11: only the runner ends an attempt. Off: the receiver's own timer commits `timed_out`.
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

/// How often each fault may still happen in a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    pub(crate) receiver_kills: u8,
    pub(crate) runner_kills: u8,
    pub(crate) power_cuts: u8,
    /// A runner gets the signal to drain, or to re-execute itself in place.
    pub(crate) runner_stops: u8,
    /// Connections closed by the receiver with bytes still unread by the runner.
    pub(crate) lost_connections: u8,
    /// Replay, resolve and drop.
    pub(crate) operator: u8,
    /// A second receiver started beside the first; matters only without R1.
    pub(crate) second_receivers: u8,
}

/// What happens after an unknown outcome: the handler's `on_unknown`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Hold,
    Rerun,
}
