//! Ends and claims that come together share one transaction: what an end frees is claimed with it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::model::{JobId, Name};
use crate::store::border::{Claim, Refused};

use super::claim::{
    ClaimFlight, NodeClaims, lock_lane, needs_lane_alone, read_paces, send_paces, uuid,
};
use super::complete::{EndFacts, EndResult, PreparedEnd, note};
use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Session};
use super::live::LiveAttempts;
use super::operate::notice::NodeNotices;

/// What a request takes in memory beside its outputs, roughly.
const REQUEST_BYTES: usize = 1024;

/// Ends a wait for a lock, until the end of the transaction.
const LOCK_TIMEOUT: &str = "SELECT set_config('lock_timeout', $1, true)";

/// An end or a claim.
pub(super) enum Request {
    End(PreparedEnd, oneshot::Sender<Result<EndResult, Refused>>),
    Claim(Claim, oneshot::Sender<Result<NodeClaims, Refused>>),
}

impl Request {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Request::End(end, _) => end.bytes() + REQUEST_BYTES,
            Request::Claim(..) => REQUEST_BYTES,
        }
    }

    /// The job whose attempt ends.
    pub(super) fn ended_job(&self) -> Option<JobId> {
        match self {
            Request::End(end, _) => Some(end.end.done.job),
            Request::Claim(..) => None,
        }
    }

    // The caller may be gone; a commit stands all the same.
    pub(super) fn refuse(self, why: Refused) {
        match self {
            Request::End(_, answer) => drop(answer.send(Err(why))),
            Request::Claim(_, answer) => drop(answer.send(Err(why))),
        }
    }

    /// It is not known whether it is committed. An end is guarded and is sent again. A claim is refused: what it has
    /// taken is in the list of the next registration.
    pub(super) fn doubt(self) -> Option<Self> {
        match self {
            Request::End(..) => Some(self),
            Request::Claim(..) => {
                self.refuse(Refused::Unconfirmed("the claim was not answered".to_owned()));
                None
            }
        }
    }

    fn claim(&self) -> Option<&Claim> {
        match self {
            Request::End(..) => None,
            Request::Claim(claim, _) => Some(claim),
        }
    }
}

/// Plans transactions. A handler has one claim in each: the second one's share of a rate is known behind the first.
pub(super) fn plan(requests: Vec<Request>) -> Vec<Vec<Request>> {
    let mut planned: Vec<(HashSet<Name>, Vec<Request>)> = Vec::new();
    for request in requests {
        let handler = request.claim().map(|claim| claim.handler.clone());
        let is_free = |(claimed, _): &&mut (HashSet<Name>, _)| {
            handler.as_ref().is_none_or(|handler| !claimed.contains(handler))
        };
        match planned.iter_mut().find(is_free) {
            Some((claimed, requests)) => {
                claimed.extend(handler);
                requests.push(request);
            }
            None => planned.push((handler.into_iter().collect(), vec![request])),
        }
    }
    planned.into_iter().map(|(_, requests)| requests).collect()
}

/// What became of the ends and the claim of one call.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Of each end, in their order.
    pub ended: Vec<Result<EndResult, Refused>>,
    /// Where it is not known what the claim has taken, the next registration settles that as not started.
    pub claims: Result<NodeClaims, Refused>,
}

/// What a committed transaction has done, of each request in its order.
pub(super) struct Results {
    done: Vec<Done>,
    /// Other nodes may have something to do.
    pub(super) concerns_others: bool,
}

enum Done {
    Ended(EndResult),
    Claimed(NodeClaims),
}

/// One transaction for all requests. `patience`: how long it waits for a lock, if not as long as any other does.
pub(super) async fn exchange(
    connection: Connection,
    session: &Session,
    live: &LiveAttempts,
    notices: &NodeNotices,
    requests: &[Request],
    patience: Option<Duration>,
) -> (FlightOutcome, Option<Results>) {
    let mut flight = Flight::begin(connection, session).await;
    if let Some(patience) = patience {
        let millis = patience.as_millis().to_string();
        flight.send(LOCK_TIMEOUT, vec![Box::new(millis)]).await;
    }
    let claims: Vec<&Claim> = requests.iter().filter_map(Request::claim).collect();
    let mut ends: Vec<&PreparedEnd> = Vec::new();
    for request in requests {
        if let Request::End(end, _) = request {
            ends.push(end);
        }
    }
    let mut lanes: BTreeMap<&Name, bool> = BTreeMap::new();
    for claim in &claims {
        *lanes.entry(&claim.handler).or_default() |= needs_lane_alone(claim);
    }
    for (handler, alone) in lanes {
        lock_lane(&mut flight, handler, alone).await;
    }
    let paces = send_paces(&mut flight, &claims).await;
    let mut sent_ends = Vec::new();
    if !ends.is_empty() {
        let jobs = ends.iter().map(|end| uuid(&end.end.done.job)).collect();
        let Some(facts) = EndFacts::lock(&mut flight, jobs).await else {
            return (flight.roll_back().await, None);
        };
        sent_ends = facts.settle(&mut flight, &ends, false).await;
    }
    let paces = match paces {
        Some(number) => read_paces(flight.rows(number).await.unwrap_or_default(), &claims),
        None => BTreeMap::new(),
    };
    // Behind the ends: what they put back or make room for is claimed with them.
    let ending = ends.iter().map(|end| (end.end.done.job, end.end.done.attempt)).collect();
    let mut sent_claims = Vec::new();
    for claim in claims {
        let taken = live.taken(&claim.handler, &ending);
        let pace = paces.get(&claim.handler).copied();
        sent_claims.push(ClaimFlight::send(claim, pace, taken, &mut flight, session).await);
    }
    for claim in &mut sent_claims {
        claim.take_shares(&mut flight).await;
    }
    note(&mut flight, &sent_ends, notices).await;
    let outcome = flight.commit().await;
    let FlightOutcome::Committed(_, rows) = &outcome else { return (outcome, None) };
    let mut concerns_others = sent_ends.iter().any(|end| end.concerns_others);
    let (mut ended, mut claimed) = (sent_ends.iter(), sent_claims.iter());
    let mut done = Vec::with_capacity(requests.len());
    for request in requests {
        done.extend(match request {
            Request::End(end, _) => ended.next().map(|sent| {
                let key = (end.end.done.job, end.end.done.attempt);
                concerns_others |= live.ended(key, end.end.claimant);
                Done::Ended(sent.read(rows.get(sent.statement).map_or(&[], Vec::as_slice)))
            }),
            Request::Claim(..) => claimed.next().map(|sent| {
                let claims = sent.read(rows);
                let is_limited = sent.claim.cluster_concurrency.is_some();
                let number = live.claimed(&claims.attempts, is_limited);
                Done::Claimed(NodeClaims { number, ..claims })
            }),
        });
    }
    (outcome, Some(Results { done, concerns_others }))
}

impl Results {
    pub(super) fn answer(self, requests: Vec<Request>) {
        for (request, done) in requests.into_iter().zip(self.done) {
            match (request, done) {
                (Request::End(_, answer), Done::Ended(result)) => {
                    drop(answer.send(Ok(result)));
                }
                (Request::Claim(_, answer), Done::Claimed(claims)) => {
                    drop(answer.send(Ok(claims)));
                }
                _ => {}
            }
        }
    }
}
