//! Deaths during a copy, a migration or a restore of a store: afterwards there is the complete old store
//! or the complete new one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;

use hooklatch::crash::{MIGRATE, VARIABLE};
use rusqlite::Connection;

use super::case::{delivered, must_die};
use crate::support::Site;

/// Deaths of a receiver that makes a backup.
const OF_A_COPY: &[&str] = &["copy.step"];

/// Deaths of a process that opens a store of an earlier schema; then whether the copy has its final name,
/// and whether the schema is the new one.
const OF_A_MIGRATION: &[(&str, bool, bool)] = &[
    ("before.copied", false, false),
    ("before.named", true, false),
    ("migrate.commit.before", true, false),
    ("migrate.commit.after", true, true),
];

/// Deaths of `restore --replace`, and whether the store is the new one then.
const OF_A_RESTORE: &[(&str, bool)] = &[
    ("restore.copied", false),
    ("restore.changed", false),
    ("restore.decided", true),
    ("restore.aside", true),
    ("restore.log.aside", true),
    ("restore.named", true),
];

/// All points of this file, for the test that every fail point has a death.
pub(crate) const POINTS: &[&str] = &[
    OF_A_COPY[0],
    OF_A_MIGRATION[0].0,
    OF_A_MIGRATION[1].0,
    OF_A_MIGRATION[2].0,
    OF_A_MIGRATION[3].0,
    OF_A_RESTORE[0].0,
    OF_A_RESTORE[1].0,
    OF_A_RESTORE[2].0,
    OF_A_RESTORE[3].0,
    OF_A_RESTORE[4].0,
    OF_A_RESTORE[5].0,
];

const NO_HANDLERS: &str = "";

fn armed(site: &Site, point: &str) -> String {
    let token = site.path("token");
    let _of_the_last = fs::remove_file(&token);
    format!("{point} 1 {}", token.display())
}

fn must_be_killed(output: &Output, site: &Site) {
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(site.path("token").exists());
}

fn ids(site: &Site) -> Vec<String> {
    let events = site.json(&["events"]);
    let id = |event: &serde_json::Value| event["event_id"].as_str().unwrap().to_owned();
    let mut ids: Vec<String> = events.as_array().unwrap().iter().map(id).collect();
    ids.sort();
    ids
}

/// The files next to the store, except for those that are always there.
fn extra_files(site: &Site) -> Vec<String> {
    let entries = fs::read_dir(site.store().parent().unwrap()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("store.db."))
        .filter(|name| {
            !["lock", "ballast", "sock", "mark"].iter().any(|usual| name.ends_with(usual))
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_receiver_death_during_a_backup_leaves_no_backup_and_no_copy() {
    let site = Site::new(NO_HANDLERS);
    let receiver = site.start_with(&[(VARIABLE, &armed(&site, OF_A_COPY[0]))]);
    assert!(delivered(&receiver, "evt_1"));
    let made = site.run(&["backup", site.path("b.db").to_str().unwrap()]);
    assert_eq!(made.status.code(), Some(69), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(!site.path("b.db").exists() && !site.path("b.db.partial").exists());
    must_die(receiver);
    assert_eq!(extra_files(&site), ["store.db.copying"]);
    let receiver = site.start();
    assert!(extra_files(&site).is_empty(), "{:?}", extra_files(&site));
    assert_eq!(ids(&site), ["evt_1"]);
    drop(receiver);
}

#[test]
fn a_death_during_a_restore_leaves_the_old_store_or_the_new_one() {
    for (point, is_new) in OF_A_RESTORE {
        let site = Site::new(NO_HANDLERS);
        let receiver = site.start();
        assert!(delivered(&receiver, "evt_in_backup"));
        let backup = site.path("b.db");
        assert!(site.run(&["backup", backup.to_str().unwrap()]).status.success());
        assert!(delivered(&receiver, "evt_later"));
        // Killed, so that the last commit is only in the log.
        receiver.kill();
        let died = site
            .command(&["restore", backup.to_str().unwrap(), "--replace"])
            .env(VARIABLE, armed(&site, point))
            .output()
            .unwrap();
        must_be_killed(&died, &site);

        // The next receiver opens one of the two stores and accepts events.
        let receiver = site.start();
        let old = ["evt_in_backup", "evt_later"];
        assert_eq!(ids(&site), if *is_new { &old[..1] } else { &old[..] }, "{point}");
        assert!(delivered(&receiver, "evt_new"), "{point}");
        assert_eq!(receiver.stop(), Some(0));
        if *is_new {
            // The replaced store is complete too, with its log.
            let aside = extra_files(&site);
            let aside = aside.iter().find(|name| name.contains(".replaced-")).unwrap();
            let aside = site.path(aside.trim_end_matches("-wal"));
            let conn = Connection::open(&aside).unwrap();
            let events: i64 =
                conn.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
            assert_eq!(events, 2, "{point}");
        } else {
            // The restore can be repeated.
            let second = site.run(&["restore", backup.to_str().unwrap(), "--replace"]);
            assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
            assert_eq!(ids(&site), ["evt_in_backup"]);
        }
        let left = extra_files(&site);
        let whole = |name: &String| name.contains(".replaced-") && !name.contains("restor");
        assert!(left.iter().all(whole), "{point}: {left:?}");
    }
}

/// Creates a store with the first schema.
fn first_schema(path: &Path) {
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(&fs::read_to_string(migrations.join("0001_initial.sql")).unwrap()).unwrap();
    conn.execute_batch(
        "PRAGMA application_id = 0x5D2AC81B;
         PRAGMA user_version = 1;
         INSERT INTO meta (one, store_id, created_at, written_by)
             VALUES (1, x'00112233445566778899aabbccddeeff', 1, 'hooklatch 0.1.0');
         INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
             VALUES ('stripe', 'evt_old', 'a.b', zeroblob(32), 0, 1, 0);",
    )
    .unwrap();
}

#[test]
fn a_death_during_a_migration_changes_all_or_nothing_and_keeps_one_copy() {
    for (point, is_named, is_new) in OF_A_MIGRATION {
        let site = Site::new(NO_HANDLERS);
        first_schema(&site.store());
        let died = site
            .command(&["events"])
            .env(MIGRATE, "")
            .env(VARIABLE, armed(&site, point))
            .output()
            .unwrap();
        must_be_killed(&died, &site);
        let conn = Connection::open(site.store()).unwrap();
        let schema: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(schema > 1, *is_new, "{point}");
        drop(conn);
        let copy = |name: &String| name.contains(".before-") && !name.ends_with(".partial");
        let named = extra_files(&site).into_iter().find(copy);
        assert_eq!(named.is_some(), *is_named, "{point}");
        let inode = |name: &String| fs::metadata(site.path(name)).unwrap().ino();
        let named = named.map(|name| inode(&name));

        let receiver = site.start_with(&[(MIGRATE, "")]);
        let said = extra_files(&site);
        assert!(said.len() == 1 && copy(&said[0]), "{said:?}");
        // The next process uses the same copy: a second one would need as much space again.
        assert!(named.is_none_or(|named| named == inode(&said[0])), "{point}");
        assert_eq!(ids(&site), ["evt_old"]);
        assert_eq!(receiver.stop(), Some(0));
        let back = site.path(&said[0]);
        let back = site.run(&["restore", back.to_str().unwrap(), "--replace"]);
        assert!(back.status.success(), "{}", String::from_utf8_lossy(&back.stderr));
        assert_eq!(ids(&site), ["evt_old"]);
    }
}
