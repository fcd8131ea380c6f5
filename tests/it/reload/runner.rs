//! A reload asks the runner first: it is refused if the runner cannot load the configuration, and no command
//! runs with a configuration that the runner does not have.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::{command, reload, reload_fails, stripe};
use crate::support::runner::kill_runner;
use crate::support::{PATIENCE, Site};

/// Waits for the next connection of a receiver.
pub(crate) fn accept(listener: &UnixListener) -> UnixStream {
    let long = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let came = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&long));
    assert_eq!(came, Ok(1), "no receiver connected");
    listener.accept().unwrap().0
}

/// Reads one frame's header.
pub(crate) fn read(stream: &mut UnixStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lengths = [0; 8];
    stream.read_exact(&mut lengths).unwrap();
    let [h0, h1, h2, h3, ..] = lengths;
    let mut header = vec![0; u32::from_be_bytes([h0, h1, h2, h3]) as usize];
    stream.read_exact(&mut header).unwrap();
    String::from_utf8(header).unwrap()
}

/// Answers the Hello of a receiver as a runner without attempts does.
pub(crate) fn admit(stream: &mut UnixStream) {
    let hello = read(stream);
    assert!(hello.contains("\"hello\""), "{hello}");
    say_list(stream);
}

fn say_list(stream: &mut UnixStream) {
    let list = json!({
        "say": "hello_ok", "version": 1, "draining": false, "free": 8, "answers_for": [], "attempts": [],
        "incarnation": hooklatch::runner::incarnation::new().unwrap(),
    });
    say(stream, &list);
}

fn say(stream: &mut UnixStream, message: &Value) {
    let text = message.to_string();
    let mut frame = (text.len() as u32).to_be_bytes().to_vec();
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    stream.write_all(&frame).unwrap();
}

/// Listens on the runner's socket; the test is the runner.
pub(crate) fn listen(site: &Site) -> UnixListener {
    let folder = hooklatch::runner::folder::of(&site.store());
    fs::create_dir_all(&folder).unwrap();
    UnixListener::bind(hooklatch::runner::folder::socket(&folder)).unwrap()
}

/// A separate runner process, without the receiver's environment.
struct Runner(Child);

