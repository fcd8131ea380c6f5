//! Several runners with different names: real processes on real sockets, started by the test as a
//! service manager would.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Receiver, Site, needs, stripe_event};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// `note` is the default runner's, `ship` another one's. A job that is to wait does so until the test lets
/// it go; each leaves a line with its attempt and the process that started it: the runner.
const HANDLERS: &str = r#"
[handlers.note]
source = "stripe"
events = ["note.*"]
command = ["./work"]
concurrency = 4
[handlers.ship]
source = "stripe"
events = ["ship.*"]
command = ["./work"]
concurrency = 4
runner = "deploy"
"#;

const WORK: &str = r#"
echo "$HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT $PPID" >> "$SITE/lines"
case "$HOOKLATCH_EVENT_TYPE" in *.wait) until [ -e "$SITE/go" ]; do sleep 0.02; done;; esac
"#;

/// A site whose runners are started by the test.
struct Yard {
    site: Site,
}

/// A runner; dropped, it is killed.
struct Runner(Child);

impl Yard {
    fn new(handlers: &str) -> Self {
        let yard = Yard { site: Site::new(handlers) };
        DirBuilder::new().mode(0o755).create(yard.sockets()).unwrap();
        yard.site.script("work", WORK);
        yard
    }

    /// The folder of the sockets.
    fn sockets(&self) -> PathBuf {
        self.site.path("sockets")
    }

    fn receiver(&self) -> Receiver {
        let mut command = self.site.command(&["serve"]);
        command.arg("--runners").arg(self.sockets());
        Receiver::of(command).unwrap()
    }

    /// The command that starts runner `name` in a separate folder, whose socket is linked to where the receiver
    /// looks for it.
    fn command(&self, name: &str) -> Command {
        let folder = self.site.path(name);
        let socket = format!("{name}.socket");
        let _there_already = symlink(folder.join(&socket), self.sockets().join(&socket));
        let mut command = self.site.command(&["runner", "--log", "warn", "--name", name]);
        command.arg("--folder").arg(folder);
        command
    }

    fn runner(&self, name: &str) -> Runner {
        Runner(self.command(name).spawn().unwrap())
    }

    /// What `event` has left: attempt and runner of each line.
    fn lines_of(&self, event: &str) -> Vec<(u32, u32)> {
        let lines = self.site.lines("lines");
        let words = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
        let own = words.filter(|words| words[0] == event);
        own.map(|words| (words[1].parse().unwrap(), words[2].parse().unwrap())).collect()
    }

    fn go(&self) {
        fs::write(self.site.path("go"), "").unwrap();
    }

    /// The status as programs read it, with any exit code.
    fn status(&self) -> Value {
        self.site.json_of_any_exit(&["status"])
    }

    fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let begun = Instant::now();
        while !reached() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", self.site.lines("lines"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until `event` has begun so many attempts.
    fn begun(&self, event: &str, attempts: usize) {
        self.until("it does not begin", || self.lines_of(event).len() >= attempts);
    }
}

impl Runner {
    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn deliver(receiver: &Receiver, event: &str, kind: &str) {
    assert_eq!(receiver.stripe(&stripe_event(event, kind, ""), 0).0, 200);
}

/// The one job of an event.
fn job(jobs: &[Value], event: &str) -> Value {
    jobs.iter().find(|job| job["event_id"] == event).unwrap().clone()
}

fn is(jobs: &[Value], event: &str, state: &str) -> bool {
    jobs.iter().any(|job| job["event_id"] == event && job["state"] == state)
}

/// Where `HANDLERS` says so of this one, another runner runs it.
fn moved(handler: &str, from: &str, to: &str) -> String {
    let (before, after) = HANDLERS.split_once(&format!("[handlers.{handler}]")).unwrap();
    format!("{before}[handlers.{handler}]{}", after.replacen(from, to, 1))
}

#[test]
fn no_runner_is_launched_and_the_error_names_the_unit() {
    let yard = Yard::new(HANDLERS);
    let receiver = yard.receiver();
    deliver(&receiver, "evt_1", "ship.now");
    for (name, unit) in
        [("default", "hooklatch-runner.service"), ("deploy", "hooklatch-runner@deploy.service")]
    {
        let socket = format!("{name}.socket");
        yard.until("nothing is said of it", || {
            let views = yard.status()["runners"].clone();
            let of = |view: &&Value| view["name"] == name;
            let view = views.as_array().unwrap().iter().find(of).unwrap().clone();
            let why = view["why"].as_str().unwrap_or_default().to_owned();
            view["connected"] == false && why.contains(unit) && why.contains(&socket)
        });
    }
    let screen = String::from_utf8(yard.site.run(&["status"]).stdout).unwrap();
    // Without the breaks between its lines.
    let screen = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains("systemctl status hooklatch-runner.service"), "{screen}");
    assert!(screen.contains("no command of runner deploy can run"), "{screen}");
    assert!(!yard.site.path("store.db.runner").exists() && yard.site.lines("lines").is_empty());
    let runner = yard.runner("deploy");
    yard.site.all_jobs(1, "succeeded");
    assert_eq!(yard.lines_of("evt_1"), [(1, runner.pid())]);
    assert!(yard.site.path("deploy/lock").exists());
    assert_eq!(receiver.stop(), Some(0));
}

