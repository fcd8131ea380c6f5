//! Ends and claims that come together share one transaction: what an end frees is claimed with it.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use crate::model::{JobId, Name};
use crate::store::border::Refused;

use super::claim::{NodeClaim, NodeClaims, Sent};
use super::complete::{self, AttemptEnd, EndResult};
use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Session};

/// What a request takes in memory beside its outputs, roughly.
const REQUEST_BYTES: usize = 1024;

/// The result of an exchange that is committed.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Of each end, in their order.
    pub ended: Vec<EndResult>,
    /// Where it is not known what the claim has taken, the next registration's list has it.
    pub claims: Result<NodeClaims, Refused>,
}

pub(super) type Answer = oneshot::Receiver<Result<Exchanged, Refused>>;

/// Ends and a claim of one caller.
pub(super) struct Request {
    ends: Vec<AttemptEnd>,
    /// What is to be claimed, or why nothing is.
    claim: Result<Option<NodeClaim>, Refused>,
    answer: oneshot::Sender<Result<Exchanged, Refused>>,
}

impl Request {
    pub(super) fn new(ends: Vec<AttemptEnd>, claim: Option<NodeClaim>) -> (Self, Answer) {
        let (answer, receiver) = oneshot::channel();
        (Request { ends, claim: Ok(claim), answer }, receiver)
    }

    pub(super) fn bytes(&self) -> usize {
        let excerpts = |end: &AttemptEnd| {
            let record = &end.done.record;
            [&record.stdout, &record.stderr].map(|out| out.head.0.len() + out.tail.0.len())
        };
        self.ends.iter().flat_map(excerpts).sum::<usize>() + REQUEST_BYTES
    }

    /// The jobs whose attempts end.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.ends.iter().map(|end| end.done.job)
    }

    pub(super) fn refuse(self, why: Refused) {
        let _ = self.answer.send(Err(why));
    }

    pub(super) fn committed(self, exchanged: Exchanged) {
        let _ = self.answer.send(Ok(exchanged));
    }

    /// It is not known whether it is committed. An end is guarded and is sent again; a claim would take more.
    pub(super) fn doubt(mut self) -> Self {
        if let Ok(Some(_)) = self.claim {
            self.claim = Err(Refused::Unconfirmed("the claim was not answered".to_owned()));
        }
        self
    }

    /// A claim of an earlier session claims nothing: its caller has not judged this session's list.
    fn judge(&mut self, session: &Session) {
        if let Ok(Some(claim)) = &self.claim
            && claim.session != session.id
        {
            self.claim = Err(Refused::Unreachable("the session of the claim has ended".to_owned()));
        }
    }

    fn asked(&self) -> Option<&NodeClaim> {
        self.claim.as_ref().ok()?.as_ref()
    }
}

/// One transaction for all requests. For each what it has done, if it is committed.
pub(super) async fn exchange(
    connection: Connection,
    session: &Session,
    requests: &mut [Request],
) -> (FlightOutcome, Vec<Exchanged>) {
    requests.iter_mut().for_each(|request| request.judge(session));
    let requests = &*requests;
    let mut flight = Flight::begin(connection, session).await;
    let mut lanes: BTreeMap<&Name, bool> = BTreeMap::new();
    for claim in requests.iter().filter_map(Request::asked) {
        *lanes.entry(&claim.handler).or_default() |= claim.cluster_concurrency.is_some();
    }
    for (handler, alone) in lanes {
        NodeClaim::lock_lane(&mut flight, handler, alone).await;
    }
    // Jobs are locked in the order of their ids.
    let mut ends: Vec<(&AttemptEnd, usize)> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        ends.extend(request.ends.iter().map(|end| (end, place)));
    }
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by_key(|number| ends[*number].0.done.job);
    let mut sent_ends = vec![0; ends.len()];
    for number in order {
        sent_ends[number] = complete::send(&mut flight, ends[number].0, false).await;
    }
    // Behind the ends: what they put back or make room for is claimed with them.
    let mut sent_claims: Vec<Option<Sent>> = Vec::new();
    for request in requests {
        sent_claims.push(match request.asked() {
            Some(claim) => Some(claim.send(&mut flight, session).await),
            None => None,
        });
    }
    let outcome = flight.commit().await;
    let FlightOutcome::Committed(_, rows) = &outcome else { return (outcome, Vec::new()) };
    let mut exchanged = Vec::with_capacity(requests.len());
    for (place, (request, sent)) in requests.iter().zip(sent_claims).enumerate() {
        let own = ends.iter().zip(&sent_ends).filter(|((_, of), _)| *of == place);
        let read = |(_, sent): (_, &usize)| {
            // Committed all the same; the statement returns one row of two values.
            rows.get(*sent).and_then(|rows| complete::read(rows)).unwrap_or(EndResult::Repeated)
        };
        let claims = match (&request.claim, sent) {
            (Err(why), _) => Err(why.clone()),
            (Ok(Some(claim)), Some(sent)) => Ok(claim.read(&sent, rows)),
            (Ok(_), _) => Ok(NodeClaims::default()),
        };
        exchanged.push(Exchanged { ended: own.map(read).collect(), claims });
    }
    (outcome, exchanged)
}
