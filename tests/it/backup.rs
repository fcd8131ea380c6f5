//! `backup` and `restore`, with a receiver under load and with a stopped one. A backup has every event
//! that was acknowledged before it began; neither command overwrites other files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::operator::text;
use crate::promises::mkfifo;
use crate::support::{PATIENCE, Receiver, Site, post, runner, stripe_event, stripe_header};

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./once"]
"#;

const SCRIPT: &str = r#"echo "$HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT" >> "$SITE/ledger.txt""#;

fn site(script: &str) -> Site {
    let site = Site::with("[limits]\nlist_count = 100000\n", HANDLER);
    site.script("once", script);
    site
}

fn deliver(receiver: &Receiver, id: &str) {
    let body = stripe_event(id, "invoice.paid", "");
    assert_eq!(receiver.stripe(&body, 0).0, 200);
}

/// Polls until `done`, for conditions that no command reports.
fn until(done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "gave up waiting");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn event_ids(site: &Site) -> BTreeSet<String> {
    let events = site.json(&["events", "--limit", "100000"]);
    let ids = events.as_array().unwrap().iter();
    ids.map(|event| event["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Makes a stopped store about 60 MB larger, so that copying it takes some time.
fn enlarge(store: &Path) {
    let conn = rusqlite::Connection::open(store).unwrap();
    conn.execute_batch(
        "BEGIN;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             SELECT 'stripe', 'large' || i, 'a.b', randomblob(32), 0, 1, 1000000 FROM n;
         INSERT INTO evidence (event, digest, received_at, headers, body_bytes, body)
             SELECT row, digest, 1, x'', 1000000, randomblob(1000000) FROM event WHERE event_id LIKE 'large%';
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE);",
    )
    .unwrap();
}

#[test]
fn a_backup_under_load_has_every_event_acknowledged_before_it() {
    let site = site(SCRIPT);
    let receiver = site.start();
    let (acknowledged, stop) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    let (before, made, after) = std::thread::scope(|scope| {
        for provider in 0..4 {
            let (acknowledged, stop, receiver) = (&acknowledged, &stop, &receiver);
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let id = format!("evt_{provider}_{n}");
                    deliver(receiver, &id);
                    acknowledged.lock().unwrap().insert(id);
                }
            });
        }
        until(|| acknowledged.lock().unwrap().len() > 100);
        let before = acknowledged.lock().unwrap().clone();
        let made = site.run(&["backup", "--json", site.path("b.db").to_str().unwrap()]);
        let after = acknowledged.lock().unwrap().len();
        stop.store(true, Ordering::SeqCst);
        (before, made, after)
    });
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(after > before.len(), "nothing was accepted while the backup was made");
    let report: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert!(report["events"].as_u64().unwrap() >= before.len() as u64, "{report:#}");
    let mode = fs::metadata(site.path("b.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!site.path("b.db.partial").exists() && !site.path("store.db.copying").exists());

    let elsewhere = self::site(SCRIPT);
    let restored = elsewhere.json(&["restore", site.path("b.db").to_str().unwrap()]);
    assert_eq!(restored["made_at"], report["made_at"]);
    assert_eq!(restored["from_store"], report["store"]);
    assert_ne!(restored["store"], report["store"]);
    let there = event_ids(&elsewhere);
    let lost: Vec<_> = before.difference(&there).collect();
    assert!(lost.is_empty(), "acknowledged before the backup began, and not in it: {lost:?}");

    // Restored jobs are held; new ones run.
    let held = elsewhere.json(&["held", "--reason", "restored", "--limit", "100000"]);
    assert_eq!(held.as_array().unwrap().len() as u64, restored["held"].as_u64().unwrap());
    let second = elsewhere.start();
    deliver(&second, "evt_new");
    until(|| elsewhere.lines("ledger.txt") == ["evt_new 1"]);
    let status = elsewhere.json_of_any_exit(&["status"]);
    assert_eq!(status["restores"][0]["made_at"], report["made_at"]);
    let screen = text(&elsewhere.run(&["status"]).stdout);
    assert!(screen.contains("what came in between is not known"), "{screen}");
    let first = before.first().unwrap();
    for command in ["show", "explain"] {
        let restored = text(&elsewhere.run(&[command, first]).stdout);
        assert!(restored.contains("from a backup of"), "{restored}");
        let new = text(&elsewhere.run(&[command, "evt_new"]).stdout);
        assert!(!new.contains("from a backup of"), "{new}");
    }
}

#[test]
fn a_backup_overwrites_no_file_and_leaves_no_partial_file() {
    let site = site(SCRIPT);
    let (to, partial) = (site.path("b.db"), site.path("b.db.partial"));
    let backup = || site.run(&["backup", to.to_str().unwrap()]);
    let none = backup();
    assert_eq!(none.status.code(), Some(66), "no store yet: {}", text(&none.stderr));
    assert!(!partial.exists());

    let receiver = site.start();
    deliver(&receiver, "evt_1");
    site.all_jobs(1, "succeeded");
    fs::write(&to, "precious").unwrap();
    let refused = backup();
    assert_eq!(refused.status.code(), Some(74), "{}", text(&refused.stderr));
    assert_eq!(fs::read(&to).unwrap(), b"precious");
    fs::remove_file(&to).unwrap();

    // The partial file of a killed backup is reused; one that is being written is not.
    fs::write(&partial, "half of a backup that was killed").unwrap();
    let held = fs::File::open(&partial).unwrap();
    held.lock().unwrap();
    let refused = backup();
    assert_eq!(refused.status.code(), Some(69), "{}", text(&refused.stderr));
    assert!(partial.exists());
    drop(held);
    let made = backup();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let said = text(&made.stdout);
    assert!(said.contains("events    1, the newest of") && said.contains("1 succeeded"), "{said}");
    assert!(to.exists() && !partial.exists());

    // The same with a stopped store, and with a target that cannot be written.
    assert_eq!(receiver.stop(), Some(0));
    let second = site.path("second.db");
    let report = site.json(&["backup", second.to_str().unwrap()]);
    assert_eq!((&report["events"], &report["jobs"]), (&json!(1), &json!({"succeeded": 1})));
    let nowhere = site.run(&["backup", "/dev/full/b.db"]);
    assert_eq!(nowhere.status.code(), Some(74), "{}", text(&nowhere.stderr));
    assert!(!site.path("store.db.copying").exists());
}

#[test]
fn a_file_with_the_name_of_a_partial_backup_is_not_overwritten() {
    let site = site(SCRIPT);
    assert_eq!(site.start().stop(), Some(0));
    let (to, partial) = (site.path("b.db"), site.path("b.db.partial"));
    let precious = site.path("precious");
    fs::write(&precious, "precious").unwrap();
    let refused = |what: &str| {
        let refused = site.run(&["backup", to.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(74), "{what}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("not an unfinished backup"), "{what}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious", "{what}");
        fs::remove_file(&partial).unwrap();
    };
    std::os::unix::fs::symlink(&precious, &partial).unwrap();
    refused("a symbolic link");
    fs::hard_link(&precious, &partial).unwrap();
    refused("a hard link");

    fs::write(&partial, "half of a backup that was killed").unwrap();
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(site.run(&["backup", to.to_str().unwrap()]).status.success());
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_database_with_a_log_is_not_restored_even_if_its_owner_cannot_see_the_log() {
    let site = site(SCRIPT);
    let folder = site.store().parent().unwrap().to_owned();
    if fs::metadata(&folder).unwrap().uid() == 0 {
        // Root's command switches to the store's owner, who cannot read root's folders.
        chown(&folder, Some(65_534), Some(65_534)).unwrap();
    }
    let hidden = tempfile::tempdir().unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
    let copy = hidden.path().join("copy.db");
    fs::write(&copy, "").unwrap();
    fs::write(hidden.path().join("copy.db-wal"), "the last commits").unwrap();
    let refused = site.run(&["restore", copy.to_str().unwrap()]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(65), "{said}");
    assert!(said.contains("has a write-ahead log beside it"), "{said}");
    assert!(!site.store().exists());
}

#[test]
fn the_copy_for_a_killed_backup_command_is_deleted() {
    let site = site(SCRIPT);
    assert_eq!(site.start().stop(), Some(0));
    enlarge(&site.store());
    let receiver = site.start();
    let copying = site.path("store.db.copying");
    let mut caller = site
        .command(&["backup", site.path("b.db").to_str().unwrap()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(|| copying.exists());
    caller.kill().unwrap();
    caller.wait().unwrap();
    until(|| !copying.exists());
    // The receiver is unaffected, and can make another backup.
    deliver(&receiver, "evt_1");
    let made = site.run(&["backup", site.path("b.db").to_str().unwrap()]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(site.path("b.db").exists() && !site.path("b.db.partial").exists());
}

#[test]
fn a_store_in_use_is_not_replaced_and_its_runner_refuses_the_restored_store() {
    let site = site(&format!("{SCRIPT}\nread -r line < \"$SITE/gate\""));
    mkfifo(&site);
    let receiver = site.start();
    deliver(&receiver, "evt_1");
    until(|| !site.lines("ledger.txt").is_empty());
    let backup = site.path("b.db");
    let backup = backup.to_str().unwrap();
    assert!(site.run(&["backup", backup]).status.success());
    let refused = site.run(&["restore", backup, "--replace"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(69), "{said}");
    assert!(said.contains(&format!("pid {}", receiver.pid())), "{said}");
    receiver.kill();
    let refused = site.run(&["restore", backup]);
    assert_eq!(refused.status.code(), Some(65), "{}", text(&refused.stderr));

    // The command still runs, under the runner that the dead receiver had launched.
    let restored = site.run(&["restore", backup, "--replace"]);
    let said = text(&restored.stdout);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert!(said.starts_with("gap ") && said.contains("stripe events resend"), "{said}");
    assert!(said.contains(".replaced-") && said.contains("held --reason restored"), "{said}");
    let receiver = site.start();
    deliver(&receiver, "evt_2");
    let why = || {
        let status = site.json_of_any_exit(&["status"]);
        status["runners"][0]["why"].as_str().unwrap_or_default().to_owned()
    };
    until(|| why().contains("are not acknowledged"));
    assert_eq!(site.lines("ledger.txt"), ["evt_1 1"], "no job of the new store was started");
    fs::write(site.path("gate"), "end\n").unwrap();
    let held = site.json(&["held"]);
    assert_eq!(held[0]["reason"], "restored");

    // The operator ends both as the refusal says; then the new store gets a new runner.
    let refusal = why();
    let ledger = refusal.split_once("`rm ").unwrap().1.split('`').next().unwrap();
    receiver.kill();
    runner::kill_runner(&site.store());
    fs::remove_file(ledger).unwrap();
    let _receiver = site.start();
    until(|| site.lines("ledger.txt").contains(&"evt_2 1".to_owned()));
    fs::write(site.path("gate"), "end\n").unwrap();
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded"));
    assert!(!site.lines("ledger.txt").contains(&"evt_1 2".to_owned()));
}

#[test]
fn after_a_restore_only_events_in_the_backup_are_duplicates() {
    let site = site(SCRIPT);
    let receiver = site.start();
    deliver(&receiver, "evt_known");
    site.all_jobs(1, "succeeded");
    let backup = site.path("b.db");
    let backup = backup.to_str().unwrap();
    assert!(site.run(&["backup", backup]).status.success());
    deliver(&receiver, "evt_gap");
    site.all_jobs(2, "succeeded");
    assert_eq!(receiver.stop(), Some(0));
    assert!(site.run(&["restore", backup, "--replace"]).status.success());

    let receiver = site.start();
    for id in ["evt_known", "evt_gap"] {
        let body = stripe_event(id, "invoice.paid", "");
        let answer = post(receiver.address, "/stripe", &stripe_header(&body, 0), body.as_bytes());
        let expected = if id == "evt_gap" { "accepted" } else { "duplicate" };
        assert_eq!(answer.1["status"], expected, "{id}");
    }
    site.all_jobs(2, "succeeded");
    let mut ledger = site.lines("ledger.txt");
    ledger.sort();
    assert_eq!(ledger, ["evt_gap 1", "evt_gap 1", "evt_known 1"], "as the README says");
}