impl Runner {
    fn start(site: &Site) -> Self {
        let mut command: Command = site.command(&["runner"]);
        command.env_remove("CREDENTIALS_DIRECTORY").stderr(std::process::Stdio::null());
        let child = command.spawn().unwrap();
        let end = std::time::Instant::now() + PATIENCE;
        while crate::support::runner::runner(&site.store()).is_none() {
            assert!(std::time::Instant::now() < end, "no runner listens");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Runner(child)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_reload_is_refused_if_the_runner_cannot_load_the_configuration() {
    let site = Site::new(&command("worker", ""));
    site.script("worker", "echo ${TOKEN:-none} >> $SITE/ran");
    fs::create_dir(site.path("credentials")).unwrap();
    fs::write(site.path("credentials/token"), "of the unit").unwrap();
    let runner = Runner::start(&site);
    let credentials = site.path("credentials");
    let receiver = site.start_with(&[("CREDENTIALS_DIRECTORY", credentials.to_str().unwrap())]);
    receiver.log_when(|line| line["message"] == "connected to the runner");

    // The receiver can read the credential, but the runner must.
    site.configure("", &command("worker", "env = { TOKEN = \"credential:token\" }"));
    let said = reload_fails(&site, 78);
    assert!(said.contains("runner 'default' cannot load it"), "{said}");
    assert!(
        said.contains("hooklatch.toml:") && said.contains("handlers.worker.env.TOKEN"),
        "{said}"
    );
    assert!(said.contains("'credential:token'"), "{said}");
    receiver
        .log_when(|line| line["why"].as_str().is_some_and(|why| why.contains("cannot load it")));
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.all_jobs(1, "succeeded");

    fs::write(site.path("token"), "of the file\n").unwrap();
    site.configure("", &command("worker", "env = { TOKEN = \"file:token\" }"));
    let reloaded = reload(&site);
    assert_eq!(reloaded["runners"], json!([{ "name": "default", "loaded": true }]));
    let secret = json!({
        "reference": "file:token", "of": "handler worker", "changed": null, "stays": null
    });
    assert!(reloaded["secrets"].as_array().unwrap().contains(&secret), "{reloaded}");
    assert_eq!(stripe(&receiver, "evt_2"), 200);
    site.all_jobs(2, "succeeded");
    // The runner also reads a new text under the same reference.
    fs::write(site.path("token"), "of the file, again\n").unwrap();
    reload(&site);
    assert_eq!(stripe(&receiver, "evt_3"), 200);
    site.all_jobs(3, "succeeded");
    assert_eq!(site.lines("ran"), ["none", "of the file", "of the file, again"]);
    assert_eq!(receiver.stop(), Some(0));
    drop(runner);
}

#[test]
fn a_limit_that_a_running_runner_cannot_change_is_refused() {
    let site = Site::new(&command("worker", ""));
    site.script("worker", "echo $HOOKLATCH_EVENT_ID >> $SITE/ran");
    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    site.configure("[limits]\nrunner_attempts_count = 7\n", &command("worker", "grace = \"1s\""));
    let said = reload_fails(&site, 78);
    for wanted in [
        "runner 'default' cannot load it",
        "limits.runner_attempts_count: a reload cannot change it from 256 to 7",
        "systemctl reload hooklatch-runner",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
    // The command that is in use is started, and the other one is not known.
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    assert_eq!(site.all_jobs(1, "succeeded")[0]["attempt"], 1);
    site.configure("", &command("worker", "grace = \"1s\""));
    assert_eq!(reload(&site)["handlers"]["changed"], json!(["worker"]));
    assert_eq!(stripe(&receiver, "evt_2"), 200);
    site.all_jobs(2, "succeeded");
}

#[test]
fn a_command_that_differs_in_the_runner_waits_for_a_reload() {
    a_command_that_differs_in_the_runner("", 2);
}

/// The pause of the handler is an hour: it neither spins nor runs again before the reload ends the pause.
#[test]
fn a_reload_ends_the_pause_of_a_command_that_differs_in_the_runner() {
    let limits =
        "[limits]\nhandler_backoff_base_millis = \"1h\"\nhandler_backoff_max_millis = \"1h\"\n";
    let attempt = a_command_that_differs_in_the_runner(limits, 1);
    assert_eq!(attempt, 2, "the attempt before the reload, and the one that it allows");
}

/// Waits until the runner has refused the command so often, and reloads. Returns the attempt that has succeeded.
fn a_command_that_differs_in_the_runner(limits: &str, refusals: usize) -> u64 {
    let site = Site::with(limits, &command("worker", ""));
    site.script("worker", "echo old >> $SITE/ran");
    site.script("new", "echo new >> $SITE/ran");
    let receiver = site.start();
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.all_jobs(1, "succeeded");
    // Without a reload the receiver keeps the old configuration, and a runner that starts now reads the new.
    site.configure(limits, &command("worker", "").replace("./worker", "./new"));
    kill_runner(&site.store());
    receiver.log_when(|line| line["message"] == "the connection to the runner is lost");
    receiver.log_when(|line| line["message"] == "connected to the runner");
    assert_eq!(stripe(&receiver, "evt_2"), 200);
    let refused = |line: &Value| line["message"] == "the handler cannot run and backs off";
    for _ in 0..refusals {
        receiver.log_when(refused);
    }
    let said = |job: &Value| job["last_detail"].as_str().unwrap_or_default().to_owned();
    let job = site.jobs_when(|jobs| !said(&jobs[0]).is_empty()).remove(0);
    let said = said(&job);
    assert!(said.contains("is configured otherwise in the runner"), "{said}");
    assert!(said.contains("hooklatch reload"), "{said}");
    assert_eq!(site.lines("ran"), ["old"]);

    assert_eq!(reload(&site)["handlers"]["changed"], json!(["worker"]));
    let jobs = site.all_jobs(2, "succeeded");
    assert_eq!(site.lines("ran"), ["old", "new"]);
    jobs.iter().find(|job| job["event_id"] == "evt_2").unwrap()["attempt"].as_u64().unwrap()
}

#[test]
fn a_runner_that_starts_after_a_reload_has_the_new_configuration() {
    let site = Site::new(&command("worker", ""));
    site.script("worker", "echo old >> $SITE/ran");
    site.script("new", "echo new >> $SITE/ran");
    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    kill_runner(&site.store());
    receiver.log_when(|line| line["message"] == "the connection to the runner is lost");
    site.configure("", &command("worker", "").replace("./worker", "./new"));
    // Whether it is connected by now or not: the runner has the configuration when a job is claimed.
    reload(&site);
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ran"), ["new"]);
}

#[test]
fn a_reload_is_refused_if_the_runner_loaded_another_configuration() {
    let site = Site::new(&command("worker", ""));
    let listener = listen(&site);
    let runner = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        admit(&mut stream);
        let said: Value = serde_json::from_str(&read(&mut stream)).unwrap();
        assert_eq!(said["say"], "load");
        let other = json!({ "handler": "worker", "configuration": "00".repeat(32) });
        let number = &said["number"];
        let loaded = json!({ "say": "loaded", "number": number, "commands": [other] });
        say(&mut stream, &loaded);
        (stream, listener)
    });
    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    let said = reload_fails(&site, 69);
    assert!(said.contains("runner 'default' reads handler worker otherwise"), "{said}");
    drop((runner.join().unwrap(), receiver));
}

#[test]
fn a_connection_that_began_before_the_reload_is_replaced() {
    let site = Site::new(&command("worker", ""));
    let listener = listen(&site);
    let receiver = site.start();
    let mut old = accept(&listener);
    assert!(read(&mut old).contains("\"hello\""));
    // The runner has read the configuration by now, but has not answered yet.
    site.configure("", &command("worker", "concurrency = 2"));
    assert_eq!(reload(&site)["runners"][0]["loaded"], false);
    say_list(&mut old);
    let mut young = accept(&listener);
    admit(&mut young);
    receiver.log_when(|line| {
        line["message"] == "connecting anew: the configuration was reloaded meanwhile"
    });
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    assert!(read(&mut young).contains("\"start\""), "the command starts over the new connection");
    assert_eq!(old.read(&mut [0]).unwrap(), 0, "the old connection was closed without a message");
    drop(receiver);
}
