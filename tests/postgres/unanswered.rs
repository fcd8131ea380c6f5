//! Claims and completions whose connection is cut on the way.

use std::collections::BTreeSet;

use hooklatch::model::OnUnknown;
use hooklatch::store::Refused;
use hooklatch::store::postgres::EndResult;

use super::cluster::{Cluster, ready};
use super::proxy::{Act, Proxy, Side};
use super::working::{
    SUCCEEDED, add_jobs, claim, claim_of, claim_one, complete, exchange, holder, job,
    later_session, may_begin, session, succeeded, worker,
};

/// Cuts a claim behind each message of either side, with statements that are still to be prepared and without. Whether
/// it was committed or not, the job runs once: an attempt whose claim was not answered is settled as never started.
#[tokio::test]
async fn a_job_whose_claim_is_cut_at_any_message_runs_once() {
    let cluster = Cluster::new(&[]).await;
    let other = holder(&cluster, "other").await;
    let proxy = Proxy::start(&cluster.server).await;
    let mut node = worker(&cluster, "cut", proxy.port, OnUnknown::Hold).await;
    let (mut jobs, mut seen) = (0, BTreeSet::new());
    for is_warm in [false, true] {
        for side in [Side::Client, Side::Server] {
            let mut number = 0;
            loop {
                if is_warm {
                    assert!(claim(&node, 1).await.is_empty());
                } else {
                    node.close();
                    node =
                        worker(&cluster, &format!("{side:?}{number}"), proxy.port, OnUnknown::Hold)
                            .await;
                }
                add_jobs(&other, jobs, 1).await;
                jobs += 1;
                proxy.arm(side, number, Act::Cut);
                let claims = exchange(&node, Vec::new(), Some(claim_of(1))).await.claims;
                let is_answered = claims.is_ok();
                let attempt = match claims {
                    Ok(claims) => claims.attempts[0].clone(),
                    Err(Refused::Unconfirmed(_)) => claim_one(&node).await,
                    Err(refused) => panic!("{side:?} {number}: {refused}"),
                };
                let passed = proxy.passed(side);
                proxy.watch();
                let at = format!("{side:?} {number} {:?}", passed.get(number.wrapping_sub(1)));
                println!("{at}: {is_answered} {}", attempt.running.attempt);
                seen.insert((is_answered, attempt.running.attempt));
                assert!(may_begin(&node, &attempt), "{at}");
                assert_eq!(attempt.running.counted, 0, "{at}");
                assert_eq!(complete(&node, succeeded(&attempt)).await, SUCCEEDED, "{at}");
                let id = attempt.running.job;
                let attempts: String = cluster
                    .get(&format!(
                        "SELECT string_agg(outcome, ' ' ORDER BY number) FROM attempt
                         JOIN job ON job.row = attempt.job WHERE id = '{id}'"
                    ))
                    .await;
                let expected = ["succeeded", "not_started succeeded"];
                let before = usize::try_from(attempt.running.attempt - 1).unwrap();
                assert_eq!(attempts, expected[before], "{at}");
                number += 1;
                if number > passed.len() {
                    break;
                }
            }
            assert!(number > 5, "{number} messages");
        }
    }
    // All were met: answered, committed and not answered.
    assert!(seen.contains(&(true, 1)) && seen.contains(&(false, 2)), "{seen:?}");
}

/// A completion over a connection that is cut is sent again until it is committed, and recorded once.
#[tokio::test]
async fn a_completion_cut_at_any_message_is_recorded_once() {
    let cluster = Cluster::new(&[]).await;
    let other = holder(&cluster, "other").await;
    let proxy = Proxy::start(&cluster.server).await;
    let mut node = worker(&cluster, "cut", proxy.port, OnUnknown::Hold).await;
    let (mut jobs, mut repeated) = (0, 0);
    for is_warm in [false, true] {
        for side in [Side::Client, Side::Server] {
            let mut number = 0;
            loop {
                if !is_warm {
                    node.close();
                    node =
                        worker(&cluster, &format!("{side:?}{number}"), proxy.port, OnUnknown::Hold)
                            .await;
                }
                add_jobs(&other, jobs, 1).await;
                jobs += 1;
                let attempt = claim(&node, 1).await.remove(0);
                proxy.arm(side, number, Act::Cut);
                let ended = complete(&node, succeeded(&attempt)).await;
                let passed = proxy.passed(side);
                proxy.watch();
                ready(&node).await;
                let at = format!(
                    "{side:?} {number} {:?}: {ended:?}",
                    passed.get(number.wrapping_sub(1))
                );
                println!("{at}");
                assert_ne!(ended, EndResult::Late, "{at}");
                repeated += i32::from(ended == EndResult::Repeated);
                assert_eq!(job(&cluster, attempt.running.job).await, "succeeded 1 1", "{at}");
                number += 1;
                if number > passed.len() {
                    break;
                }
            }
            assert!(number > 5, "{number} messages");
        }
    }
    assert!(repeated > 0, "no cut came behind a commit");
    assert_eq!(
        cluster.count("attempt WHERE outcome = 'succeeded'").await,
        i64::try_from(jobs).unwrap()
    );
    assert_eq!(cluster.count("late_end").await, 0);
}

/// The old claim is still on its way when the node registers: the registration waits for it, and lists it.
#[tokio::test]
async fn a_claim_that_commits_while_its_node_registers_is_settled_as_never_started() {
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let node = worker(&cluster, "a", proxy.port, OnUnknown::Hold).await;
    add_jobs(&node, 0, 1).await;
    assert_eq!(claim(&node, 0).await, []);
    proxy.watch();
    assert_eq!(claim(&node, 0).await, []);
    let messages = proxy.passed(Side::Client);
    assert_eq!(messages.last().unwrap(), "Query COMMIT");
    let before = session(&node).await;
    let gate = cluster.hold().await;
    proxy.arm(Side::Client, messages.len(), Act::Cut);
    let claiming = {
        let node = node.clone();
        tokio::spawn(async move { exchange(&node, Vec::new(), Some(claim_of(1))).await })
    };
    // The claim's backend, and the registration's.
    cluster.blocked(2).await;
    // From its sending on, nothing begins.
    assert!(node.sessions().borrow().is_none());
    drop(gate);
    assert!(claiming.await.unwrap().claims.is_err());
    let now = later_session(&node, &before).await;
    assert_eq!(now.running.len(), 1);
    assert_eq!(now.running[0].claimant, before.session.id);
    // No runner was asked for it.
    assert!(!may_begin(&node, &now.running[0]));
    let second = claim_one(&node).await;
    assert_eq!((second.running.job, second.running.attempt), (now.running[0].running.job, 2));
    assert!(may_begin(&node, &second));
    assert_eq!(complete(&node, succeeded(&second)).await, SUCCEEDED);
}
