//! A request to the writer: it is answered once, with what a committed transaction did, or with why there is none.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::model::Name;
use crate::store::border::{Accepted, Claim, Refused};

use super::accept;
use super::answer;
use super::claim::NodeClaims;
use super::claim_start::ClaimStart;
use super::complete::{EndResult, PreparedEnd};
use super::handlers::PublishedHandler;
use super::prepared::Try;
use super::remembered::Remembered;
use super::secret_use::SecretUses;

/// What an end or a claim takes in memory beside its outputs, roughly.
const REQUEST_BYTES: usize = 1024;

type Reply<T> = oneshot::Sender<Result<T, Refused>>;

pub(super) enum Request {
    Accept(accept::Request),
    Ask(answer::Request),
    End(PreparedEnd, Reply<EndResult>),
    Claim(Claim, ClaimStart, Reply<NodeClaims>),
    /// Replaces the published handlers, if there are others, and answers a roll call.
    Publish(Option<Vec<PublishedHandler>>, Reply<()>),
}

/// What a transaction does with a request.
pub(super) enum Tried {
    Accept(Vec<Try>),
    Ask(answer::Found),
    /// What became of the end, and whether other nodes may have something to do.
    Ended(EndResult, bool),
    Claimed(NodeClaims),
    Published,
}

impl Request {
    /// Its size in memory, which counts for the queue and for the batch.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Request::Accept(request) => request.bytes(),
            Request::Ask(request) => request.bytes(),
            Request::End(end, _) => end.bytes() + REQUEST_BYTES,
            Request::Claim(..) | Request::Publish(..) => REQUEST_BYTES,
        }
    }

    /// The caller's deadline. Ends, claims and publications have none.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Request::Accept(request) => Some(request.deadline),
            Request::Ask(request) => Some(request.deadline),
            _ => None,
        }
    }

    /// Why it must not be tried: its deadline has passed, or the caller of a claim does not wait for the attempts.
    pub(super) fn lapsed(&self, now: Instant, claims_ended: bool) -> Option<Refused> {
        match self {
            Request::Claim(_, _, reply) if claims_ended || reply.is_closed() => {
                Some(Refused::Stopping)
            }
            _ if self.deadline().is_some_and(|deadline| deadline <= now) => {
                Some(Refused::Unconfirmed("not stored in time".to_owned()))
            }
            _ => None,
        }
    }

    /// The handler of a claim.
    pub(super) fn claimed_handler(&self) -> Option<&Name> {
        match self {
            Request::Claim(claim, ..) => Some(&claim.handler),
            _ => None,
        }
    }

    /// Names the row that an end or a claim needs: its job or its lane.
    pub(super) fn contended_row(&self) -> Option<String> {
        match self {
            Request::End(end, _) => Some(end.end.done.job.to_string()),
            Request::Claim(claim, ..) => Some(claim.handler.to_string()),
            _ => None,
        }
    }

    // For all answers: the caller may be gone, and a commit stands all the same (H1).
    pub(super) fn refuse(self, why: Refused) {
        match self {
            Request::Accept(request) => request.refuse(why),
            Request::Ask(request) => request.refuse(why),
            Request::End(_, reply) => drop(reply.send(Err(why))),
            Request::Claim(_, _, reply) => drop(reply.send(Err(why))),
            Request::Publish(_, reply) => drop(reply.send(Err(why))),
        }
    }

    /// Refuses a request whose last try is not committed, and says whether an earlier try may be. An earlier try of an
    /// end may be if its connection `was_lost`.
    pub(super) fn fail(self, why: String, was_lost: bool) {
        let in_doubt = match &self {
            Request::Accept(request) => request.is_in_doubt(),
            Request::Ask(request) => request.in_doubt,
            Request::End(..) => was_lost,
            _ => false,
        };
        self.refuse(if in_doubt { Refused::Unconfirmed(why) } else { Refused::Failed(why) });
    }

    pub(super) fn committed(self, tried: Tried) {
        match (self, tried) {
            (Request::Accept(request), Tried::Accept(tries)) => request.committed(tries),
            (Request::Ask(request), Tried::Ask(found)) => request.committed(found),
            (Request::End(_, reply), Tried::Ended(result, _)) => drop(reply.send(Ok(result))),
            (Request::Claim(_, _, reply), Tried::Claimed(claims)) => drop(reply.send(Ok(claims))),
            (Request::Publish(_, reply), Tried::Published) => drop(reply.send(Ok(()))),
            // A transaction tries what it is given.
            (request, _) => request.refuse(Refused::Unconfirmed("no answer".to_owned())),
        }
    }

    /// Notes that it is not known whether it is committed.
    pub(super) fn doubt(&mut self, tried: Option<Tried>) {
        match (self, tried) {
            (Request::Accept(request), Some(Tried::Accept(tries))) => request.doubt(tries),
            (Request::Ask(request), Some(Tried::Ask(found))) => request.doubt(&found),
            _ => {}
        }
    }

    /// Notes the new events that are committed.
    pub(super) fn remember(&self, tried: &Tried, remembered: &mut Remembered) {
        match (self, tried) {
            (Request::Accept(request), Tried::Accept(tries)) => {
                let is_new = |tried: &Try| matches!(tried.answer, Accepted::Created { .. });
                let events = request.events.iter().zip(tries).filter(|(_, tried)| is_new(tried));
                events.for_each(|(event, _)| remembered.note(event.source(), event.id()));
            }
            (Request::Ask(request), Tried::Ask(answer::Found::Begun { again: false, .. })) => {
                request.remember(remembered);
            }
            _ => {}
        }
    }

    pub(super) fn note_secret(&self, secrets: &mut SecretUses, now: Duration) {
        match self {
            Request::Accept(request) => {
                for event in &request.events {
                    secrets.note(event.source(), &event.new.delivery, now);
                }
            }
            Request::Ask(request) => request.note_secret(secrets, now),
            _ => {}
        }
    }
}
