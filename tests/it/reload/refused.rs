//! A refused reload changes nothing and names the reason.

use std::fs;

use super::{SECRET, command, forward, github, jobs, reload, reload_fails, stripe};
use crate::support::Site;

#[test]
fn a_wrong_configuration_is_refused_with_its_position_and_the_old_one_stays() {
    let site = Site::new(&forward("all", "stripe"));
    let receiver = site.start();
    let good = fs::read_to_string(site.config()).unwrap();
    let file = site.config().display().to_string();
    let line = |text: &str, part: &str| text[..text.find(part).unwrap()].matches('\n').count() + 1;

    let unknown = good.replace("[handlers.all]", "[handlers.all]\nevnts = 1\n[handlers.more]");
    let unread = good.replacen("\"file:secret\"", "\"file:missing\"", 1);
    let broken = format!("{good}\n[handlers.x]\nsource = \"stripe\n");
    let cases = [
        (
            format!("{file}:{}:1: handlers.all.evnts: unknown key", line(&unknown, "evnts")),
            &unknown,
        ),
        (format!("{file}:{}:12: sources.github.secrets", line(&unread, "file:missing")), &unread),
        (format!("{file}:{}:17: ", line(&broken, "source = \"stripe\n")), &broken),
    ];
    for (wanted, text) in cases {
        site.write_config(text);
        let said = reload_fails(&site, 78);
        assert!(said.contains(&wanted), "{wanted} is not in\n{said}");
        // The message is that of `config check`.
        let checked = String::from_utf8(site.run(&["config", "check"]).stdout).unwrap();
        assert!(checked.contains(&wanted), "{wanted} is not in\n{checked}");
        let logged = receiver.log_when(|line| line["level"] == "ERROR");
        assert!(logged["why"].as_str().unwrap().contains(&wanted), "{logged}");
        receiver.hang_up();
        let logged = receiver.log_when(|line| line["level"] == "ERROR");
        assert!(logged["why"].as_str().unwrap().contains(&wanted), "{logged}");
        assert_eq!(github(&receiver, "/github", "d-1", SECRET), 200, "{wanted}");
    }
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.write_config(good);
    assert_eq!(jobs(&site)[0]["handler"], "all");
    reload(&site);
}

#[test]
fn a_sighup_reloads_a_valid_configuration() {
    let site = Site::new("");
    let receiver = site.start();
    site.configure("", &forward("all", "stripe"));
    receiver.hang_up();
    let line = receiver.log_when(|line| line["message"] == "reloaded");
    assert_eq!(line["handlers"], "added all");
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    assert_eq!(jobs(&site).len(), 1);
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn without_a_receiver_a_reload_is_refused() {
    let site = Site::new("");
    let said = reload_fails(&site, 69);
    assert!(said.contains("no receiver answers at"), "{said}");
    assert!(!site.store().exists(), "no store was created");
    site.write_config("[server\n");
    let said = reload_fails(&site, 78);
    assert!(said.contains("hooklatch.toml:1:"), "{said}");
}

#[test]
fn a_reload_during_a_stop_is_refused() {
    let site = Site::new(&command("worker", ""));
    site.script("worker", "exit 0");
    // The test is a runner that admits the receiver but does not answer its Load.
    let listener = super::runner::listen(&site);
    let runner = std::thread::spawn(move || {
        let mut stream = super::runner::accept(&listener);
        super::runner::admit(&mut stream);
        let said = super::runner::read(&mut stream);
        assert!(said.contains("\"load\""), "{said}");
        (stream, listener)
    });
    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    let asked = site.command(&["reload"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // A second reload waits for the first.
    let second = site.command(&["reload"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let (stream, listener) = runner.join().unwrap();
    assert_eq!(receiver.stop(), Some(0));
    for asked in [asked, second] {
        let output = asked.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(
            said.contains("the receiver is stopping") || said.contains("no receiver answers"),
            "{said}"
        );
    }
    drop((stream, listener));
}

#[test]
fn concurrent_reloads_run_one_after_the_other() {
    let site = Site::new("");
    let receiver = site.start();
    site.configure("", &forward("all", "stripe"));
    let asked: Vec<_> = (0..4)
        .map(|_| {
            site.command(&["reload", "--json"])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut added = 0;
    for asked in asked {
        let output = asked.wait_with_output().unwrap();
        assert!(output.status.success());
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        added += said["handlers"]["added"].as_array().unwrap().len();
    }
    assert_eq!(added, 1, "the others found no change");
    drop(receiver);
}

/// Reloads while another program holds the store's write lock: after the dispatcher has begun to work, or
/// before it could begin. A delivery that waits for the lock is refused when a statement has waited for 5 s, so a
/// reload that waits for the store is never done before that.
fn a_reload_over_a_store_that_cannot_be_written_to(at_work: bool) {
    let tables = "[limits]\ntick_millis = \"100ms\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let before = forward("before", "github");
    let site = Site::with(tables, &before);
    let (receiver, metrics) = crate::metrics::start(&site);
    let waiting = || {
        let page = crate::metrics::page(metrics);
        crate::metrics::samples(&page)["hooklatch_writer_queue_items"]
    };
    if at_work {
        assert_eq!(github(&receiver, "/github", "d-1", SECRET), 200);
        site.jobs_when(|jobs| jobs[0]["attempt"] != 0);
    }
    let other = rusqlite::Connection::open(site.store()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answers: Vec<u16> = std::thread::scope(|scope| {
        // The writer waits for the lock with the deliveries that it has taken, and one that comes later behind them.
        let mut deliveries = Vec::new();
        while waiting() == 0.0 {
            let id = format!("evt_before_{}", deliveries.len());
            let receiver = &receiver;
            deliveries.push(scope.spawn(move || stripe(receiver, &id)));
        }
        site.configure(tables, &[before, forward("all", "stripe")].concat());
        assert_eq!(reload(&site)["handlers"]["added"], serde_json::json!(["all"]));
        other.execute_batch("ROLLBACK").unwrap();
        deliveries.into_iter().map(|delivery| delivery.join().unwrap()).collect()
    });
    assert!(!answers.contains(&503), "the reload waits for the store: {answers:?}");
    assert!(
        answers.iter().all(|answer| *answer == 200),
        "accepted as configured at arrival: {answers:?}"
    );
    assert_eq!(stripe(&receiver, "evt_2"), 200);
    let jobs = jobs(&site);
    let made: Vec<_> = jobs.iter().filter(|job| job["handler"] == "all").collect();
    assert_eq!((made.len(), &made[0]["event_id"]), (1, &serde_json::json!("evt_2")));
    assert_eq!(made[0]["reason"], serde_json::Value::Null, "the job must not be held");
}

#[test]
fn a_store_that_cannot_be_written_does_not_delay_a_reload() {
    a_reload_over_a_store_that_cannot_be_written_to(true);
}

#[test]
fn a_store_that_cannot_be_recovered_yet_does_not_delay_a_reload() {
    a_reload_over_a_store_that_cannot_be_written_to(false);
}