/// Answers 204 to every request, for as long as the test runs.
fn endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _some = stream.read(&mut [0; 4096]);
            let _gone = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    });
    url
}

#[test]
fn a_runner_that_hangs_or_dies_delays_no_other_and_no_forward() {
    let tell = format!(
        "[handlers.tell]\nsource = \"stripe\"\nevents = [\"tell.*\"]\nforward = \"{}\"\n",
        endpoint()
    );
    let yard = Yard::new(&format!("{HANDLERS}{tell}"));
    let (default, deploy) = (yard.runner("default"), yard.runner("deploy"));
    let receiver = yard.receiver();
    deliver(&receiver, "evt_0", "ship.now");
    deliver(&receiver, "evt_1", "note.now");
    yard.site.all_jobs(2, "succeeded");
    assert_eq!(yard.lines_of("evt_0"), [(1, deploy.pid())]);
    assert_eq!(yard.lines_of("evt_1"), [(1, default.pid())]);

    // It reads and says nothing more, while it is asked to start some.
    deploy.signal(Signal::STOP);
    for n in 0..6 {
        deliver(&receiver, &format!("evt_hung_{n}"), "ship.now");
    }
    let others_run = |round: &str| {
        for n in 0..20 {
            deliver(&receiver, &format!("evt_{round}_note_{n}"), "note.now");
            deliver(&receiver, &format!("evt_{round}_tell_{n}"), "tell.now");
        }
        let others = |job: &&Value| job["handler"] != "ship";
        yard.site.jobs_when(|jobs| {
            let mut others = jobs.iter().filter(others);
            others.clone().any(|job| job["event_id"] == format!("evt_{round}_tell_19"))
                && others.all(|job| job["state"] == "succeeded")
        })
    };
    let jobs = others_run("hung");
    let ships = jobs.iter().filter(|job| job["handler"] == "ship");
    assert_eq!(ships.filter(|job| job["state"] == "succeeded").count(), 1, "the first one");
    deploy.signal(Signal::CONT);
    yard.site.all_jobs(48, "succeeded");

    // Killed while one of its commands runs: that one waits for its next life, which answers for it.
    deliver(&receiver, "evt_cut", "ship.wait");
    yard.begun("evt_cut", 1);
    drop(deploy);
    deliver(&receiver, "evt_later", "ship.now");
    let jobs = others_run("dead");
    assert!(is(&jobs, "evt_cut", "running") && is(&jobs, "evt_later", "ready"), "{jobs:#?}");
    let _deploy = yard.runner("deploy");
    let jobs = yard.site.jobs_when(|jobs| is(jobs, "evt_later", "succeeded"));
    let jobs = match is(&jobs, "evt_cut", "running") {
        true => yard.site.jobs_when(|jobs| !is(jobs, "evt_cut", "running")),
        false => jobs,
    };
    assert_eq!(job(&jobs, "evt_cut")["reason"], "unknown outcome");
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn a_command_goes_on_where_it_began_when_its_handler_moves_to_another_runner() {
    let yard = Yard::new(HANDLERS);
    let (default, deploy) = (yard.runner("default"), yard.runner("deploy"));
    let receiver = yard.receiver();
    deliver(&receiver, "evt_old", "note.wait");
    yard.begun("evt_old", 1);
    receiver.kill();
    let to_deploy = moved("note", "concurrency = 4", "concurrency = 4\nrunner = \"deploy\"");
    yard.site.configure("", &to_deploy);
    let receiver = yard.receiver();
    deliver(&receiver, "evt_new", "note.wait");
    yard.begun("evt_new", 1);
    assert_eq!(yard.lines_of("evt_new"), [(1, deploy.pid())]);
    // What the operator asks of each goes to the runner that has it.
    let old = job(&yard.site.jobs_when(|jobs| is(jobs, "evt_old", "running")), "evt_old");
    let views = yard.status()["runners"].clone();
    let running = views.as_array().unwrap().iter().map(|view| (&view["name"], &view["running"]));
    let both = [(&json!("default"), &json!(1)), (&json!("deploy"), &json!(1))];
    assert!(running.eq(both), "{views:#}");
    let held = yard.site.json(&["cancel", old["job"].as_str().unwrap()]);
    assert_eq!((&held["state"], &held["reason"]), (&json!("held"), &json!("cancelled")));
    yard.go();
    yard.site.jobs_when(|jobs| is(jobs, "evt_new", "succeeded"));
    assert_eq!(yard.lines_of("evt_old"), [(1, default.pid())]);
    // Replayed, it runs where its handler is now.
    yard.site.json(&["replay", "--job", old["job"].as_str().unwrap()]);
    yard.site.all_jobs(2, "succeeded");
    assert_eq!(yard.lines_of("evt_old"), [(1, default.pid()), (2, deploy.pid())]);
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn a_job_that_moved_runs_again_only_once_its_old_runner_has_proven_its_end() {
    let rerun = |handlers: &str| {
        handlers.replace("command = [", "on_unknown = \"rerun\"\ncommand = [").to_owned()
    };
    let limits = "[limits]\nbackoff_base_millis = \"1s\"\n";
    let yard = Yard::new("");
    yard.site.configure(limits, &rerun(HANDLERS));
    let (default, deploy) = (yard.runner("default"), yard.runner("deploy"));
    let receiver = yard.receiver();
    deliver(&receiver, "evt_moved", "note.wait");
    yard.begun("evt_moved", 1);
    receiver.kill();
    let first = default.pid();
    drop(default);
    let to_deploy = moved("note", "concurrency = 4", "concurrency = 4\nrunner = \"deploy\"");
    yard.site.configure(limits, &rerun(&to_deploy));
    let receiver = yard.receiver();
    // The new runner has room, and runs what comes; it is not asked what became of the old one's.
    for n in 0..5 {
        deliver(&receiver, &format!("evt_{n}"), "note.now");
        yard.site.jobs_when(|jobs| is(jobs, &format!("evt_{n}"), "succeeded"));
    }
    let jobs = yard.site.jobs_when(|_| true);
    assert_eq!(job(&jobs, "evt_moved")["state"], "running");
    assert_eq!(yard.lines_of("evt_moved"), [(1, first)]);
    // Its next life finds the command, ends it, and says so.
    let _default = yard.runner("default");
    yard.begun("evt_moved", 2);
    assert_eq!(yard.lines_of("evt_moved"), [(1, first), (2, deploy.pid())]);
    yard.go();
    let jobs = yard.site.jobs_when(|jobs| is(jobs, "evt_moved", "succeeded"));
    assert_eq!(job(&jobs, "evt_moved")["attempt"], 2);
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn attempts_at_a_runner_that_no_handler_names_are_awaited() {
    let yard = Yard::new(HANDLERS);
    let deploy = yard.runner("deploy");
    let receiver = yard.receiver();
    deliver(&receiver, "evt_1", "ship.wait");
    yard.begun("evt_1", 1);
    receiver.kill();
    let without = HANDLERS.split("[handlers.ship]").next().unwrap();
    yard.site.configure("", without);

    // A receiver that reaches no other runner says so, and guesses nothing.
    let alone = yard.site.start();
    yard.until("it does not say so", || {
        let why = yard.status()["runners"][1]["why"].clone();
        why.as_str().is_some_and(|why| why.contains("serve --runners"))
    });
    assert!(is(&yard.site.jobs_when(|_| true), "evt_1", "running"));
    alone.kill();

    let receiver = yard.receiver();
    yard.go();
    yard.site.all_jobs(1, "succeeded");
    assert_eq!(yard.lines_of("evt_1"), [(1, deploy.pid())]);
    assert_eq!(receiver.stop(), Some(0));
}

/// Reloads, which must succeed. Returns each runner that was asked, and whether it has read its commands.
fn reload(yard: &Yard) -> Vec<(String, bool)> {
    let told = yard.site.json(&["reload"])["runners"].clone();
    let one = |told: &Value| {
        (told["name"].as_str().unwrap().to_owned(), told["loaded"].as_bool().unwrap())
    };
    told.as_array().unwrap().iter().map(one).collect()
}

fn told(name: &str, loaded: bool) -> (String, bool) {
    (name.to_owned(), loaded)
}

#[test]
fn a_reload_moves_a_handler_and_what_runs_keeps_its_slot() {
    let one_at_once = HANDLERS.replacen("concurrency = 4", "concurrency = 1", 1);
    let yard = Yard::new(&one_at_once);
    let (default, deploy) = (yard.runner("default"), yard.runner("deploy"));
    let receiver = yard.receiver();
    deliver(&receiver, "evt_old", "note.wait");
    yard.begun("evt_old", 1);
    let (one, other) = ("concurrency = 1", "concurrency = 1\nrunner = \"deploy\"");
    yard.site.configure("", &one_at_once.replacen(one, other, 1));
    assert_eq!(reload(&yard), [told("default", true), told("deploy", true)]);

    // The new runner has room for it, and runs later events; its handler has no slot.
    deliver(&receiver, "evt_new", "note.now");
    for n in 0..5 {
        deliver(&receiver, &format!("evt_{n}"), "ship.now");
        yard.site.jobs_when(|jobs| is(jobs, &format!("evt_{n}"), "succeeded"));
    }
    let jobs = yard.site.jobs_when(|_| true);
    assert!(is(&jobs, "evt_old", "running") && is(&jobs, "evt_new", "ready"), "{jobs:#?}");
    yard.go();
    yard.site.all_jobs(7, "succeeded");
    assert_eq!(yard.lines_of("evt_old"), [(1, default.pid())]);
    assert_eq!(yard.lines_of("evt_new"), [(1, deploy.pid())]);
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn a_reload_brings_a_runner_and_takes_it_away() {
    let without = HANDLERS.split("[handlers.ship]").next().unwrap();
    let yard = Yard::new(without);
    let _default = yard.runner("default");
    let receiver = yard.receiver();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    yard.site.configure("", HANDLERS);
    assert_eq!(reload(&yard), [told("default", true), told("deploy", false)]);
    deliver(&receiver, "evt_1", "ship.now");
    let deploy = yard.runner("deploy");
    yard.site.all_jobs(1, "succeeded");
    assert_eq!(yard.lines_of("evt_1"), [(1, deploy.pid())]);

    // It is needed while it runs a command; then it may go without an error.
    deliver(&receiver, "evt_2", "ship.wait");
    yard.begun("evt_2", 1);
    yard.site.configure("", without);
    assert_eq!(reload(&yard), [told("default", true), told("deploy", true)]);
    assert_eq!(reload(&yard), [told("default", true), told("deploy", true)]);
    yard.go();
    yard.site.all_jobs(2, "succeeded");
    yard.until("it is still needed", || yard.status()["runners"].as_array().unwrap().len() == 1);
    drop(deploy);
    assert_eq!(reload(&yard), [told("default", true)]);

    // Back again, it has read its commands anew before one is claimed.
    let _deploy = yard.runner("deploy");
    yard.site.configure("", HANDLERS);
    let [(first, true), (second, _)] = &reload(&yard)[..] else { panic!("not both") };
    assert_eq!((first.as_str(), second.as_str()), ("default", "deploy"));
    deliver(&receiver, "evt_3", "ship.now");
    yard.site.all_jobs(3, "succeeded");
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn if_one_runner_refuses_a_reload_none_changes() {
    let yard = Yard::new(HANDLERS);
    let _runners = [yard.runner("default"), yard.runner("deploy")];
    let receiver = yard.receiver();
    for _ in 0..2 {
        receiver.log_when(|line| line["message"] == "connected to the runner");
    }
    yard.site.script("new", "echo \"$HOOKLATCH_EVENT_ID 0 $PPID\" >> \"$SITE/lines\"");
    let both = HANDLERS.replace("./work", "./new");
    // Several in a row, each with other commands than the one before it.
    for timeout in ["11s", "12s", "13s"] {
        let other =
            both.replacen("concurrency", &format!("timeout = \"{timeout}\"\nconcurrency"), 1);
        yard.site.configure("", &format!("{other}env = {{ TOKEN = \"file:token\" }}\n"));
        let refused = yard.site.run(&["reload"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(78), "{said}");
        assert!(said.contains("runner 'deploy' cannot load it"), "{said}");
        assert!(said.contains("handlers.ship.env.TOKEN"), "{said}");
    }
    for (event, kind) in [("evt_1", "note.now"), ("evt_2", "ship.now")] {
        deliver(&receiver, event, kind);
    }
    let jobs = yard.site.all_jobs(2, "succeeded");
    assert!(jobs.iter().all(|job| job["attempt"] == 1), "a runner has refused one: {jobs:#?}");
    assert_eq!((yard.lines_of("evt_1")[0].0, yard.lines_of("evt_2")[0].0), (1, 1), "the old ones");

    yard.site.configure("", &format!("{both}env = {{ TOKEN = \"file:token\" }}\n"));
    fs::write(yard.site.path("token"), "now\n").unwrap();
    assert_eq!(reload(&yard), [told("default", true), told("deploy", true)]);
    for (event, kind) in [("evt_3", "note.now"), ("evt_4", "ship.now")] {
        deliver(&receiver, event, kind);
    }
    yard.site.all_jobs(4, "succeeded");
    assert_eq!((yard.lines_of("evt_3")[0].0, yard.lines_of("evt_4")[0].0), (0, 0), "the new ones");
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn a_runner_starts_nothing_of_another_and_that_is_proven() {
    let yard = Yard::new(HANDLERS);
    let receiver = yard.receiver();
    // Between the receiver's start and the runner's, the handler was given to another.
    yard.site.configure("", &moved("ship", "runner = \"deploy\"", ""));
    let deploy = yard.runner("deploy");
    deliver(&receiver, "evt_1", "ship.now");
    let refused = receiver.log_when(|line| line["outcome"] == "not_started");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("runner 'deploy' has no command 'ship'"), "{detail}");
    assert_eq!(receiver.stop(), Some(0));
    assert!(yard.site.lines("lines").is_empty());
    drop(deploy);
    let (default, receiver) = (yard.runner("default"), yard.receiver());
    yard.site.all_jobs(1, "succeeded");
    let [(_, by)] = yard.lines_of("evt_1")[..] else { panic!("it ran twice") };
    assert_eq!(by, default.pid());
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn a_runner_with_another_name_is_asked_nothing() {
    let yard = Yard::new(HANDLERS);
    let _deploy = yard.runner("deploy");
    symlink(yard.site.path("deploy/deploy.socket"), yard.sockets().join("default.socket")).unwrap();
    let receiver = yard.receiver();
    deliver(&receiver, "evt_1", "note.now");
    yard.until("it is not said", || {
        let why = yard.status()["runners"][0]["why"].clone();
        why.as_str().is_some_and(|why| {
            why.contains("means runner 'default'") && why.contains("this is 'deploy'")
        })
    });
    assert!(is(&yard.site.jobs_when(|_| true), "evt_1", "ready"));
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn by_hand_there_is_only_the_default_runner() {
    let yard = Yard::new(HANDLERS);
    let refused = yard.site.run(&["serve"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(78), "{said}");
    for told in ["handlers.ship.runner", "hooklatch-runner@deploy.service", "--runners"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(!yard.site.store().exists(), "nothing was begun");
    // `config check` cannot know how the receiver is started.
    let checked = yard.site.run(&["config", "check"]);
    let said = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{said}");
    assert!(said.contains("warning:") && said.contains("'deploy' is a separate service"), "{said}");
    let odd = yard.site.run(&["runner", "--name", "a@b", "--folder", "/nowhere"]);
    assert_eq!(odd.status.code(), Some(2));
    let homeless = yard.site.run(&["runner", "--name", "deploy"]);
    assert_eq!(homeless.status.code(), Some(2), "it would take the default one's folder");
}

/// The user that owns nothing (Linux Standard Base).
const NOBODY: u32 = 65534;

#[test]
fn a_runner_that_cannot_see_anothers_commands_proves_nothing_of_them() {
    if !rustix::process::geteuid().is_root() {
        return needs::missing("root", "run cargo test as root");
    }
    let yard = Yard::new(HANDLERS);
    let site = |name: &str| yard.site.path(name);
    // One that has ended and is not reaped has none left.
    let environment = |pid: &str| fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let lives = |pid: &str| !environment(pid).is_empty();
    for (path, mode) in [("", 0o755), ("hooklatch.toml", 0o644)] {
        fs::set_permissions(site(path), Permissions::from_mode(mode)).unwrap();
    }
    yard.site.script("work", "echo $$ > \"$SITE/pid\"; exec sleep 1000");
    let runner = yard.runner("default");
    let receiver = yard.receiver();
    deliver(&receiver, "evt_1", "note.now");
    yard.until("it does not begin", || yard.site.lines("pid").len() == 1);
    let command = yard.site.lines("pid").remove(0);
    drop((receiver, runner));

    // No ledger tells of it any more, and the runner is another user's.
    fs::remove_dir_all(site("default")).unwrap();
    DirBuilder::new().mode(0o700).create(site("default")).unwrap();
    chown(site("default"), Some(NOBODY), Some(NOBODY)).unwrap();
    let nobody = Runner(yard.command("default").uid(NOBODY).gid(NOBODY).spawn().unwrap());
    let receiver = yard.receiver();
    let said = receiver.log_when(|line| line["level"] == "ERROR" && line.get("key").is_some());
    let said = said["message"].as_str().unwrap();
    assert!(said.contains("ran as user 0") && said.contains("as user 65534"), "{said}");
    assert!(is(&yard.site.jobs_when(|_| true), "evt_1", "running") && lives(&command));
    drop(nobody);
    fs::remove_dir_all(site("default")).unwrap();
    let _runner = yard.runner("default");
    let held = yard.site.all_jobs(1, "held");
    assert_eq!(job(&held, "evt_1")["reason"], "unknown outcome");
    assert!(!lives(&command));
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn two_runners_are_two_users() {
    if !rustix::process::geteuid().is_root() {
        return needs::missing("root", "run cargo test as root");
    }
    // The default runner's secret is for its user alone, as the sources' are.
    let secret = "env = { TOKEN = \"file:token\" }\ncommand = [";
    let yard = Yard::new(&HANDLERS.replacen("command = [", secret, 1));
    let site = |name: &str| yard.site.path(name);
    fs::write(site("token"), "only for root\n").unwrap();
    for (path, mode) in [("token", 0o600), ("", 0o755), ("hooklatch.toml", 0o644)] {
        fs::set_permissions(site(path), Permissions::from_mode(mode)).unwrap();
    }
    yard.site.script("work", "echo \"$HOOKLATCH_HANDLER $(id -u) $TOKEN\" >> \"$SITE/lines\"");
    fs::write(site("lines"), "").unwrap();
    fs::set_permissions(site("lines"), Permissions::from_mode(0o666)).unwrap();
    DirBuilder::new().mode(0o700).create(site("deploy")).unwrap();
    chown(site("deploy"), Some(NOBODY), Some(NOBODY)).unwrap();

    let _default = yard.runner("default");
    let mut command = yard.command("deploy");
    let _deploy = Runner(command.env_remove("HOME").uid(NOBODY).gid(NOBODY).spawn().unwrap());
    let receiver = yard.receiver();
    deliver(&receiver, "evt_1", "note.now");
    deliver(&receiver, "evt_2", "ship.now");
    yard.site.all_jobs(2, "succeeded");
    let mut lines = yard.site.lines("lines");
    lines.sort();
    assert_eq!(lines, ["note 0 only for root", &format!("ship {NOBODY} ")]);
    assert_eq!(receiver.stop(), Some(0));
}
