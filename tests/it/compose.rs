//! Checks the two containers of `packaging/compose` without a container engine: their command lines parse,
//! their configuration is valid, and the processes work with the containers' users and folders.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use hooklatch::cli::Cli;

use crate::listing::is_root;
use crate::support::install;

fn compose() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/compose")
}

/// The `command: [...]` lines of compose.yaml.
fn commands() -> Vec<Vec<String>> {
    let text = fs::read_to_string(compose().join("compose.yaml")).unwrap();
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix("command: ["));
    lists.map(|list| list.trim_end_matches(']').split(", ").map(str::to_owned).collect()).collect()
}

#[test]
fn the_command_lines_parse_and_the_configuration_is_valid() {
    let commands = commands();
    assert_eq!(commands.len(), 2);
    for command in &commands {
        let words = std::iter::once("hooklatch").chain(command.iter().map(String::as_str));
        Cli::try_parse_from(words).unwrap();
    }
    let config = hooklatch::config::load(&compose().join("etc/hooklatch.toml"));
    assert_eq!((config.map(|config| config.source_names().count())).unwrap(), 1);
}

/// A child process that is killed when this value is dropped.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Polls until `ask` returns an answer, for at most 20 s: the two processes signal no event to wait for.
fn within<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// The processes run as in the two containers: two users, one group, and the socket's folder with the mode
/// of the image.
#[test]
fn receiver_and_runner_work_as_two_users_that_share_only_the_socket() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let make = |name: &str, mode: u32, user: u32| {
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        chown(at(name), Some(user), Some(10_001)).unwrap();
    };
    make("store", 0o700, 10_001);
    make("home", 0o700, 10_002);
    make("run", 0o750, 10_002);
    fs::write(at("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(at("secret"), fs::Permissions::from_mode(0o400)).unwrap();
    chown(at("secret"), Some(10_001), Some(10_001)).unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[storage]\npath = {store:?}\n[sources.github]\nprovider = \"github\"\n\
         secrets = [\"file:{secret}\"]\n[handlers.note]\nsource = \"github\"\nevents = [\"*\"]\n\
         command = [\"/bin/sh\", \"-c\", \"id -u\"]\n",
        store = at("store/h.db"),
        secret = at("secret").display()
    );
    fs::write(at("hooklatch.toml"), config).unwrap();
    let program = folder.path().join("hooklatch");
    install(fs::File::open(env!("CARGO_BIN_EXE_hooklatch")).unwrap(), &program);
    let start = |user: u32, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--regid=10001", "--clear-groups", "--"]);
        command.arg(&program).args(args).arg("--config").arg(at("hooklatch.toml"));
        command.env_clear().env("HOME", at("home")).env("PATH", "/usr/bin:/bin");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    let run = at("run");
    let run = run.to_str().unwrap();
    let _runner = Owned(start(10_002, &["runner", "--folder", run]).spawn().unwrap());
    let _receiver = Owned(start(10_001, &["serve", "--runners", run]).spawn().unwrap());
    let ask = |args: &[&str]| start(10_001, args).output().unwrap();
    let done = within(|| {
        let sent = ask(&["send", "github", "push", "--id", "d-1", "--no-wait"]);
        sent.status.success().then_some(())
    });
    assert!(done.is_some(), "the event is accepted");
    let shown = within(|| {
        let shown = String::from_utf8(ask(&["show", "d-1"]).stdout).unwrap();
        shown.contains("succeeded").then_some(shown)
    });
    assert!(shown.expect("the job succeeds").contains("out | 10002"), "as the runner's user");
}
