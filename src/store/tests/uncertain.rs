//! Requests whose transaction is rolled back and tried again.
use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_claim_that_is_tried_again_leaves_what_another_one_of_the_handler_has_taken_since() {
    let bench = bench();
    bench.accept("github", github("e1", "push", "{}"), &["moved"]).await;
    let claim = |user: u128| {
        let incarnation = Incarnation::from_parts(uuid::Uuid::from_u128(user), 8);
        let runner = Some(Runner { name: "deploy".parse().unwrap(), incarnation });
        bench.store.sqlite().jobs.claiming(Claim {
            handler: name("moved"),
            limit: 1,
            runner,
            rate: None,
        })
    };
    // A reload has moved the handler: both lanes claim, and the first commit is rolled back.
    let ((before, had), (since, has)) = (claim(7), claim(8));
    let mut items = Some((before.work, since.work));
    let twice = move |tx: &Connection| {
        let Some((mut before, mut since)) = items.take() else { return Ok(()) };
        tx.execute_batch("SAVEPOINT refused")?;
        before.run(tx)?;
        tx.execute_batch("ROLLBACK TO refused; RELEASE refused")?;
        since.run(tx)?;
        before.run(tx)?;
        before.committed();
        since.committed();
        Ok(())
    };
    bench.store.sqlite().engine.submit(Priority::Verb, twice).await.unwrap();
    let mut got = Vec::new();
    for answer in [had, has] {
        let taken = answer.await.unwrap().unwrap();
        got.push(bench.store.sqlite().jobs.claimed(taken).await.jobs.len());
    }
    assert_eq!(got, [0, 1]);
}

#[tokio::test]
async fn of_two_claims_that_are_tried_again_together_none_takes_the_others_job_for_its_own() {
    let bench = bench();
    for event in ["e1", "e2"] {
        bench.accept("stripe", stripe(event, "a.b", "{}"), &["h"]).await;
    }
    let claim = || {
        bench.store.sqlite().jobs.claiming(Claim {
            handler: name("h"),
            limit: 1,
            runner: None,
            rate: None,
        })
    };
    let ((first, had), (second, has)) = (claim(), claim());
    let mut items = Some((first.work, second.work));
    let twice = move |tx: &Connection| {
        let Some((mut first, mut second)) = items.take() else { return Ok(()) };
        tx.execute_batch("SAVEPOINT refused")?;
        first.run(tx)?;
        second.run(tx)?;
        tx.execute_batch("ROLLBACK TO refused; RELEASE refused")?;
        // What the first one had is not to be had any more: now it gets what the second one had.
        tx.execute_batch(
            "UPDATE job SET state = 'dropped', reason = 'by the operator', settled_at = 1
             WHERE row = (SELECT min(row) FROM job)",
        )?;
        first.run(tx)?;
        second.run(tx)?;
        first.committed();
        second.committed();
        Ok(())
    };
    bench.store.sqlite().engine.submit(Priority::Verb, twice).await.unwrap();
    let mut got = Vec::new();
    for answer in [had, has] {
        let taken = answer.await.unwrap().unwrap();
        let claims = bench.store.sqlite().jobs.claimed(taken).await;
        got.push((claims.number, claims.jobs.len()));
    }
    assert_eq!(got, [(3, 1), (4, 0)], "and their numbers are those of what was committed");
}

#[tokio::test]
async fn a_claim_that_is_tried_again_takes_its_share_once() {
    let bench = bench();
    bench.ready(3).await;
    let rate = rate(60, 60 * SECOND, 2);
    let claim = Claim { handler: name("h"), limit: 1, runner: None, rate };
    let (item, answer) = bench.store.sqlite().jobs.claiming(claim);
    let mut item = Some(item.work);
    // Its commit is uncertain: once it is gone and once it is there.
    let twice = move |tx: &Connection| {
        let Some(mut work) = item.take() else { return Ok(()) };
        tx.execute_batch("SAVEPOINT gone")?;
        work.run(tx)?;
        tx.execute_batch("ROLLBACK TO gone; RELEASE gone")?;
        work.run(tx)?;
        work.run(tx)?;
        work.committed();
        Ok(())
    };
    bench.store.sqlite().engine.submit(Priority::Verb, twice).await.unwrap();
    let taken = answer.await.unwrap().unwrap();
    assert_eq!(bench.store.sqlite().jobs.claimed(taken).await.jobs.len(), 1);
    assert_eq!(bench.start(9, rate).await, (1, Some(SECOND)), "one of two is left");
}

#[tokio::test]
async fn a_secrets_match_that_is_rolled_back_is_noted_by_the_next() {
    let bench = bench();
    let uses = Arc::clone(&bench.store.sqlite().engine.secret_uses);
    let bad = move |tx: &Connection| {
        uses.note(tx, &name("stripe"), Some("secret"), START)?;
        tx.execute("UPDATE meta SET store_id = x'00'", [])
    };
    assert!(bench.store.sqlite().engine.submit(Priority::Verb, bad).await.is_err());
    let uses = Arc::clone(&bench.store.sqlite().engine.secret_uses);
    let note = move |tx: &Connection| {
        let before = tx.total_changes();
        uses.note(tx, &name("stripe"), Some("secret"), START)?;
        Ok(tx.total_changes() - before)
    };
    assert_eq!(bench.store.sqlite().engine.submit(Priority::Verb, note.clone()).await, Ok(1));
    assert_eq!(
        bench.store.sqlite().engine.submit(Priority::Verb, note).await,
        Ok(0),
        "within the minute"
    );
    assert_eq!(bench.store.admin.secrets().await.unwrap().len(), 1);
}
