use super::*;
use crate::store::schema::{APPLICATION_ID, MIGRATIONS, known};

/// The quoted words after `start`, up to the closing parenthesis.
fn words_after(start: &str) -> Vec<String> {
    let sql = MIGRATIONS.concat();
    let (_, rest) = sql.split_once(start).unwrap_or_else(|| panic!("no '{start}' in the schema"));
    let (list, _) = rest.split_once(')').unwrap();
    list.split(',').map(|word| word.trim().trim_matches('\'').to_owned()).collect()
}

fn words<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(T::to_string).collect()
}

#[test]
fn the_schema_lists_the_words_of_the_model() {
    assert_eq!(words_after("CHECK (state IN ("), words(State::ALL));
    assert_eq!(words_after("CHECK (outcome IN ("), words(Outcome::ALL));
    assert_eq!(words_after("CHECK (type IN ("), words(NoticeType::ALL));
    let reasons = |state| words_after(&format!("WHEN '{state}' THEN coalesce(reason, '') IN ("));
    assert_eq!(reasons(State::Held), words(HeldReason::ALL));
    assert_eq!(reasons(State::Dead), words(DeadReason::ALL));
    assert_eq!(reasons(State::Dropped), words(DropReason::ALL));
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
        .submit(Lane::Verb, |tx| {
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
