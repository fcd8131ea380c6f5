//! The parameters of a run of the model: what a group's jobs do to each other, which rules are off, and how often what
//! comes from outside may still happen.

/// What the jobs of a group do to each other, as `model::GroupRule`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum GroupRule {
    /// `order_by`; a dead job holds the group.
    #[default]
    Block,
    /// `order_by`; a dead job lets the next one run.
    StepOver,
    /// `coalesce_by`.
    Latest,
}

/// A rule of groups. If it is off, the model does what an implementation without it would do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// G0: a job that waits for its next attempt holds its group.
    WaitingHolds,
    /// G0: a held job holds its group, where events are ordered.
    HeldHolds,
    /// G0: a dead job holds its group under [`GroupRule::Block`].
    DeadHolds,
    /// G0: a suspected replay that no one has decided on holds no group.
    SuspectDoesNotHold,
    /// G0: a job that was resolved as failed holds no group: the operator has decided.
    ResolvedDoesNotHold,
    /// G1 for the job of a new event.
    BehindAtAccept,
    /// G1 for a job that is put back (replayed, by the operator or by a redelivery) or made later.
    BehindAtReplay,
    /// G1: only a job whose state holds is behind. Off: each job of a group that another one holds gets the flag, and
    /// keeps it when it leaves these states.
    OnlyHoldersAreBehind,
    /// G2 at the end of an attempt.
    NextAtEnd,
    /// G2 where the operator drops or resolves a job.
    NextAtOrder,
    /// G2 where a job is superseded by a new event (G4). A store that drops first and inserts then has this too.
    NextAtNewer,
    /// G2 where a job is superseded at the end of its attempt (G5).
    NextAtSupersededEnd,
    /// G2 where a job is moved without an attempt: no payload, no handler.
    NextAtFault,
    /// G2 where retention removes a job that holds its group.
    NextAtRetention,
    /// G2: the next one gets its turn only if no job holds the group. Off: also where one leaves that was behind.
    NextOnlyIfFree,
    /// G2: the next one is that of the oldest event. Off: of the newest.
    NextIsOldest,
    /// G3: a job that is behind is not claimed.
    ClaimsNoneBehind,
    /// G4: a new event supersedes the jobs that are ready or waiting.
    NewSupersedes,
    /// G4, G5: of a group whose handler was reloaded with another rule, only a job that was accepted under
    /// [`GroupRule::Latest`] is superseded.
    OwnRuleDecides,
    /// G5: an older job is superseded at the end of its attempt instead of being tried again.
    EndSupersedes,
    /// G6: a job supersedes only those of older events.
    OnlyOlderIsSuperseded,
    /// G6: a job that is held from the beginning supersedes none.
    HeldSupersedesNone,
    /// G6: a job that is put back supersedes none.
    ReplaySupersedesNone,
    /// G6: a duplicate supersedes none.
    DuplicateSupersedesNone,
    /// G7 for the operator's replay.
    ReplayIsRefused,
    /// G7 for a job that is made later.
    MakeIsRefused,
    /// G7 for a redelivery that puts a dead job back.
    RedeliveryIsRefused,
    /// G7: a newer job that has begun counts, whatever its state is now. Off: only one that holds the group.
    BegunCounts,
    /// G7: a newer job counts in each state that holds the group. Off: only one that is ready, waiting or running.
    HoldingCounts,
    /// G8: the newest event of which retention has removed a job that had begun is remembered, and G7 refuses what is
    /// older.
    RemovedIsRemembered,
    /// G9: retention keeps a job that holds its group.
    RetentionKeepsHolders,
}

/// How often each thing may still happen in a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Budget {
    /// New events, of whatever kind.
    pub(crate) events: u8,
    /// The events among them that are suspected replays, or whose condition cannot be decided.
    pub(crate) unsure: u8,
    /// The events among them that get no job at first.
    pub(crate) jobless: u8,
    /// Replay, drop, resolve, and jobs made later.
    pub(crate) operator: u8,
    /// Redeliveries that put a dead job back (`on_redelivery = "replay-dead"`).
    pub(crate) redeliveries: u8,
    /// Jobs that retention removes.
    pub(crate) removals: u8,
    /// A lost payload, a handler that left the configuration, a restored store.
    pub(crate) faults: u8,
    /// Reloads, each of which changes between the model's two rules.
    pub(crate) reloads: u8,
}
