//! What the units must say, whoever edits them: `packaging/check-units` shows under systemd that they work,
//! and this that nobody takes out a line whose lack shows only on the worst day.

use std::fs;
use std::path::Path;
use std::time::Duration;

use hooklatch::limits::Limits;

const SERVICES: [&str; 3] =
    ["hooklatch.service", "hooklatch-runner.service", "hooklatch-runner@.service"];
const SOCKETS: [&str; 3] =
    ["hooklatch.socket", "hooklatch-runner.socket", "hooklatch-runner@.socket"];

/// The lines of a unit without comments.
fn unit(name: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(name);
    let text = fs::read_to_string(file).unwrap();
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text.lines().filter(says).map(str::to_owned).collect()
}

fn value(unit: &[String], key: &str) -> String {
    let of_key = |line: &&String| line.split('=').next() == Some(key);
    let line = unit.iter().find(of_key).unwrap_or_else(|| panic!("no {key}="));
    line.split_once('=').unwrap().1.to_owned()
}

#[test]
fn no_crash_loop_closes_a_port_or_stays_down() {
    for name in SERVICES {
        let unit = unit(name);
        assert_eq!(value(&unit, "StartLimitIntervalSec"), "0", "{name}");
        assert_eq!(value(&unit, "Restart"), "always", "{name}");
        assert_eq!(value(&unit, "Type"), "notify", "{name}");
    }
    // It waits for the result and prints every problem: a signal does neither.
    assert_eq!(value(&unit(SERVICES[0]), "ExecReload"), "/usr/bin/hooklatch reload");
    for name in SOCKETS {
        assert_eq!(value(&unit(name), "TriggerLimitIntervalSec"), "0", "{name}");
    }
}

#[test]
fn nothing_that_happens_to_a_receiver_reaches_a_command() {
    for name in &SERVICES[1..] {
        let unit = unit(name);
        for (key, wanted) in [
            ("KillMode", "mixed"),
            ("OOMPolicy", "continue"),
            ("RuntimeDirectoryPreserve", "yes"),
            ("ProtectSystem", "full"),
        ] {
            assert_eq!(value(&unit, key), wanted, "{name}");
        }
        // A stop of what it requires or is a part of would stop it too.
        let tied = ["Requires=", "Requisite=", "BindsTo=", "PartOf=", "MemoryDenyWriteExecute="];
        let ties = unit.iter().filter(|line| tied.iter().any(|tie| line.starts_with(tie)));
        assert_eq!(ties.collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
    }
}

#[test]
fn a_stop_has_more_time_than_the_product_takes() {
    let limits = Limits::default();
    let stops = |name| humantime::parse_duration(&value(&unit(name), "TimeoutStopSec")).unwrap();
    let wait = |millis: &[u64]| Duration::from_millis(millis.iter().sum());
    // Requests, then forwards, each for as long.
    let receiver =
        wait(&[limits.stop_linger_millis, limits.stop_wait_millis, limits.stop_wait_millis]);
    assert!(stops("hooklatch.service") > receiver);
    let runner = wait(&[limits.runner_drain_millis, limits.command_grace_millis]);
    assert!(stops("hooklatch-runner.service") > runner);
    let watchdog = humantime::parse_duration(&value(&unit("hooklatch.service"), "WatchdogSec"));
    // A repair's longest pause is no hang, and is not near to one.
    assert!(watchdog.unwrap() >= Duration::from_secs(60));
}

#[test]
fn the_two_runner_units_differ_in_their_user_alone() {
    let [one, of_user] = ["hooklatch-runner.service", "hooklatch-runner@.service"].map(unit);
    let own = ["User=", "Group=", "StateDirectory=", "LoadCredential=", "Description="];
    let shared = |unit: Vec<String>| -> Vec<String> {
        let is_own = |line: &String| own.iter().any(|key| line.starts_with(key));
        let named = |line: String| {
            let line =
                line.replace("runner/default", "runner/NAME").replace("name default", "name NAME");
            line.replace("runner/%i", "runner/NAME")
                .replace("name %i", "name NAME")
                .replace("@%i", "")
        };
        unit.into_iter().filter(|line| !is_own(line)).map(named).collect()
    };
    assert_eq!(shared(one), shared(of_user));
}

#[test]
fn the_packaged_address_is_the_default_one() {
    let listen = value(&unit("hooklatch.socket"), "ListenStream");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hooklatch.toml");
    fs::write(&file, "").unwrap();
    let config = hooklatch::config::load(&file).ok().unwrap();
    assert_eq!(config.server().listen.to_string(), listen);
    assert!(!config.server().listen_is_set);
}
