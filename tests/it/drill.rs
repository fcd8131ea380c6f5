//! `hooklatch drill`: it kills receivers, checks the promises, cleans up, and reports by its exit code.
//! `src/cmd/kit/account/tests.rs` tests the checks with falsified evidence.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A folder for the temporary files of a drill or a demo, which the test can inspect.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Place(tempfile::Builder::new().prefix("drill-test-").tempdir().unwrap())
    }

    fn drill(&self, args: &[&str]) -> Command {
        self.command("drill", args)
    }

    pub(crate) fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
        command.arg(name).args(args).stdin(Stdio::null()).env("TMPDIR", self.0.path());
        // It must ignore the configuration of the operator's receiver.
        command.env("HOOKLATCH_CONFIG", "/nowhere.toml").env("HOOKLATCH_LOG", "off");
        command
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The folders that were left here.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// The command lines of the processes that contain this folder.
    fn processes(&self) -> Vec<String> {
        let place = self.0.path().to_str().unwrap();
        let line = |process: fs::DirEntry| {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ")
        };
        let lines = fs::read_dir("/proc").unwrap().map(|process| line(process.unwrap()));
        lines.filter(|line| line.contains(place)).collect()
    }

    pub(crate) fn must_have_no_process(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
    }

    /// Waits until a receiver runs here, or until none does if `wanted` is false.
    fn wait_for_receiver(&self, wanted: bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.processes().iter().any(|line| line.contains(" serve ")) != wanted {
            assert!(Instant::now() < end, "{:?}", self.processes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks what must hold for every drill, and returns its report.
fn judge(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let ledger = &report["ledger"];
    let kept = report["as_promised"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if kept { 0 } else { 1 }), "{report:#}");
    assert_eq!(ledger["broken"].as_array().unwrap().is_empty(), kept, "{report:#}");
    assert_eq!(text(&output.stderr), "", "the bar is for terminals");

    let count = |what: &str| ledger[what].as_u64().unwrap();
    assert!(count("sent") > 0, "{report:#}");
    assert_eq!(count("sent"), count("acknowledged"), "{report:#}");
    assert_eq!(count("sent"), count("stored"), "{report:#}");
    assert_eq!((count("lost"), count("doubled")), (0, 0), "{report:#}");
    assert!(count("finished") > 0 && count("started") >= count("finished"), "{report:#}");
    assert_eq!(ledger["broken"].as_array().unwrap().len(), 0, "{report:#}");
    report
}

#[test]
fn a_drill_with_three_kills_keeps_every_promise_and_cleans_up() {
    let place = Place::new();
    let output = place.drill(&["--kills", "3", "--seed", "7", "--json"]).output().unwrap();
    let report = judge(&output);
    assert_eq!((&report["kills"], &report["seed"]), (&3.into(), &7.into()));
    assert!(report["unanswered"].as_u64().unwrap() > 0, "no kill has hit a delivery: {report:#}");
    place.must_have_no_process();
    assert_eq!(report["ledger"]["unknown"], 0);
    assert_eq!(place.left(), Vec::<PathBuf>::new());
}

#[test]
fn runner_kills_lead_to_held_jobs_at_worst() {
    let place = Place::new();
    // With this seed the drill kills the runner more than once.
    let args = ["--kills", "5", "--runner-kills", "--seed", "3", "--json"];
    let report = judge(&place.drill(&args).output().unwrap());
    place.must_have_no_process();
    assert!(report["runner_kills"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn a_folder_that_the_operator_names_is_kept_with_its_store() {
    let place = Place::new();
    let folder = place.0.path().join("disk/drill");
    let output =
        place.drill(&["--kills", "1", "--folder", folder.to_str().unwrap()]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for wanted in ["seed", "acknowledged", "doubled", folder.to_str().unwrap()] {
        assert!(said.contains(wanted), "{said}");
    }
    place.must_have_no_process();
    let stored: u64 = row(&said, "stored").parse().unwrap();

    // The command that the drill prints shows the contents of the store.
    let command =
        said.lines().find(|line| line.trim_start().starts_with("hooklatch jobs")).unwrap();
    let jobs = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
        .args(command.split_whitespace().skip(1))
        .args(["--handler", "work", "--limit", "100000", "--json"])
        .output()
        .unwrap();
    let jobs: Value = serde_json::from_slice(&jobs.stdout).unwrap();
    assert_eq!(jobs.as_array().unwrap().len() as u64, stored);

    // The folder is not empty any more, so a second drill is refused.
    let second = place.drill(&["--folder", folder.to_str().unwrap()]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("not empty"), "{}", text(&second.stderr));
}

/// The count in the table's line with this name.
fn row<'a>(table: &'a str, name: &str) -> &'a str {
    let line = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap()
}

#[test]
fn a_folder_that_is_not_empty_is_refused_and_not_changed() {
    let place = Place::new();
    let folder = place.0.path().join("mine");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("hooklatch.toml"), "mine").unwrap();
    let output = place.drill(&["--folder", folder.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!(names(&folder), 1);
    assert_eq!(fs::read_to_string(folder.join("hooklatch.toml")).unwrap(), "mine");
}

#[test]
fn an_interrupted_drill_ends_its_processes_and_cleans_up() {
    let place = Place::new();
    let mut command = place.drill(&["--kills", "1000"]);
    let mut drill = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stdout = BufReader::new(drill.stdout.take().unwrap());
    stdout.read_line(&mut said).unwrap();
    assert!(said.starts_with("1000 kills"), "{said}");
    kill_process(Pid::from_child(&drill), Signal::INT).unwrap();
    let output = drill.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("SIGINT"), "{}", text(&output.stderr));
    place.must_have_no_process();
    assert_eq!(place.left(), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_drill_leaves_no_receiver() {
    let place = Place::new();
    let mut drill = place.drill(&["--kills", "1000"]).stdout(Stdio::null()).spawn().unwrap();
    place.wait_for_receiver(true);
    drill.kill().unwrap();
    drill.wait().unwrap();
    place.wait_for_receiver(false);
}

#[test]
fn the_help_has_an_example_and_the_number_of_kills_is_bounded() {
    let place = Place::new();
    let help = text(&place.drill(&["--help"]).output().unwrap().stdout);
    assert!(help.contains("Example") && help.contains("hooklatch drill --kills"), "{help}");
    for bad in ["0", "1001"] {
        assert_eq!(place.drill(&["--kills", bad]).output().unwrap().status.code(), Some(2));
    }
}
