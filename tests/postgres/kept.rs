//! What must not be lost meanwhile: the key of a job that is put back, and the row of a change.

use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{AuditVerb, GroupKey, GroupRule, OnRedelivery, OnUnknown};
use hooklatch::store::postgres::Admin;
use hooklatch::store::{Accept, Accepted, AuditSubject, Error, Group, NewJob, Refused, Replay};

use super::asking::{begun, intake, request};
use super::cluster::{CREATED, Cluster, new, stripe};
use super::site::target;
use super::working::worker;

fn admin(cluster: &Cluster) -> Admin {
    Admin::new(target(cluster.server.port, false), &Limits::default(), Clock::system())
}

/// Retention deletes the key behind the look of who puts its job back, and commits first.
#[tokio::test]
async fn a_job_whose_key_is_being_deleted_is_not_put_back() {
    let cluster = Cluster::new(&[]).await;
    let a = worker(&cluster, "a", 0, OnUnknown::Hold).await;
    let intake = intake(&a);
    let dead = "UPDATE job SET state = 'dead', reason = 'rejected', attempt = 1, settled_at = 1";
    let delete = "BEGIN; DELETE FROM answer";

    let job = begun(intake.ask(request("k", 1)).await);
    cluster.run(dead).await;
    let gate = cluster.admin().await;
    gate.batch_execute(delete).await.unwrap();
    let replaying = tokio::spawn({
        let admin = admin(&cluster);
        async move { admin.replay(Replay::Job(job, None), false).await }
    });
    cluster.blocked(1).await;
    gate.batch_execute("COMMIT").await.unwrap();
    assert_eq!(replaying.await.unwrap(), Err(Error::Answered { job }));

    let job = begun(intake.ask(request("k", 1)).await);
    cluster.run(dead).await;
    gate.batch_execute(delete).await.unwrap();
    let asking = tokio::spawn(async move { intake.ask(request("k", 1)).await });
    cluster.blocked(1).await;
    gate.batch_execute("COMMIT").await.unwrap();
    assert_ne!(begun(asking.await.unwrap()), job, "the key is a new one");
    assert_eq!(cluster.count("job WHERE replays > 0").await, 0);
}

#[tokio::test]
async fn a_change_that_the_server_refuses_is_given_up() {
    let cluster = Cluster::new(&[]).await;
    cluster.run("ALTER TABLE audit ADD CHECK (count < 5)").await;
    let admin = admin(&cluster);
    let row = |count| (AuditVerb::Reload, AuditSubject::default(), count, "asked".to_owned());
    let patience = Duration::from_secs(20);
    let refused = admin.note_change(row(7), patience).await;
    assert!(matches!(refused, Err(Error::Unavailable(why)) if why.contains("audit")));
    assert_eq!(admin.note_change(row(1), patience).await, Ok(true));
    assert_eq!(cluster.count("audit").await, 1);
}

#[tokio::test]
async fn a_kept_delivery_is_stored_with_its_row_or_not_at_all() {
    let cluster = Cluster::new(&[]).await;
    let admin = admin(&cluster);
    let subject = AuditSubject { source: Some("stripe".parse().unwrap()), ..Default::default() };
    let group = Group { key: GroupKey::kept("k".to_owned()), rule: GroupRule::Block };
    let kept = |id: &str| {
        let of_group = |job: NewJob| NewJob { group: Some(group.clone()), ..job };
        let new = new(stripe(id, "1"));
        let jobs = new.jobs.into_iter().map(of_group).collect();
        vec![Accept { jobs, on_redelivery: OnRedelivery::ReplayDead, ..new }]
    };
    let (accepted, row) = admin.accept_kept(kept("one"), &subject, None).await.unwrap();
    assert_eq!(accepted, [CREATED]);
    let (accepted, row) = admin.accept_kept(kept("two"), &subject, Some(row)).await.unwrap();
    assert_eq!(accepted, [CREATED]);
    assert_eq!(cluster.count("job WHERE behind").await, 1);
    let audit = "SELECT string_agg(verb || ' ' || count || ' ' || result, ', ') FROM audit";
    let rows: String = cluster.get(audit).await;
    assert_eq!(rows, "quarantine-accept 2 done");
    // A dead job of a group that the delivery does not name is put back behind that group's lock.
    cluster
        .run(
            "UPDATE job SET group_key = 'other', state = 'dead', reason = 'rejected', attempt = 1, settled_at = 1
             WHERE NOT behind",
        )
        .await;
    let (accepted, _) = admin.accept_kept(kept("one"), &subject, Some(row)).await.unwrap();
    assert!(matches!(accepted[..], [Accepted::Duplicate { replayed: 1, .. }]), "{accepted:?}");
    assert_eq!(cluster.count("job_group WHERE key = 'other'").await, 1);
    // The row cannot be written.
    cluster.run("ALTER TABLE audit ADD CHECK (count < 4)").await;
    let refused = admin.accept_kept(kept("three"), &subject, Some(row)).await;
    assert!(matches!(refused, Err(Refused::Failed(_))), "{refused:?}");
    assert_eq!(cluster.count("event").await, 2);
}
