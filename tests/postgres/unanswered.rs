//! Claims and completions whose connection is cut on the way.

use std::collections::BTreeMap;

use hooklatch::model::OnUnknown;
use hooklatch::store::postgres::{EndResult, NodeAttempt};

use super::cluster::{Cluster, ready};
use super::proxy::{Act, Proxy, Side};
use super::working::{
    add_jobs, claim, claim_of, complete, exchange, holder, job, later_session, session, succeeded,
    worker,
};

/// Cuts a claim behind each message of either side, with statements that are still to be prepared and without.
/// After the node has registered again, its job runs and is in the claim's answer or in the list, or does not run.
#[tokio::test]
async fn a_claim_cut_at_any_message_is_answered_listed_or_not_committed() {
    let cluster = Cluster::new(&[]).await;
    let other = holder(&cluster, "other").await;
    let proxy = Proxy::start(&cluster.server).await;
    let mut node = worker(&cluster, "cut", proxy.port, OnUnknown::Hold).await;
    let (mut jobs, mut seen) = (0, BTreeMap::new());
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
                let asked = claim_of(&node, 1).await;
                proxy.arm(side, number, Act::Cut);
                let claims = exchange(&node, Vec::new(), Some(asked)).await.claims;
                let passed = proxy.passed(side);
                proxy.watch();
                ready(&node).await;
                let at = format!("{side:?} {number} {:?}", passed.get(number.wrapping_sub(1)));
                let registered = session(&node).await;
                let state: String =
                    cluster.get("SELECT state FROM job ORDER BY row DESC LIMIT 1").await;
                // Without a cut, the list is that of a session before, and has an attempt that has ended.
                let id = format!("e{:05}", jobs - 1);
                let is_new = |own: &&NodeAttempt| own.running.event_id.as_str() == id;
                let mut known: Vec<_> = registered.running.iter().filter(is_new).cloned().collect();
                let was_listed = !known.is_empty();
                let answered = claims.map(|claims| claims.attempts).unwrap_or_default();
                known.extend(
                    answered.iter().filter(|own| !registered.running.contains(own)).cloned(),
                );
                assert_eq!(known.len(), usize::from(state == "running"), "{at}: {known:?} {state}");
                println!("{at}: {state}, answered {}, listed {was_listed}", answered.len());
                *seen.entry((state, answered.len(), was_listed)).or_insert(0) += 1;
                // Not committed: it can be claimed. It begins once, whatever was heard of it.
                let more = claim(&node, 1).await;
                assert_eq!(more.len() + known.len(), 1, "{at}");
                known.extend(more);
                assert_eq!(node.begin(&known[0], || ()), Some(()), "{at}");
                assert_eq!(known[0].running.attempt, 1, "{at}");
                assert_eq!(complete(&node, succeeded(&known[0])).await, EndResult::Settled, "{at}");
                number += 1;
                if number > passed.len() {
                    break;
                }
            }
            assert!(number > 5, "{number} messages");
        }
    }
    assert_eq!(cluster.count("attempt").await, i64::try_from(jobs).unwrap());
    // All were met: answered; committed and not answered; not committed.
    for expected in [("running", 1, false), ("running", 0, true), ("ready", 0, false)] {
        let (state, answered, listed) = expected;
        assert!(seen.contains_key(&(state.to_owned(), answered, listed)), "{expected:?}: {seen:?}");
    }
}

/// The same of a completion: it is sent again until it is committed, and recorded once.
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
async fn a_claim_that_commits_while_its_node_registers_is_listed() {
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
    let asked = claim_of(&node, 1).await;
    proxy.arm(Side::Client, messages.len(), Act::Cut);
    let claiming = {
        let node = node.clone();
        tokio::spawn(async move { exchange(&node, Vec::new(), Some(asked)).await })
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
    assert_eq!(node.begin(&now.running[0], || ()), Some(()));
    assert_eq!(complete(&node, succeeded(&now.running[0])).await, EndResult::Settled);
}
