//! Ends and claims that come together share one transaction: what an end frees is claimed with it.

use std::collections::BTreeMap;

use crate::store::border::Refused;

use super::claim::{NodeClaims, SentClaim, lock_lane, read_paces, send_paces, uuid};
use super::complete::{EndFacts, EndResult, note};
use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Session};
use super::live::LiveAttempts;
use super::notices::NodeNotices;
use super::request::{Request, Tried};
use super::stop::limit_lock_wait;

/// What became of the ends and the claim of one call.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// What became of each end, in their order.
    pub ended: Vec<Result<EndResult, Refused>>,
    /// Where it is not known what the claim has taken, the next registration settles that as not started.
    pub claims: Result<NodeClaims, Refused>,
}

/// One transaction for all requests, of which each handler has one claim. For each what was done, if it is committed.
pub(super) async fn exchange(
    connection: Connection,
    session: &Session,
    live: &LiveAttempts,
    notices: &NodeNotices,
    requests: &[Request],
) -> (FlightOutcome, Vec<Option<Tried>>) {
    let mut flight = Flight::begin(connection, session).await;
    limit_lock_wait(&mut flight).await;
    let (mut ends, mut claims, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for request in requests {
        match request {
            Request::End(end, _) => ends.push(end),
            Request::Claim(claim, start, _) => {
                claims.push(claim);
                starts.push(*start);
            }
            _ => {}
        }
    }
    let mut lanes = claims.clone();
    lanes.sort_by_key(|claim| &claim.handler);
    let mut locks = BTreeMap::new();
    for claim in lanes {
        locks.insert(&claim.handler, lock_lane(&mut flight, claim).await);
    }
    let paces = send_paces(&mut flight, &claims).await;
    let mut sent_ends = Vec::new();
    if !ends.is_empty() {
        let jobs = ends.iter().map(|end| uuid(&end.end.done.job)).collect();
        let Some(facts) = EndFacts::lock(&mut flight, jobs).await else {
            return (flight.roll_back().await, Vec::new());
        };
        sent_ends = facts.settle(&mut flight, session.node, &ends, false).await;
    }
    let paces = match paces {
        Some(number) => read_paces(flight.rows(number).await.unwrap_or_default(), &claims),
        None => BTreeMap::new(),
    };
    // Behind the ends: what they put back or make room for is claimed with them.
    let ending = ends.iter().map(|end| (end.end.done.job, end.end.done.attempt)).collect();
    let mut sent_claims = Vec::new();
    for (claim, start) in claims.into_iter().zip(starts) {
        let taken = live.taken(&claim.handler, &ending);
        let pace = paces.get(&claim.handler).copied();
        let lock = locks.get(&claim.handler).copied().flatten();
        if let Some(lock) = lock
            && flight.rows(lock).await.is_some_and(|rows| !rows.is_empty())
        {
            sent_claims.push(None);
            continue;
        }
        let sent = SentClaim::send(claim, start, pace, taken, &mut flight, session).await;
        sent_claims.push(Some(sent));
    }
    for claim in sent_claims.iter_mut().flatten() {
        claim.take_shares(&mut flight).await;
    }
    note(&mut flight, &sent_ends, notices).await;
    let outcome = flight.commit().await;
    let FlightOutcome::Committed(_, rows) = &outcome else { return (outcome, Vec::new()) };
    let (mut ended, mut claimed) = (sent_ends.iter(), sent_claims.iter());
    let done = requests.iter().map(|request| match request {
        Request::End(end, _) => ended.next().map(|sent| {
            let makes_room =
                live.remove_ended((end.end.done.job, end.end.done.attempt), end.end.claimant);
            let result = sent.read(rows.get(sent.statement).map_or(&[], Vec::as_slice));
            Tried::Ended(result, sent.concerns_others || makes_room)
        }),
        _ => claimed.next().map(|sent| {
            let Some(sent) = sent else { return Tried::Claimed(NodeClaims::locked_out()) };
            let claims = sent.read(rows);
            let is_limited = sent.claim.cluster_concurrency.is_some();
            let number = live.add_claim(&claims.attempts, is_limited);
            Tried::Claimed(NodeClaims { number, ..claims })
        }),
    });
    let done = done.collect();
    (outcome, done)
}
