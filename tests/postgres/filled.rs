//! A SQLite store with rows of every kind, made by its own verbs, and their comparison with those of a database.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{
    Answer, Blob, DeadReason, GroupKey, GroupRule, Headers, HeldReason, JobId, Name, OnRedelivery,
    Outcome, Runner, RunnerName, Via,
};
use hooklatch::pattern::Pattern;
use hooklatch::retry::Next;
use hooklatch::routing::{Delay, Group, NewJob};
use hooklatch::store::{
    Accept, Ask, By, Claim, Claimed, Completion, NoticeSubscribers, OutputExcerpt, Rate, Record,
    Replay, Resolution, Settings, Store, Usage,
};
use hooklatch::verify::Verified;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::cluster::{START, github, stripe};

/// Its canonical form is stored as 16 bytes.
pub(crate) const UUID: &str = "72d3162e-cc78-11e3-81ab-4c9367dc0958";

pub(crate) fn settings(folder: &Path) -> Settings {
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    Settings { path: folder.join("hooklatch.db"), limits }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

struct Filler {
    store: Store,
    clock: Clock,
}

impl Filler {
    async fn accept(&self, source: &str, delivery: Verified, jobs: Vec<NewJob>) {
        let (source, received_at) = (name(source), self.clock.now());
        let on_redelivery = OnRedelivery::Ignore;
        let new = Accept { source, received_at, delivery, jobs, on_redelivery };
        self.store.intake.accept(new).await.unwrap();
    }

    /// A new event with a job for this handler.
    async fn event(&self, id: &str, handler: &str) {
        self.accept("stripe", stripe(id, "{}"), vec![NewJob::of(name(handler))]).await;
    }

    async fn grouped(&self, id: &str, handler: &str, rule: GroupRule) {
        let key = GroupKey::of(&name("stripe"), &[Some("a\0b")]);
        let group = Some(Group { key, rule });
        let job = NewJob { group, ..NewJob::of(name(handler)) };
        self.accept("stripe", stripe(id, "{}"), vec![job]).await;
    }

    async fn claim(&self, handler: &str, runner: Option<Runner>) -> Claimed {
        let claimed = self.store.jobs.claim(&name(handler), 1, runner).await.unwrap().jobs;
        claimed.into_iter().next().unwrap()
    }

    async fn end(&self, claimed: &Claimed, outcome: Outcome, next: Next, answer: Option<Answer>) {
        let output = |text: &[u8]| OutputExcerpt {
            head: Blob(text.to_vec()),
            total: 9,
            ..OutputExcerpt::default()
        };
        let record = Record {
            detail: "exit\0status".to_owned(),
            exit_code: Some(-3),
            http_status: Some(200),
            stdout: output(b"\0\xff\t\n\\."),
            stderr: output(b""),
            usage: Some(Usage { cpu_millis: 7, memory_bytes: 1 << 40 }),
            ..Record::default()
        };
        let done = Completion {
            job: claimed.facts.job,
            attempt: claimed.facts.attempt,
            outcome,
            counts: true,
            next,
            finished_at: self.clock.now(),
            record,
            answer,
        };
        assert!(self.store.jobs.complete(done).await.unwrap());
    }

    /// A new event whose one job has ended so.
    async fn ended(&self, id: &str, outcome: Outcome, next: Next) -> JobId {
        self.event(id, "h").await;
        let claimed = self.claim("h", None).await;
        self.end(&claimed, outcome, next, None).await;
        claimed.facts.job
    }

    async fn ask(&self, key: &str, caller: &str) {
        let delivery = stripe(key, "1");
        let ask = Ask {
            source: name("pay"),
            caller: caller.to_owned(),
            request: delivery.digest(),
            received_at: self.clock.now(),
            delivery,
            handler: name("pay"),
            keep: Duration::from_secs(1000),
            keep_errors: Duration::from_secs(100),
        };
        self.store.intake.ask(ask).await.unwrap();
    }
}

/// Makes the store, in which an attempt of a command and one of a forward are under way, and closes it.
pub(crate) async fn fill(settings: &Settings) {
    let clock = Clock::manual(START);
    let filler = Filler { store: Store::open(settings, clock.clone()).unwrap(), clock };
    let Filler { store, clock } = &filler;
    let types = vec![Pattern::new("job.dead", true)];
    store.admin.set_interest(NoticeSubscribers::new(vec![(name("alert"), types)]));
    for _ in 0..5 {
        store.jobs.raise_epoch().await.unwrap();
    }
    // A variant, a suspected replay, evidence on a signed id, and a type that is none.
    for (id, body) in [(UUID, "1"), (UUID, "2"), ("d-1", "1"), (UUID, "1")] {
        filler.accept("github", github(id, "push", body), vec![NewJob::of(name("h"))]).await;
        clock.advance(Duration::from_millis(1));
    }
    for data in ["1", "2", "3", "2"] {
        filler.accept("stripe", stripe(&UUID.to_uppercase(), data), Vec::new()).await;
    }
    filler.accept("github", github("d-2", "not a type", "9"), Vec::new()).await;
    // What `h` has ready is done first.
    let first = filler.claim("h", None).await;
    filler.end(&first, Outcome::Succeeded, Next::Succeeded, None).await;

    let (failed, dead) = (Outcome::Failed, Next::Dead(DeadReason::Exhausted));
    let unknown = Next::Held(HeldReason::UnknownOutcome);
    let replayed = filler.ended("dead-1", failed, dead).await;
    filler.ended("dead-2", failed, dead).await;
    let dropped = filler.ended("dropped", failed, dead).await;
    let resolved = filler.ended("resolved", Outcome::Unknown, unknown).await;
    filler.ended("held", Outcome::Unknown, unknown).await;
    let by = By { name: Some("a\0b".into()), via: Via::Dashboard, reason: Some("\0".repeat(500)) };
    let admin = store.admin.by(7, by);
    admin.drop_job(dropped, None).await.unwrap();
    admin.resolve(resolved, 1, Resolution::Failed).await.unwrap();
    admin.replay(Replay::NewKey(replayed, None), true).await.unwrap();
    let due_at = clock.now().after(Duration::from_secs(60));
    let again = filler.claim("h", None).await;
    filler.end(&again, failed, Next::Wait { due_at }, None).await;

    for (handler, rule) in
        [("block", GroupRule::Block), ("over", GroupRule::StepOver), ("latest", GroupRule::Latest)]
    {
        for nth in 0..3 {
            filler.grouped(&format!("{handler}-{nth}"), handler, rule).await;
        }
    }
    let delay = Delay { wait: Duration::from_secs(5), most: Duration::from_secs(9) };
    let undecided = Some("no \0 here".to_owned());
    let jobs = vec![
        NewJob { delay: Some(delay), ..NewJob::of(name("late")) },
        NewJob { undecided, ..NewJob::of(name("undecided")) },
    ];
    filler.accept("stripe", stripe("odd", "{}"), jobs).await;

    for (key, caller) in [(UUID, ""), ("key-1", "a"), ("key-1", "b"), ("key-2", "")] {
        filler.ask(key, caller).await;
    }
    let answer = Answer::new(201, &Headers::new(), "body".into()).unwrap();
    let answered = filler.claim("pay", None).await;
    filler.end(&answered, Outcome::Succeeded, Next::Succeeded, Some(answer)).await;
    let busy = Answer::new(503, &Headers::new(), "busy".into()).unwrap();
    let refused = filler.claim("pay", None).await;
    filler.end(&refused, Outcome::Rejected, Next::Dead(DeadReason::Rejected), Some(busy)).await;

    admin.pause(&name("paused")).await.unwrap();
    admin.pause(&name("rated")).await.unwrap();
    admin.resume(&name("rated")).await.unwrap();
    let [starts, burst] = [3, 1].map(|number| NonZeroU32::new(number).unwrap());
    let rate = Some(Rate { starts, per: Duration::from_secs(1), burst });
    for handler in ["rated", "paused"] {
        filler.event(handler, handler).await;
        let claim = Claim {
            handler: name(handler),
            limit: 1,
            runner: None,
            rate,
            cluster_concurrency: None,
        };
        store.jobs.complete_and_claim(&[], Some(claim)).await.1.await.unwrap();
    }
    let incarnation = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b/00000000000000000000000000000007";
    let incarnation = incarnation.parse().unwrap();
    filler.claim("block", Some(Runner { name: RunnerName::default(), incarnation })).await;
    store.close().await;

    // What takes a restore or the work of a month.
    let conn = Connection::open(&settings.path).unwrap();
    conn.execute_batch(
        "UPDATE meta SET newest_removed = 3;
         UPDATE event SET removed_succeeded = 2, removed_dropped = 1 WHERE event_id = 'd-2';
         DELETE FROM payload WHERE event = (SELECT row FROM event WHERE event_id = 'd-2');
         INSERT INTO restored (from_store, made_at, restored_at, held) VALUES (randomblob(16), 1, 2, 3);
         INSERT INTO event (row, source, event_id, type, digest, received_at, body_bytes, guarded)
             VALUES (5000, 's', 'gone', 't', zeroblob(32), 1, 1, 0);
         DELETE FROM event WHERE row = 5000;",
    )
    .unwrap();
}

/// Tables of the file, those of the database, and their order.
const TABLES: [(&str, &str, &str); 12] = [
    ("event", "event", "row"),
    ("payload", "payload", "event"),
    ("evidence", "evidence", "row"),
    ("job", "job", "row"),
    ("former_key", "former_key", "id"),
    ("attempt", "attempt", "job, number"),
    ("answer", "answer", "event"),
    ("secret_use", "secret_use", "source, reference"),
    ("notice", "notice", "type, subject, reason"),
    ("restored", "restored", "row"),
    ("audit", "audit", "row"),
    ("pace", "lane WHERE busy_to IS NOT NULL", "handler"),
];

/// Fails unless every column of the file's every row is in the database, and no other row.
pub(crate) async fn compare(file: &Path, database: &Client) {
    let conn = Connection::open(file).unwrap();
    for (table, theirs, order) in TABLES {
        let mut select = conn.prepare(&format!("SELECT * FROM {table} ORDER BY {order}")).unwrap();
        let columns: Vec<String> = select.column_names().map(str::to_owned).collect();
        let names = columns.join(", ");
        let query = format!("SELECT {names} FROM {theirs} ORDER BY {order}");
        let messages = database.simple_query(&query).await.unwrap();
        let theirs: Vec<_> = messages
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            })
            .collect();
        let mut rows = select.query([]).unwrap();
        let mut count = 0;
        while let Some(row) = rows.next().unwrap() {
            for (number, column) in columns.iter().enumerate() {
                let (ours, found) = (row.get_ref(number).unwrap(), theirs[count].get(number));
                assert!(
                    is_same(ours, found),
                    "{table}.{column} of row {count}: {ours:?} {found:?}"
                );
            }
            count += 1;
        }
        assert!(count > 0, "the store has no row of {table}");
        assert_eq!(count, theirs.len(), "{table}");
    }
    let paused = "SELECT group_concat(handler || since) FROM paused";
    let paused: String = conn.query_row(paused, [], |row| row.get(0)).unwrap();
    let lanes =
        "SELECT string_agg(handler || paused_at, ',') FROM lane WHERE paused_at IS NOT NULL";
    assert_eq!(database.query_one(lanes, &[]).await.unwrap().get::<_, String>(0), paused);
    let store = "SELECT lower(hex(store_id)) || newest_removed FROM meta";
    let store: String = conn.query_row(store, [], |row| row.get(0)).unwrap();
    let meta = "SELECT replace(store_id::text, '-', '') || newest_removed FROM meta";
    assert_eq!(database.query_one(meta, &[]).await.unwrap().get::<_, String>(0), store);
    let groups =
        "SELECT count(*) FROM job_group FULL JOIN (SELECT DISTINCT handler, group_key AS key
        FROM job WHERE group_key IS NOT NULL) AS used USING (handler, key)
        WHERE job_group IS NULL OR used IS NULL";
    assert_eq!(database.query_one(groups, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// Whether a value of SQLite is this text of PostgreSQL.
fn is_same(ours: ValueRef<'_>, theirs: Option<&str>) -> bool {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let is_hex = |bytes, text: &str| {
        text.strip_prefix("\\x").map_or_else(|| text.replace('-', ""), str::to_owned) == hex(bytes)
    };
    match (ours, theirs) {
        (ValueRef::Null, None) => true,
        (ValueRef::Integer(number), Some(text)) => {
            text == number.to_string() || text == if number == 0 { "f" } else { "t" }
        }
        (ValueRef::Blob(bytes), Some(text)) => is_hex(bytes, text),
        (ValueRef::Text(bytes), Some(text)) => {
            String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}") == text
                || text.starts_with("\\x") && is_hex(bytes, text)
        }
        _ => false,
    }
}
