use super::*;
use crate::store::sqlite::admin::clauses::Clauses;
use crate::store::sqlite::admin::counts;
use crate::store::sqlite::admin::list as read;
use crate::store::sqlite::engine::schema::{APPLICATION_ID, known};
use crate::store::sqlite::jobs::complete;
use crate::store::sqlite::jobs::recover::CUT_OFF;

/// What the text of a table has between `start` and `end`, its lines joined.
fn between<'a>(table: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = table.split_once(start).unwrap_or_else(|| panic!("no '{start}' in {table}"));
    rest.split_once(end).unwrap().0
}

/// This condition, that the column is one of these words.
fn any_of<T: ToString>(column_is: &str, words: &[T]) -> String {
    let words: Vec<_> =
        words.iter().map(|word| format!("{column_is} '{}'", word.to_string())).collect();
    words.join(" OR ")
}

#[tokio::test]
async fn the_schema_lists_the_words_of_the_model() {
    let mut bench = bench();
    let table = |conn: &Connection, name| -> String {
        let sql = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        let text: String = conn.query_row(sql, [name], |row| row.get(0)).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    bench
        .with_file(move |conn| {
            let (job, attempt, notice) =
                (table(conn, "job"), table(conn, "attempt"), table(conn, "notice"));
            let states = any_of("state =", State::ALL);
            assert_eq!(between(&job, "state TEXT NOT NULL CHECK (", ")"), states);
            let outcomes = any_of("outcome =", Outcome::ALL);
            assert_eq!(between(&attempt, "outcome TEXT CHECK (", ")"), outcomes);
            // A file loses no event.
            let of_nodes = [NoticeType::StoreLost, NoticeType::NodeSilent];
            let types = NoticeType::ALL.iter().filter(|word| !of_nodes.contains(word));
            let types: Vec<_> = types.map(|word| format!("'{word}'")).collect();
            assert_eq!(between(&notice, "CHECK (type IN (", ")"), types.join(", "));
            let audit = table(conn, "audit");
            // It has no other node.
            let verbs = AuditVerb::ALL.iter().filter(|verb| **verb != AuditVerb::NodeLost);
            let verbs = any_of("verb =", &verbs.collect::<Vec<_>>());
            assert_eq!(between(&audit, "verb TEXT NOT NULL CHECK (", ")"), verbs);
            assert_eq!(
                between(&audit, "via TEXT NOT NULL CHECK (", ")"),
                any_of("via =", Via::ALL)
            );
            let reasons = |state, end| between(&job, &format!("WHEN '{state}' THEN "), end);
            let (held, dead) = (reasons(State::Held, " WHEN"), reasons(State::Dead, " WHEN"));
            assert_eq!(held, any_of("reason IS", HeldReason::ALL));
            assert_eq!(dead, any_of("reason IS", DeadReason::ALL));
            assert_eq!(reasons(State::Dropped, " ELSE"), any_of("reason IS", DropReason::ALL));
        })
        .await;
}

/// Each state takes the reasons that are its own and no others, and no state, outcome or reason is but a word of
/// the model.
#[tokio::test]
async fn the_schema_takes_each_word_where_it_belongs_and_nowhere_else() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    let mut states: Vec<_> = State::ALL.iter().map(ToString::to_string).collect();
    let of = |state: &str| match state {
        "held" => HeldReason::ALL.iter().map(ToString::to_string).collect(),
        "dead" => DeadReason::ALL.iter().map(ToString::to_string).collect(),
        "dropped" => DropReason::ALL.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let mut reasons: Vec<String> = states.iter().flat_map(|state| of(state)).collect();
    reasons.extend(["", "gone", "Rejected"].map(str::to_owned));
    states.extend(["", "gone", "Ready"].map(str::to_owned));
    let mut outcomes: Vec<_> = Outcome::ALL.iter().map(ToString::to_string).collect();
    outcomes.extend(["", "gone", "Failed"].map(str::to_owned));
    bench
        .with_file(|conn| {
            let refused = |result: rusqlite::Result<usize>| match result {
                Ok(rows) => rows != 1,
                Err(error) => {
                    let code = error.sqlite_error_code();
                    assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{error}");
                    true
                }
            };
            let set = "UPDATE job SET state = ?1, reason = ?2, attempt = 1, due_at = iif(?1 = 'waiting', 1, NULL),
                 settled_at = iif(?3, 1, NULL)";
            for state in &states {
                let settled = ["succeeded", "dead", "dropped"].contains(&state.as_str());
                let known = State::ALL.iter().any(|word| word.to_string() == *state);
                for reason in reasons.iter().map(Some).chain([None]) {
                    let belongs = match reason {
                        Some(reason) => of(state).contains(reason),
                        None => of(state).is_empty(),
                    };
                    let result = conn.execute(set, (state, reason, settled));
                    assert_eq!(refused(result), !known || !belongs, "{state} {reason:?}");
                    let result = conn.execute(set, (state, reason, !settled));
                    assert!(refused(result), "{state} {reason:?}, settled: {}", !settled);
                }
            }
            conn.execute("INSERT INTO attempt (job, number, started_at) VALUES (1, 1, 1)", []).unwrap();
            for outcome in &outcomes {
                let result = conn.execute("UPDATE attempt SET outcome = ?1, finished_at = 2", [outcome]);
                let known = Outcome::ALL.iter().any(|word| word.to_string() == *outcome);
                assert_eq!(refused(result), !known, "{outcome}");
            }
            // As the store leaves it: nothing runs.
            conn.execute("DELETE FROM attempt", []).unwrap();
        })
        .await;
}

/// Finding what runs, at each start, tick and look at the metrics, walks no table: the store may have millions of jobs.
#[tokio::test]
async fn what_runs_is_found_by_the_index_of_live_attempts() {
    let mut bench = bench();
    let filter = JobFilter { state: Some(State::Running), ..JobFilter::default() };
    let of_all = JobFilter {
        handler: Some(name("h")),
        source: Some(name("stripe")),
        event_type: Some("a.*".to_owned()),
        since: Some(START),
        ..filter.clone()
    };
    let all = [
        complete::RUNNING.to_owned(),
        format!("SELECT j.row {CUT_OFF}"),
        counts::RUNNING.to_owned(),
    ];
    bench
        .with_file(|conn| {
            let listing = |filter: &JobFilter| {
                let mut clauses = Clauses::default();
                clauses.job(conn, filter).unwrap();
                read::JOBS.sql(&clauses)
            };
            for sql in all.into_iter().chain([listing(&filter), listing(&of_all)]) {
                let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                let unset = vec![rusqlite::types::Null; statement.parameter_count()];
                let plan: Vec<String> = statement
                    .query_map(rusqlite::params_from_iter(unset), |row| row.get(3))
                    .unwrap()
                    .collect::<rusqlite::Result<_>>()
                    .unwrap();
                assert!(plan.iter().any(|step| step.contains("attempt_live")), "{sql}: {plan:#?}");
                for step in plan.iter().filter(|step| step.starts_with("SCAN")) {
                    let bounded = step.contains("INDEX attempt_live")
                        || step.contains("INDEX job_")
                        || step.starts_with("SCAN (subquery");
                    assert!(bounded, "{sql}: {plan:#?}");
                }
            }
        })
        .await;
}

#[tokio::test]
async fn the_schema_holds_the_shape_of_each_state() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    bench
        .with_file(|conn| {
            for broken in [
                "UPDATE job SET state = 'gone'",
                "UPDATE job SET state = 'held'",
                "UPDATE job SET state = 'held', reason = 'rejected'",
                "UPDATE job SET state = 'dead', reason = 'rejected'",
                "UPDATE job SET state = 'succeeded'",
                "UPDATE job SET state = 'waiting'",
                "UPDATE job SET state = 'running'",
                "UPDATE job SET due_at = 1",
                "UPDATE job SET settled_at = 1",
                "UPDATE job SET reason = 'rejected'",
                "UPDATE job SET counted = 1",
                "UPDATE event SET duplicates = 1",
                "UPDATE event SET event_id = ''",
                "UPDATE event SET event_id = 7",
                "UPDATE event SET event_id = x'00112233445566778899aabbccddee'",
                "INSERT INTO attempt (job, number, started_at, outcome) VALUES (1, 1, 1, 'failed')",
            ] {
                let error = conn.execute(broken, []).expect_err(broken);
                let code = error.sqlite_error_code();
                assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{broken}");
            }
            // Two live attempts of one job cannot be.
            let live = "INSERT INTO attempt (job, number, started_at) VALUES (1, ?1, 1)";
            conn.execute(live, [1]).unwrap();
            assert!(conn.execute(live, [2]).is_err());
            conn.execute("DELETE FROM attempt", []).unwrap();
        })
        .await;
}

