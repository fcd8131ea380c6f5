//! Listings, jobs that wait for the operator, and commands for many jobs at once.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operator::{fails, id, of, text};
use crate::support::{PATIENCE, Site, install, needs, stripe_event};

/// The commands of `silent` are killed by a signal; those of `reject` and `all` reject the event.
const HANDLERS: &str = r#"
[handlers.silent]
source = "stripe"
events = ["silent.*"]
command = ["./silent"]
[handlers.reject]
source = ["stripe", "github"]
events = ["reject.*", "push"]
command = ["./reject"]
[handlers.all]
source = "github"
events = ["other"]
command = ["./reject"]
"#;

fn site() -> Site {
    let site = Site::new(HANDLERS);
    site.script("silent", "kill -KILL $$");
    site.script("reject", r#"echo "$HOOKLATCH_EVENT_ID $HOOKLATCH_JOB" >> "$SITE/ran"; exit 65"#);
    site
}

fn stripe(receiver: &crate::support::Receiver, events: &[(&str, &str)]) {
    for (event, kind) in events {
        receiver.stripe(&stripe_event(event, kind, ""), 0);
    }
}

fn count(listed: &Value) -> usize {
    listed.as_array().unwrap().len()
}

/// The event ids of a listing, in its order.
fn ids(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|row| row["event_id"].as_str().unwrap()).collect()
}

