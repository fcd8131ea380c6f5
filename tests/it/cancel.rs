//! The operator cancels running commands.

use serde_json::json;

use crate::operator::{fails, id, of, text};
use crate::promises::lives;
use crate::support::{Receiver, Site, stripe_event};

/// Handlers whose commands react differently to the signal that ends them.
const HANDLERS: &str = r#"
[handlers.sleeper]
source = "stripe"
events = ["sleep.*"]
command = ["./sleeper"]
concurrency = 3
[handlers.polite]
source = "stripe"
events = ["polite.*"]
command = ["./polite"]
[handlers.deaf]
source = "stripe"
events = ["deaf.*"]
command = ["./deaf"]
grace = "200ms"
[handlers.failing]
source = "stripe"
events = ["fail.*"]
command = ["./failing"]
"#;

/// Writes down its process id and that of a child, and runs until it is ended. A replay ends at once.
const SLEEPER: &str = r#"
[ "$HOOKLATCH_REPLAY" = 0 ] || exit 0
sleep 1000 &
echo "$$ $!" >> "$SITE/$HOOKLATCH_EVENT_ID"
wait
"#;

fn site() -> Site {
    let site = Site::new(HANDLERS);
    site.script("sleeper", SLEEPER);
    site.script("polite", "trap 'exit 0' TERM\nsleep 1000 &\necho $$ > \"$SITE/polite.pid\"\nwait");
    site.script("deaf", "trap '' TERM\necho $$ > \"$SITE/deaf.pid\"\nexec sleep 1000");
    site.script("failing", "exit 1");
    site
}

/// Delivers an event, waits until its command has written to the file `note`, and returns its job.
fn runs(site: &Site, receiver: &Receiver, event: &str, kind: &str, note: &str) -> String {
    receiver.stripe(&stripe_event(event, kind, ""), 0);
    let jobs = site.jobs_when(|jobs| {
        let noted = !site.lines(note).is_empty();
        noted && jobs.iter().any(|job| job["event_id"] == event && job["state"] == "running")
    });
    id(of(&jobs, event)).to_owned()
}

#[test]
fn a_cancelled_command_is_ended_with_its_children_and_its_job_is_held() {
    let site = site();
    let receiver = site.start();
    let [first, second, third] =
        ["evt_1", "evt_2", "evt_3"].map(|event| runs(&site, &receiver, event, "sleep.long", event));

    let said = site.json(&["cancel", &first]);
    let held = json!({ "job": first, "attempt": 1, "state": "held", "reason": "cancelled" });
    assert_eq!(said, held);
    for pid in site.lines("evt_1")[0].split(' ') {
        assert!(!lives(pid), "{pid} runs on");
    }
    let said = site.run(&["cancel", &second]);
    assert_eq!(text(&said.stdout), format!("job {second} is held: cancelled\n"));
    let said = site.run(&["cancel", &third, "--no-wait"]);
    let asked = format!("job {third} is asked to end; it runs attempt 1\n");
    assert_eq!(text(&said.stdout), asked);
    site.all_jobs(3, "held");
    let rows = site.json(&["audit", "--verb", "cancel"]);
    let results = rows.as_array().unwrap().iter().map(|row| row["result"].as_str().unwrap());
    assert_eq!(results.collect::<Vec<_>>(), ["done", "asked"].repeat(3));
    assert_eq!(rows[0]["subject"], json!({ "job": third, "attempt": 1 }));

    // Like any held job, it can be replayed, resolved or dropped.
    let (code, said) = fails(&site, &["cancel", &first]);
    assert_eq!(code, Some(65));
    assert!(said.contains("is held, which cannot be cancelled"), "{said}");
    assert!(said.contains("jobs --state running"), "{said}");
    assert!(site.run(&["replay", "--job", &first]).status.success());
    assert!(site.run(&["resolve", &second, "--succeeded"]).status.success());
    assert!(site.run(&["drop", &third]).status.success());
    site.jobs_when(|jobs| of(jobs, "evt_1")["state"] == "succeeded");
    let shown = site.json(&["show", "evt_1"]);
    let attempts = shown[0]["jobs"][0]["attempts"].as_array().unwrap();
    let outcomes: Vec<_> = attempts.iter().map(|one| one["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["cancelled", "succeeded"]);
}

#[test]
fn a_cancelled_command_that_exits_0_within_its_grace_has_succeeded() {
    let site = site();
    let receiver = site.start();
    let job = runs(&site, &receiver, "evt_1", "polite.one", "polite.pid");
    let said = site.run(&["cancel", &job]);
    assert_eq!(text(&said.stdout), format!("job {job} is succeeded\n"));
}

#[test]
fn a_cancelled_command_that_ignores_sigterm_is_killed_after_its_grace() {
    let site = site();
    let receiver = site.start();
    let job = runs(&site, &receiver, "evt_1", "deaf.one", "deaf.pid");
    let said = site.run(&["cancel", &job]);
    assert_eq!(text(&said.stdout), format!("job {job} is held: cancelled\n"));
    assert!(!lives(&site.lines("deaf.pid")[0]));
    let shown = site.json(&["show", "evt_1"]);
    assert_eq!(shown[0]["jobs"][0]["attempts"][0]["record"]["signal"], 9);
}

#[test]
fn a_waiting_job_and_a_sent_forward_cannot_be_cancelled() {
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = endpoint.local_addr().unwrap();
    let forward = format!(
        "{HANDLERS}\n[handlers.sent]\nsource = \"stripe\"\nevents = [\"sent.*\"]\n\
         forward = \"http://{address}/\"\n"
    );
    let site = site();
    site.configure("", &forward);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "fail.one", ""), 0);
    receiver.stripe(&stripe_event("evt_2", "sent.one", ""), 0);
    let (_unanswered, _) = endpoint.accept().unwrap();
    let jobs = site.jobs_when(|jobs| jobs.len() == 2 && of(jobs, "evt_1")["state"] == "waiting");

    let waiting = id(of(&jobs, "evt_1"));
    let (code, said) = fails(&site, &["cancel", waiting]);
    assert_eq!((code, said.contains("is waiting, which cannot be cancelled")), (Some(65), true));
    assert!(said.contains(&format!("hooklatch drop {waiting}")), "{said}");
    let (code, said) = fails(&site, &["cancel", id(of(&jobs, "evt_2"))]);
    assert_eq!((code, said.contains("cannot be called back")), (Some(65), true), "{said}");
    assert!(said.contains("timeout"), "{said}");
    let unknown = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b";
    assert_eq!(fails(&site, &["cancel", unknown]).0, Some(66));
    assert_eq!(fails(&site, &["cancel", "evt_1"]).0, Some(2));
}

#[test]
fn cancelling_needs_a_receiver_and_reaches_commands_of_an_earlier_one() {
    let site = site();
    let receiver = site.start();
    let job = runs(&site, &receiver, "evt_1", "sleep.long", "evt_1");
    assert_eq!(receiver.stop(), Some(0));
    let (code, said) = fails(&site, &["cancel", &job]);
    assert_eq!((code, said.contains("no receiver runs")), (Some(69), true), "{said}");
    assert!(said.contains("hooklatch serve --config"), "{said}");
    assert!(lives(site.lines("evt_1")[0].split(' ').next().unwrap()));

    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    let said = site.run(&["cancel", &job]);
    assert_eq!(text(&said.stdout), format!("job {job} is held: cancelled\n"));
}
