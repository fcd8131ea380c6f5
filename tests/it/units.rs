//! Checks the settings that the systemd units must keep. `packaging/check-units` shows under systemd that
//! the units work; this test protects the lines whose absence would show only in a rare failure.

use std::fs;
use std::path::Path;
use std::time::Duration;

use hooklatch::limits::{Limits, STOP_LINGER};

const SERVICES: [&str; 3] =
    ["hooklatch.service", "hooklatch-runner.service", "hooklatch-runner@.service"];
const SOCKETS: [&str; 3] =
    ["hooklatch.socket", "hooklatch-runner.socket", "hooklatch-runner@.socket"];

/// The lines of a unit file without comments.
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
fn a_crash_loop_does_not_close_a_port_or_stop_a_service() {
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
fn stopping_the_receiver_does_not_affect_running_commands() {
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
        // Stopping a unit that it requires or is part of would stop it too.
        let tied = ["Requires=", "Requisite=", "BindsTo=", "PartOf=", "MemoryDenyWriteExecute="];
        let ties = unit.iter().filter(|line| tied.iter().any(|tie| line.starts_with(tie)));
        assert_eq!(ties.collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
    }
}

#[test]
fn the_stop_timeout_is_longer_than_the_product_needs() {
    let limits = Limits::default();
    let stops = |name| humantime::parse_duration(&value(&unit(name), "TimeoutStopSec")).unwrap();
    let wait = |millis: &[u64]| Duration::from_millis(millis.iter().sum());
    // The receiver waits for requests and then for forwards, each for as long.
    let receiver = STOP_LINGER + wait(&[limits.stop_wait_millis, limits.stop_wait_millis]);
    assert!(stops("hooklatch.service") > receiver);
    let runner = wait(&[limits.runner_drain_millis, limits.command_grace_millis]);
    assert!(stops("hooklatch-runner.service") > runner);
    let watchdog = humantime::parse_duration(&value(&unit("hooklatch.service"), "WatchdogSec"));
    // The watchdog must not kill a receiver during the longest pause of a repair.
    assert!(watchdog.unwrap() >= Duration::from_secs(60));
}

#[test]
fn the_two_runner_units_differ_only_in_their_user() {
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
fn the_packaged_socket_has_the_default_address() {
    let listen = value(&unit("hooklatch.socket"), "ListenStream");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hooklatch.toml");
    fs::write(&file, "").unwrap();
    let config = hooklatch::config::load(&file).ok().unwrap();
    assert_eq!(config.server().listen.to_string(), listen);
    assert!(!config.server().listen_is_set);
}

#[test]
fn the_dashboard_is_confined_and_reaches_only_the_receiver() {
    let [receiver, ui, socket] =
        ["hooklatch.service", "hooklatch-ui.service", "hooklatch-ui.socket"].map(unit);
    let sandbox = receiver.iter().skip_while(|line| *line != "CapabilityBoundingSet=");
    let sandbox = sandbox.take_while(|line| *line != "[Install]");
    for line in sandbox.filter(|line| !line.starts_with("RestrictAddressFamilies=")) {
        assert!(ui.contains(line), "{line}");
    }
    for (key, wanted) in [
        ("PrivateNetwork", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX"),
        ("IPAddressDeny", "any"),
        ("ExecStart", "/usr/bin/hooklatch ui --configured"),
        ("LoadCredential", "secrets:/etc/hooklatch/ui-secrets"),
        ("StartLimitIntervalSec", "0"),
    ] {
        assert_eq!(value(&ui, key), wanted);
    }
    // Nothing of it starts with the machine, unless somebody enables the socket.
    assert!(!ui.contains(&"[Install]".to_owned()));
    for (key, wanted) in [
        ("ListenStream", "127.0.0.1:8484"),
        ("IPAddressDeny", "any"),
        ("IPAddressAllow", "localhost"),
        ("TriggerLimitIntervalSec", "0"),
    ] {
        assert_eq!(value(&socket, key), wanted);
    }
}
