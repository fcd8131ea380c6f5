//! ACCEPT of a kept delivery: its events, and its row of the audit list, in one transaction.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::{AuditVerb, Timestamp};
use crate::store::border::{
    Accept, Accepted, AuditPlace, AuditSubject, Caller, DONE, Error, Refused,
};

use super::super::accept::{Request, store};
use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::new_event::groups;
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::{Stop, change_one};
use super::audit::write;
use super::change::Change;

/// One more, of a change that takes several transactions.
const COUNT_ONE: &str = "UPDATE audit SET count = count + 1 WHERE row = $1 RETURNING row";

impl Admin {
    /// ACCEPT of the events of a kept delivery, with its row of the audit list, in one transaction: one more in the row
    /// of an earlier delivery, or a new row. Returns its place. After [`Refused::Unconfirmed`] the same delivery is
    /// stored or found.
    pub async fn accept_kept(
        &self,
        new: Vec<Accept>,
        subject: &AuditSubject,
        row: Option<AuditPlace>,
    ) -> Result<(Vec<Accepted>, AuditPlace), Refused> {
        let (mut request, _) = Request::new(new, Instant::now()).await?;
        request.events.iter_mut().for_each(|event| event.kept = true);
        let (caller, subject) = (Arc::clone(&self.caller), subject.clone());
        let kept = KeptDelivery { request, caller, subject, row, notices: self.notices() };
        self.changer.make(kept).await.map_err(|error| match error {
            Error::Unconfirmed(why) => Refused::Unconfirmed(why),
            error => Refused::Failed(error.to_string()),
        })
    }
}

struct KeptDelivery {
    request: Request,
    caller: Arc<Caller>,
    subject: AuditSubject,
    row: Option<AuditPlace>,
    notices: NodeNotices,
}

impl Change for KeptDelivery {
    type Done = (Vec<Accepted>, AuditPlace);

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<Self::Done, Stop> {
        let mut groups = groups(self.request.events.iter());
        flight.run("SAVEPOINT before");
        let tries = loop {
            match store(flight, &[&self.request], &groups, &self.notices).await {
                // Groups are locked first, so once more from the beginning, without the locks of this try.
                Err(Stop::Unlocked(handler, key)) => {
                    flight.run("ROLLBACK TO before");
                    groups.insert((handler, key));
                }
                tries => break tries?,
            }
        };
        let place = match self.row {
            Some(place) => change_one(flight, COUNT_ONE, params![place.0]).await.map(|()| place)?,
            None => {
                let change = (AuditVerb::QuarantineAccept, &self.subject, 1);
                write(flight, &self.caller, change, DONE, Duration::ZERO).await?
            }
        };
        let tries = tries.into_iter().flatten().flatten();
        Ok((tries.map(|tried| tried.answer).collect(), place))
    }
}