#[test]
fn events_and_jobs_are_filtered_by_the_same_options() {
    let site = site();
    let receiver = site.start();
    stripe(&receiver, &[("evt_1", "silent.end"), ("evt_2", "reject.it"), ("evt_3", "other.it")]);
    receiver.github("d-1", "push", r#"{"a":1}"#);
    site.jobs_when(|jobs| {
        jobs.len() == 3
            && jobs.iter().all(|job| job["state"] != "running" && job["state"] != "ready")
    });

    let events = |args: &[&str]| site.json(&[&["events"], args].concat());
    assert_eq!(ids(&events(&["--state", "held"])), ["evt_1"]);
    assert_eq!(ids(&events(&["--state", "dead"])), ["d-1", "evt_2"]);
    assert_eq!(ids(&events(&["--type", "*.it"])), ["evt_3", "evt_2"]);
    assert_eq!(ids(&events(&["--type", "reject.?t"])), Vec::<&str>::new(), "only * is special");
    assert_eq!(count(&events(&["--since", "1h"])), 4);
    let jobs = |args: &[&str]| site.json(&[&["jobs"], args].concat());
    assert_eq!(ids(&jobs(&["--reason", "unknown-outcome"])), ["evt_1"]);
    assert_eq!(ids(&jobs(&["--type", "reject.*", "--source", "stripe"])), ["evt_2"]);
    assert_eq!(count(&jobs(&["--since", "1h", "--handler", "reject"])), 2);
    assert_eq!(fails(&site, &["jobs", "--since", "2999-01-01"]).0, Some(2));
    let (code, said) = fails(&site, &["jobs", "--reason", "unknown"]);
    assert_eq!((code, said.contains("unknown outcome")), (Some(2), true), "{said}");
    assert_eq!(fails(&site, &["events", "--follow", "--state", "held"]).0, Some(2));

    // On a screen lines fit its width; in a pipe and with --wide texts are not cut.
    let long = "evt_".to_owned() + &"x".repeat(150);
    stripe(&receiver, &[(&long, "silent.with.a.rather.long.type.that.goes.on")]);
    site.jobs_when(|jobs| jobs.iter().filter(|job| job["state"] == "held").count() == 2);
    for command in ["events", "jobs", "held", "dead"] {
        let on_screen = |args: &[&str]| {
            let output = site.command(&[&[command], args].concat()).env("COLUMNS", "80").output();
            text(&output.unwrap().stdout)
        };
        let table = on_screen(&[]);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        for whole in [on_screen(&["--wide"]), text(&site.run(&[command]).stdout)] {
            assert_eq!(whole.contains(&long), command != "dead", "{whole}");
        }
    }
}

#[test]
fn held_and_dead_jobs_are_listed_with_the_command_that_resolves_them() {
    let site = site();
    let receiver = site.start();
    assert_eq!(text(&site.run(&["held"]).stdout), "nothing is held\n");
    assert_eq!(text(&site.run(&["dead"]).stdout), "no dead letters\n");
    stripe(&receiver, &[("evt_1", "silent.end"), ("evt_2", "reject.it")]);
    receiver.github("d-1", "push", r#"{"a":1}"#);
    receiver.github("d-2", "push", r#"{"a":1}"#);
    let jobs = site.jobs_when(|jobs| {
        jobs.len() == 4 && jobs.iter().all(|job| job["state"] == "held" || job["state"] == "dead")
    });

    let held = site.json(&["held"]);
    assert_eq!(ids(&held), ["d-2", "evt_1"]);
    let silent = id(of(&jobs, "evt_1"));
    let first = held[1]["settle"][0].as_str().unwrap();
    assert!(first.starts_with(&format!("hooklatch resolve {silent} --succeeded")), "{first}");
    assert_eq!(held[1]["last_detail"], "killed by signal 9");
    assert!(held[1]["stopped_at"].as_str().unwrap().ends_with('Z'));
    let table = text(&site.run(&["held"]).stdout);
    for wanted in
        [silent, "suspected replay", "hooklatch drop JOB", "hooklatch resolve JOB --failed"]
    {
        assert!(table.contains(wanted), "{table}");
    }
    let dead = text(&site.run(&["dead", "--source", "stripe"]).stdout);
    for wanted in [id(of(&jobs, "evt_2")), "rejected", "exit status 65", "hooklatch replay --job"] {
        assert!(dead.contains(wanted), "{dead}");
    }
    // The printed command resolves the job.
    let way: Vec<&str> = first.split(' ').skip(1).collect();
    assert!(site.run(&way).status.success());
    assert_eq!(ids(&site.json(&["held"])), ["d-2"]);
}

/// The ids in one column of a table on a screen.
fn column(site: &Site, args: &[&str], head: &str) -> Vec<String> {
    let table = text(&site.command(args).env("COLUMNS", "120").output().unwrap().stdout);
    let mut lines = table.lines();
    let at = lines.next().unwrap().find(head).unwrap();
    lines.map(|line| line[at..].split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_accepts_an_id_as_a_table_shows_it() {
    let site = site();
    let receiver = site.start();
    let event = "72d3162e-cc78-11e3-81ab-4c9367dc0958";
    receiver.github(event, "push", r#"{"a":1}"#);
    stripe(&receiver, &[("evt_1Long00000000000000001", "silent.a")]);
    stripe(&receiver, &[("evt_1Long00000000000000002", "silent.b")]);
    let jobs = site.jobs_when(|jobs| {
        jobs.len() == 3 && jobs.iter().all(|job| job["state"] == "held" || job["state"] == "dead")
    });
    // Newest first.
    let events = column(&site, &["events"], "EVENT");
    assert_eq!(events, ["evt_1Long00000000000000002", "evt_1Long00000000000000001", "72d3162e"]);
    assert_eq!(column(&site, &["events", "--wide"], "EVENT")[2], event);
    assert!(
        text(&site.run(&["events"]).stdout).contains(event),
        "output in a pipe is not shortened"
    );
    let short = column(&site, &["jobs"], "JOB");
    for (short, job) in short.iter().zip(&jobs) {
        assert!(id(job).starts_with(short) && short.len() < 20, "{short}");
    }

    assert_eq!(site.json(&["show", "72d3162e"])[0]["event"]["event_id"], event);
    assert_eq!(site.json(&["explain", "72d3162e"])[0]["event"], event);
    let shown = site.json(&["show", &short[2]]);
    assert_eq!(
        (&shown[0]["event"]["event_id"], id(&shown[0]["jobs"][0]["job"])),
        (&json!(event), id(&jobs[2]))
    );
    assert_eq!(site.json(&["explain", &short[2]])[0]["event"], event);
    assert_eq!(site.json(&["replay", "72d3162e"])["replayed"][0], id(&jobs[2]));
    site.jobs_when(|jobs| jobs[2]["attempt"] == 2 && jobs[2]["state"] == "dead");
    assert_eq!(site.json(&["replay", "--job", &short[2]])["replayed"][0], id(&jobs[2]));
    assert_eq!(site.json(&["resolve", &short[1], "--succeeded"])["job"], id(&jobs[1]));
    assert_eq!(site.json(&["drop", &short[0].to_uppercase()])["job"], id(&jobs[0]));
    let (code, said) = fails(&site, &["cancel", &short[0]]);
    assert_eq!((code, said.contains("is dropped")), (Some(65), true), "{said}");

    // An ambiguous or unknown id is refused.
    let (code, said) = fails(&site, &["replay", "evt_1Long"]);
    assert_eq!(
        (code, said.contains("event evt_1Long00000000000000001, ")),
        (Some(65), true),
        "{said}"
    );
    let (code, said) = fails(&site, &["show", "abcdef"]);
    assert_eq!(
        (code, said.contains("no event or job begins with 'abcdef'")),
        (Some(66), true),
        "{said}"
    );
    assert_eq!(fails(&site, &["drop", "abcdef"]).0, Some(66));
    assert_eq!(fails(&site, &["drop", "evt_1Long00000000000000001"]).0, Some(2));
}

#[test]
fn many_jobs_are_counted_and_then_replayed_or_dropped() {
    let site = site();
    let receiver = site.start();
    stripe(&receiver, &[("evt_1", "silent.end"), ("evt_2", "reject.a"), ("evt_3", "reject.b")]);
    receiver.github("d-1", "push", r#"{"a":1}"#);
    receiver.github("d-2", "push", r#"{"a":1}"#);
    let stopped = |jobs: &[Value], attempts: u64| {
        jobs.len() == 5
            && jobs.iter().all(|job| job["state"] == "held" || job["state"] == "dead")
            && jobs.iter().map(|job| job["attempt"].as_u64().unwrap()).sum::<u64>() == attempts
    };
    site.jobs_when(|jobs| stopped(jobs, 4));

    // Without a confirmation the command does nothing.
    let (code, said) = fails(&site, &["replay", "--state", "dead"]);
    assert_eq!((code, said.contains("--yes")), (Some(2), true), "{said}");
    let said = site.run(&["replay", "--state", "dead", "--dry-run"]);
    assert_eq!(text(&said.stdout), "3 jobs would be replayed: reject 3\n");
    let dry = site.json(&["replay", "--state", "held", "--dry-run"]);
    assert_eq!((&dry["matching"], &dry["suspected"]), (&json!(1), &json!(1)), "{dry}");
    assert!(site.jobs_when(|_| true).iter().all(|job| job["replays"] == 0));

    // Only matching jobs are replayed, each once.
    let said = site.run(&["replay", "--state", "dead", "--type", "reject.*", "--yes"]);
    assert_eq!(text(&said.stdout), "replayed 2 jobs: reject 2\n");
    let jobs = site.jobs_when(|jobs| stopped(jobs, 6));
    let replays = |event| of(&jobs, event)["replays"].as_u64().unwrap();
    assert_eq!(["evt_1", "evt_2", "evt_3", "d-1", "d-2"].map(replays), [0, 1, 1, 0, 0]);
    // A suspected replay runs only if the operator asks for it.
    let said = site.json(&["replay", "--state", "held", "--yes"]);
    assert_eq!((&said["done"], &said["suspected"]), (&json!(1), &json!(1)), "{said}");
    site.jobs_when(|jobs| stopped(jobs, 7));
    let by_reason = ["replay", "--state", "held", "--reason", "suspected replay", "--yes"];
    assert_eq!(site.json(&by_reason)["done"], 1);
    site.jobs_when(|jobs| stopped(jobs, 8));

    // The same with a stopped receiver.
    assert_eq!(receiver.stop(), Some(0));
    let said = site.json(&["drop", "--state", "dead", "--handler", "reject", "--yes"]);
    assert_eq!((&said["done"], &said["handlers"]["reject"]), (&json!(4), &json!(4)), "{said}");
    assert_eq!(
        text(&site.run(&["drop", "--state", "dead", "--yes"]).stdout),
        "no dead job matches\n"
    );
    assert_eq!(ids(&site.json(&["jobs", "--state", "held"])), ["evt_1"]);

    for wrong in [
        ["drop"].as_slice(),
        &["drop", "--state", "running", "--yes"],
        &["drop", "--handler", "reject", "--yes"],
        &["drop", "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b", "--handler", "reject"],
        &["replay", "--state", "succeeded", "--yes"],
        &["replay", "evt_1", "--state", "held"],
        &["replay", "evt_1", "--yes"],
        &["replay", "evt_1", "--new-key"],
        &["replay", "evt_1", "--reason", "rejected"],
        &["replay", "--job", "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b", "--yes"],
        &["replay", "--job", "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b", "--dry-run"],
        &["replay", "--since", "2h", "--yes"],
        &["drop", "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b", "--yes"],
        &["replay", "--state", "held", "--since", "2999-01-01", "--yes"],
    ] {
        assert_eq!(fails(&site, wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_job_replayed_with_a_new_key_keeps_its_old_key_on_record() {
    let site = site();
    let receiver = site.start();
    stripe(&receiver, &[("evt_1", "reject.a")]);
    let old = id(&site.all_jobs(1, "dead")[0]).to_owned();
    let said = site.json(&["replay", "--job", &old, "--new-key"]);
    let new = said["replayed"][0].as_str().unwrap().to_owned();
    assert_eq!((new != old, &said["replaced"]), (true, &json!(old)));
    site.jobs_when(|jobs| id(&jobs[0]) == new && jobs[0]["state"] == "dead");
    assert_eq!(site.lines("ran"), [format!("evt_1 {old}"), format!("evt_1 {new}")]);
    let shown = site.json(&["show", "evt_1"]);
    let job = &shown[0]["jobs"][0];
    assert_eq!(
        (&job["former_keys"][0]["key"], &job["former_keys"][0]["attempt"]),
        (&json!(old), &json!(1))
    );
    assert_eq!(job["attempts"][1]["number"], 2);
    assert!(text(&site.run(&["show", "evt_1"]).stdout).contains(&format!("key was {old}")));
    assert_eq!(fails(&site, &["replay", "--job", &old, "--new-key"]).0, Some(66));
}

#[test]
fn events_are_followed_across_a_restart_of_the_receiver() {
    let site = site();
    let said = site.run(&["events", "--follow"]);
    assert_eq!(said.status.code(), Some(66), "there is no store yet");
    let receiver = site.start();
    stripe(&receiver, &[("evt_0", "other.it"), ("evt_1", "other.it")]);
    let mut child = site
        .command(&["events", "--follow", "--json", "--limit", "1", "--source", "stripe"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = || {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["event_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(next(), "evt_1");
    stripe(&receiver, &[("evt_2", "other.it")]);
    receiver.github("d-1", "ping", "{}");
    assert_eq!(next(), "evt_2");
    assert_eq!(receiver.stop(), Some(0));
    assert!(said.next().unwrap().unwrap().contains("waiting for it"));
    let receiver = site.start();
    stripe(&receiver, &[("evt_3", "other.it"), ("evt_4", "other.it")]);
    assert_eq!([next(), next()], ["evt_3", "evt_4"]);
    child.kill().unwrap();
    child.wait().unwrap();
    // Without a receiver the command prints the stored events and ends, so that it does not keep the lock.
    assert_eq!(receiver.stop(), Some(0));
    let said = site.run(&["events", "--follow"]);
    let (said, lines) = (said.status.success(), text(&said.stdout));
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((said, lines.len()), (true, 7));
    // Each value begins in the column of its head.
    let places = |word| lines[0].find(word).unwrap();
    assert_eq!(lines[0].split_whitespace().next(), Some("RECEIVED"));
    for line in &lines[1..] {
        for (word, nth) in [("SOURCE", 2), ("TYPE", 3), ("EVENT", 4)] {
            let place = line.match_indices(line.split_whitespace().nth(nth).unwrap());
            assert!(place.into_iter().any(|(at, _)| at == places(word)), "{lines:#?}");
        }
    }
}

#[test]
fn followed_events_are_rows_below_one_head() {
    let site = site();
    let receiver = site.start();
    let mut child = site.command(&["events", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut shown = vec![lines.next().unwrap()];
    for event in ["evt_1", "evt_2"] {
        stripe(&receiver, &[(event, "other.it")]);
        shown.push(lines.next().unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let begins = ["RECEIVED", "evt_1", "evt_2"];
    assert!(shown.iter().zip(begins).all(|(line, word)| line.contains(word)), "{shown:#?}");
}

/// Whether the test runs as root, which can become other users. If not, it is noted as a need of this test.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        needs::missing("root", "run cargo test as root");
    }
    is_root
}

#[test]
fn root_leaves_no_file_of_root_next_to_another_users_store() {
    /// The usual id of the user `nobody`; the user need not exist.
    const OTHER: u32 = 65534;
    if !is_root() {
        return;
    }
    let site = site();
    let receiver = site.start();
    stripe(&receiver, &[("evt_1", "silent.end"), ("evt_2", "reject.a")]);
    site.jobs_when(|jobs| {
        jobs.len() == 2 && jobs.iter().all(|job| job["state"] == "held" || job["state"] == "dead")
    });
    assert_eq!(receiver.stop(), Some(0));
    let folder = site.config().parent().unwrap().to_owned();
    // The runner must have exited before its folder gets another owner.
    crate::support::runner::end_runner(&site.store());
    let owned =
        Command::new("chown").args(["-R", &format!("{OTHER}:{OTHER}")]).arg(&folder).status();
    assert!(owned.unwrap().success());
    // Another user cannot read the folder of the built program.
    let program = folder.join("hooklatch");
    install(fs::File::open(env!("CARGO_BIN_EXE_hooklatch")).unwrap(), &program);
    chown(&program, Some(OTHER), Some(OTHER)).unwrap();
    let config = site.config();
    let run = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(args).env("HOOKLATCH_CONFIG", &config).stdin(Stdio::null());
        command.env_remove("INVOCATION_ID").env("HOME", "/root");
        command
    };
    // `find ! -user` would also print a file that a runner renames during the walk.
    let strangers = || -> Vec<_> {
        let walk = Command::new("find").arg(&folder).args(["-printf", "%U %p\\n"]).output();
        let files = text(&walk.unwrap().stdout);
        assert!(files.lines().count() > 3, "{files}");
        let own = format!("{OTHER} ");
        files.lines().filter(|file| !file.starts_with(&own)).map(str::to_owned).collect()
    };
    for args in [["jobs"].as_slice(), &["drop", "--state", "dead", "--yes"], &["pause", "silent"]] {
        let output = run(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        assert_eq!(strangers(), Vec::<String>::new(), "{args:?}");
    }
    // The same for a receiver: it does not get root's home, and reads only files that the owner may read.
    let mut serve = run(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(serve.stderr.take().unwrap()).lines().map_while(Result::ok);
    let serving = lines.by_ref().any(|line| line.contains("\"serving\""));
    let process = format!("/proc/{}", serve.id());
    let owner = fs::metadata(&process).map(|found| found.uid()).ok();
    let environment = fs::read(format!("{process}/environ")).unwrap_or_default();
    // A command reaches it through its socket.
    let asked = run(&["resume", "silent"]).output().unwrap();
    let (left, asked) = (strangers(), asked.status.success());
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert_eq!((serving, owner, asked), (true, Some(OTHER), true));
    let of_root = text(&environment).split('\0').any(|one| one.starts_with("HOME="));
    assert!(!of_root, "it has root's home");
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn config_check_by_root_reads_secrets_that_the_stores_owner_cannot() {
    const OTHER: u32 = 65534;
    if !is_root() {
        return;
    }
    // Only root may enter it, like the folder of a unit's secrets.
    let roots = tempfile::tempdir().unwrap();
    let secret = roots.path().join("secret");
    fs::write(&secret, "a secret of this test\n").unwrap();
    let hub = format!(
        "[sources.hub]\nprovider = \"github\"\nsecrets = [\"file:{}\"]\n",
        secret.display()
    );
    let site = Site::new(&format!("{HANDLERS}{hub}"));
    for script in ["silent", "reject"] {
        site.script(script, "exit 0");
    }
    assert_eq!(site.start().stop(), Some(0));
    crate::support::runner::end_runner(&site.store());
    let folder = site.config().parent().unwrap().to_owned();
    chown(&folder, Some(OTHER), Some(OTHER)).unwrap();
    chown(site.store(), Some(OTHER), Some(OTHER)).unwrap();
    let checked = site.run(&["config", "check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
}

#[test]
fn root_does_not_follow_links_of_the_stores_owner_to_files_of_root() {
    const OTHER: u32 = 65534;
    if !is_root() {
        return;
    }
    let (site, roots) = (site(), tempfile::tempdir().unwrap());
    let receiver = site.start();
    assert_eq!(receiver.stop(), Some(0));
    crate::support::runner::end_runner(&site.store());
    let folder = site.config().parent().unwrap().to_owned();
    chown(&folder, Some(OTHER), Some(OTHER)).unwrap();
    let link = |name: &str, target: &Path| {
        let path = site.path(name);
        let _none = fs::remove_file(&path);
        symlink(target, &path).unwrap();
        lchown(&path, Some(OTHER), Some(OTHER)).unwrap();
    };
    let passwd = roots.path().join("passwd");
    fs::copy(site.store(), &passwd).unwrap();
    fs::rename(site.store(), site.path("kept.db")).unwrap();
    link("store.db", &passwd);
    let listed = || {
        let found = fs::read_dir(roots.path()).unwrap();
        found.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let restore = site.path("linked.db").display().to_string();
    link("linked.db", &passwd);
    for args in
        [["events"].as_slice(), &["backup", "/dev/null/x"], &["serve"], &["restore", &restore]]
    {
        let output = site.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{args:?}: {said}");
        assert!(said.contains("root does not follow it"), "{args:?}: {said}");
        assert_eq!(listed(), ["passwd"], "{args:?}");
    }
    // The same for a link in place of the lock, the only existing file that a command opens as root.
    let note = roots.path().join("note");
    fs::write(&note, "root's").unwrap();
    fs::remove_file(site.path("store.db")).unwrap();
    fs::rename(site.path("kept.db"), site.store()).unwrap();
    chown(&folder, Some(0), Some(0)).unwrap();
    link("store.db.lock", &note);
    assert_eq!(site.run(&["events"]).status.code(), Some(69));
    assert_eq!(fs::read_to_string(&note).unwrap(), "root's");
}

/// A command on a separate terminal, which `script` (util-linux) creates.
struct OnTerminal {
    script: std::process::Child,
    keys: std::process::ChildStdin,
    screen: mpsc::Receiver<u8>,
    seen: String,
}

impl OnTerminal {
    fn new(site: &Site, args: &str) -> Self {
        let line = format!("exec '{}' {args}", env!("CARGO_BIN_EXE_hooklatch"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("HOOKLATCH_CONFIG", site.config());
        command.env("SHELL", "/bin/sh").env("TERM", "xterm").env_remove("INVOCATION_ID");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().unwrap();
        let keys = script.stdin.take().unwrap();
        let (tell, screen) = mpsc::channel();
        let shown = script.stdout.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(shown).bytes().map_while(Result::ok).try_for_each(|byte| tell.send(byte))
        });
        OnTerminal { script, keys, screen, seen: String::new() }
    }

    /// Waits until the text is on the screen.
    fn shows(&mut self, wanted: &str) {
        while !self.seen.contains(wanted) {
            match self.screen.recv_timeout(PATIENCE) {
                Ok(byte) => self.seen.push(char::from(byte)),
                Err(_) => panic!("'{wanted}' is not shown: {}", self.seen),
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// The command's process id: the child of `script`.
    fn pid(&self) -> rustix::process::Pid {
        let script = self.script.id();
        let children =
            fs::read_to_string(format!("/proc/{script}/task/{script}/children")).unwrap();
        let pid = children.split_whitespace().next().unwrap().parse().unwrap();
        rustix::process::Pid::from_raw(pid).unwrap()
    }

    fn ended(mut self) -> Option<i32> {
        self.script.wait().unwrap().code()
    }
}

/// A set of signals in the status of a process.
fn signals(pid: rustix::process::Pid, set: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap()
}

/// Sends SIGINT to a process once it catches that, and waits until it has noted the signal: none is pending, and all its
/// threads sleep again.
fn interrupt(pid: rustix::process::Pid) {
    use rustix::process::{Signal, kill_process};
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("it does not catch SIGINT", &|| signals(pid, "SigCgt:") & (1 << (2 - 1)) != 0);
    kill_process(pid, Signal::INT).unwrap();
    let sleeps = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tS"))
    };
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(Result::unwrap);
    until("it is still at it", &|| signals(pid, "ShdPnd:") == 0 && threads().all(sleeps));
}

#[test]
fn a_bulk_command_asks_first_and_can_be_interrupted_and_repeated() {
    use rustix::process::{Pid, Signal, kill_process};
    let site = site();
    let receiver = site.start();
    // One body under many ids: all but the first are held and do not run. There is one more than a batch.
    for nth in 0..=201 {
        receiver.github(&format!("d-{nth}"), "other", r#"{"a":1}"#);
    }
    let held = || count(&site.json(&["held", "--limit", "1000"]));
    assert_eq!(held(), 201);

    let mut asked = OnTerminal::new(&site, "drop --state held --handler all");
    asked.shows("drop 201 held jobs (all 201)? [y/N] ");
    asked.types("n\n");
    asked.shows("nothing was changed");
    assert_eq!((asked.ended(), held()), (Some(1), 201));

    // The command is interrupted while the first batch waits for the receiver.
    let itself = Pid::from_raw(i32::try_from(receiver.pid()).unwrap()).unwrap();
    let mut asked = OnTerminal::new(&site, "drop --state held --handler all");
    asked.shows("[y/N] ");
    kill_process(itself, Signal::STOP).unwrap();
    asked.types("y\n");
    interrupt(asked.pid());
    kill_process(itself, Signal::CONT).unwrap();
    asked.shows("ended by SIGINT");
    asked.shows("200 of 201 jobs were dropped and stay so; the same command goes on");
    assert_eq!((asked.ended(), held()), (Some(69), 1));
    let rest = site.json(&["drop", "--state", "held", "--yes"]);
    assert_eq!((&rest["done"], held()), (&json!(1), 0));
}
