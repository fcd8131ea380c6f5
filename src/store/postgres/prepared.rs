//! A delivery on its way into the store: what is known of it before a transaction, and of its last try.

use uuid::Uuid;

use crate::model::{Digest, EventId, HeldReason, Name, ReplayGuard, Timestamp};
use crate::store::border::{Accept, Accepted};
use crate::store::decide::delivery::{Twins, is_before_restore};

/// An event in its stored form.
pub(super) struct NewEvent {
    pub(super) new: Accept,
    /// The headers, as HTTP writes them.
    pub(super) headers: Vec<u8>,
    /// The body, compressed with zstd.
    pub(super) body: Vec<u8>,
    /// The sum of the payload without its time of arrival: the database adds the one that it stores.
    pub(super) sum: i64,
    /// The ids of `new.jobs`. They stay the same in each try.
    pub(super) job_ids: Vec<Uuid>,
    /// The quarantine has kept the delivery.
    pub(super) kept: bool,
    /// The last try, if it is not known whether it is committed.
    pub(super) doubt: Option<Try>,
}

/// What a transaction does with a delivery.
#[derive(Clone)]
pub(super) struct Try {
    pub(super) answer: Accepted,
    /// The dead jobs that it put back, each with its last attempt.
    pub(super) put_back: Vec<(Uuid, i64)>,
}

/// The variant, the marks and the row number with which an event is stored.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) variant: i64,
    pub(super) repeated: bool,
    pub(super) held: Option<HeldReason>,
    pub(super) flagged: bool,
    /// Its row number, if it has taken one.
    pub(super) number: Option<i64>,
    /// The order of insertion.
    pub(super) place: usize,
}

impl Form {
    /// Returns the form of an event whose id and body are new.
    pub(super) fn first(place: usize) -> Self {
        Form { variant: 0, repeated: false, held: None, flagged: false, number: None, place }
    }
}

impl NewEvent {
    pub(super) fn source(&self) -> &Name {
        &self.new.source
    }

    pub(super) fn id(&self) -> &EventId {
        self.new.delivery.event_id()
    }

    pub(super) fn raw_type(&self) -> Option<Vec<u8>> {
        self.new.delivery.event_type().raw().map(|raw| raw.as_bytes().to_vec())
    }

    pub(super) fn guarded(&self) -> bool {
        self.new.delivery.guard() != ReplayGuard::Off
    }

    pub(super) fn digest(&self) -> Digest {
        self.new.delivery.digest()
    }

    /// Why its jobs are held where the database was restored after it was signed.
    pub(super) fn held_of_restore(&self, restored_at: Option<Timestamp>) -> Option<HeldReason> {
        is_before_restore(&self.new.delivery, restored_at).then_some(HeldReason::Restored)
    }

    pub(super) fn created(&self, form: Form, twins: &Twins) -> Accepted {
        let jobs = twins.made(&self.new.jobs).count();
        Accepted::Created { jobs, held: form.held, flagged: form.flagged }
    }
}