#[tokio::test]
async fn the_schema_holds_an_answer_whole() {
    let mut bench = bench();
    bench.accept("stripe", stripe("e", "a", "{}"), &["h"]).await;
    bench.accept("stripe", stripe("f", "a", "{}"), &["h"]).await;
    bench
        .with_file(|conn| {
            conn.execute_batch(
                "INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
                     VALUES (1, 's', '', 'k', zeroblob(32), 1, 2, 3)",
            )
            .unwrap();
            for broken in [
                "UPDATE answer SET answered_at = 1",
                "UPDATE answer SET status = 200",
                "UPDATE answer SET headers = x'', body = x'', body_bytes = 0",
                "UPDATE answer SET answered_at = 1, status = 199, headers = x'', body = x'', body_bytes = 0",
                "UPDATE answer SET answered_at = 1, status = 600, headers = x'', body = x'', body_bytes = 0",
                "UPDATE answer SET answered_at = 1, status = 200, headers = x'', body = x''",
                "UPDATE answer SET key = ''",
                "UPDATE answer SET key = 7",
                "UPDATE answer SET request = x''",
                "UPDATE answer SET keep_errors = -1",
                "INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
                     SELECT 2, source, caller, key, request, created_at, expires_at, keep_errors FROM answer",
                "UPDATE answer SET error_until = 1",
            ] {
                let error = conn.execute(broken, []).expect_err(broken);
                let code = error.sqlite_error_code();
                assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{broken}");
            }
            let whole = "UPDATE answer SET answered_at = 1, status = 200, headers = x'', body = x'', body_bytes = 0";
            conn.execute(whole, []).unwrap();
        })
        .await;
}

#[tokio::test]
async fn a_new_file_is_ours_private_and_set_up() {
    use std::os::unix::fs::PermissionsExt;
    let bench = bench();
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let mode = std::fs::metadata(bench.beside(suffix)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{suffix}");
    }
    let found = bench
        .store
        .sqlite()
        .engine
        .submit(Priority::Verb, |tx| {
            [
                "application_id",
                "user_version",
                "auto_vacuum",
                "synchronous",
                "foreign_keys",
                "mmap_size",
                "wal_autocheckpoint",
                "trusted_schema",
            ]
            .iter()
            .map(|pragma| tx.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)))
            .collect::<rusqlite::Result<Vec<_>>>()
        })
        .await
        .unwrap();
    assert_eq!(found, [APPLICATION_ID, known(), 2, 2, 1, 0, 0, 0]);
}
