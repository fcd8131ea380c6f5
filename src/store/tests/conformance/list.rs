use super::{tokio, *};

#[tokio::test]
async fn events_and_jobs_are_listed_newest_first_and_filtered() {
    let bench = bench_with(Limits { list_count: 3, ..limits() }).await;
    for (source, event, event_type) in
        [("a", "e1", "push"), ("a", "e2", "ping"), ("b", "e3", "push"), ("b", "e4", "push")]
    {
        bench.accept(source, github(event, event_type, event), &["h", "i"]).await;
    }
    let events = async |filter| -> Vec<String> {
        let rows = bench.store.admin.events(filter).await.unwrap().rows;
        rows.into_iter().map(|row| row.event_id.to_string()).collect()
    };
    let all = EventFilter::default();
    assert_eq!(events(all.clone()).await, ["e4", "e3", "e2"], "no more than the limit");
    assert_eq!(events(EventFilter { limit: Some(1), ..all.clone() }).await, ["e4"]);
    assert_eq!(events(EventFilter { limit: Some(99), ..all.clone() }).await.len(), 3);
    assert_eq!(events(EventFilter { source: Some(name("a")), ..all.clone() }).await, ["e2", "e1"]);
    let pushes = EventFilter { event_type: Some("push".to_owned()), ..all };
    let of_a = EventFilter { source: Some(name("a")), ..pushes };
    assert_eq!(events(of_a).await, ["e1"]);

    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    let jobs = async |filter| -> Vec<(String, State)> {
        let rows = bench.store.admin.jobs(filter).await.unwrap().rows;
        rows.into_iter().map(|row| (row.event_id.to_string(), row.state)).collect()
    };
    let dead = JobFilter { state: Some(State::Dead), ..JobFilter::default() };
    assert_eq!(jobs(dead.clone()).await, [("e1".to_owned(), State::Dead)]);
    assert!(jobs(JobFilter { source: Some(name("b")), ..dead }).await.is_empty());
    let of_i = JobFilter { handler: Some(name("i")), limit: Some(2), ..JobFilter::default() };
    assert_eq!(jobs(of_i).await.len(), 2);
}

#[tokio::test]
async fn an_event_names_its_handlers_and_is_found_by_them() {
    let mut bench = bench().await;
    for (event, handlers) in [("e1", ["h", "i"].as_slice()), ("e2", &["i"]), ("e3", &[])] {
        bench.accept("github", github(event, "push", event), handlers).await;
    }
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, Outcome::Rejected, Next::Dead(DeadReason::Rejected)).await;
    // Retention has removed the job of this one.
    let removed = "UPDATE event SET removed_succeeded = 1 WHERE event_id = 'e3'";
    bench.change_rows(removed).await;

    let page = bench.store.admin.events(EventFilter::default()).await.unwrap();
    let [e3, e2, e1] = &page.rows[..] else { unreachable!() };
    let job = |handler, state| HandlerJob { handler: name(handler), state };
    assert_eq!(e1.handlers, [job("h", State::Dead), job("i", State::Ready)]);
    assert_eq!(e1.jobs, [(State::Ready, 1), (State::Dead, 1)].into());
    assert_eq!(e2.handlers, [job("i", State::Ready)]);
    assert_eq!((&e3.handlers[..], &e3.jobs), (&[][..], &[(State::Succeeded, 1)].into()));

    for (handler, state, found) in [
        (Some("h"), None, ["e1"].as_slice()),
        (Some("i"), None, &["e2", "e1"]),
        (Some("h"), Some(State::Dead), &["e1"]),
        (Some("i"), Some(State::Dead), &[]),
        (Some("i"), Some(State::Ready), &["e2", "e1"]),
        (Some("i"), Some(State::Succeeded), &[]),
        (None, Some(State::Succeeded), &["e3"]),
    ] {
        let filter = EventFilter { handler: handler.map(name), state, ..EventFilter::default() };
        let ids = |rows: &[EventRow]| -> Vec<String> {
            rows.iter().map(|row| row.event_id.to_string()).collect()
        };
        let listed = bench.store.admin.events(filter.clone()).await.unwrap().rows;
        assert_eq!(ids(&listed), found, "{handler:?} {state:?}");
        let (mut followed, _) = bench.store.admin.new_events(filter, None).await.unwrap();
        followed.reverse();
        assert_eq!(ids(&followed), found, "followed: {handler:?} {state:?}");
    }
}

#[tokio::test]
async fn a_page_of_no_rows_is_refused() {
    let bench = bench_with(Limits { list_count: 3, ..limits() }).await;
    let refused = Error::NoRows { most: 3 };
    assert_eq!(refused.to_string(), "the limit is 0 rows; it must be 1 to 3");
    let limit = Some(0);
    let events = EventFilter { limit, ..EventFilter::default() };
    assert_eq!(bench.store.admin.events(events).await.unwrap_err(), refused);
    let jobs = JobFilter { limit, ..JobFilter::default() };
    assert_eq!(bench.store.admin.jobs(jobs).await.unwrap_err(), refused);
}

#[tokio::test]
async fn an_event_is_shown_whole() {
    let bench = bench().await;
    bench.accept("github", github("e", "push", "body"), &["h", "i"]).await;
    let shown =
        bench.store.admin.show(Some(name("github")), id("e"), None).await.unwrap().remove(0);
    assert_eq!(shown.body.as_deref(), Some(b"body".as_slice()));
    assert_eq!(shown.headers[0], ("Content-Type".to_owned(), "application/json".to_owned()));
    use sha2::Digest as _;
    assert_eq!(shown.digest, Digest(sha2::Sha256::digest(b"body").into()).to_string());
    assert_eq!(shown.event.jobs, [(State::Ready, 2)].into());
    assert_eq!(shown.jobs.len(), 2);
    assert!(bench.store.admin.show(Some(name("x")), id("e"), None).await.unwrap().is_empty());
}
