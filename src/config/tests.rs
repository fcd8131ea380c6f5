//! What becomes of good configurations. The bad ones are `tests/it/config_errors.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::model::{Digest, OnUnknown, RunnerName};
use crate::retry::GiveUp;

const TWO: &str = r#"
[limits]
accept_wait_millis = "9s"
[sources.ci]
provider = "github"
secrets = "env:SECRET"
[sources.plain]
provider = "none"
allow_unsigned = true
max_body = "2 KiB"
[handlers.run]
source = ["ci", "plain"]
events = ["pull_request"]
command = ["./bin/run", "--now"]
env = { MODE = "live", TOKEN = "file:token", PATH = "/opt/bin" }
pass_env = ["TZ", "ABSENT"]
[handlers.tell]
source = "ci"
events = ["*"]
forward = "http://127.0.0.1:3000/in"
"#;

fn environment() -> Environment {
    Environment::default().with("SECRET", "s").with("TZ", "UTC").with("HOME", "/nonexistent")
}

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hooklatch.toml");
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("token"), "one\r\n").unwrap();
    (folder, path)
}

#[test]
fn sources_carry_what_the_receiver_needs() {
    let (_folder, path) = written(TWO);
    let resolved = load(&path).unwrap().resolve(&environment()).unwrap();
    let [ci, plain] = &resolved.sources[..] else { panic!("two sources") };
    assert_eq!((ci.path.as_str(), plain.path.as_str()), ("/hooks/ci", "/hooks/plain"));
    assert_eq!((ci.keys.len(), plain.keys.len()), (1, 0));
    assert_eq!((ci.refuse_proxied, plain.refuse_proxied), (false, true));
    assert_eq!((ci.body_limit_bytes, plain.body_limit_bytes), (25 << 20, 2 << 10));
    // Four fifths of GitHub's 10 s; the limit itself where no deadline is known.
    assert_eq!(ci.accept_wait, Duration::from_secs(8));
    assert_eq!(plain.accept_wait, Duration::from_secs(9));
    // One level of a two-level type is enough for GitHub only.
    let wants = |source: &crate::http::Source, event_type: &str| -> Vec<String> {
        let routes = source.routes.routes.iter();
        let wanted =
            routes.filter(|route| route.patterns.iter().any(|pattern| pattern.matches(event_type)));
        wanted.map(|route| route.handler.to_string()).collect()
    };
    assert_eq!(wants(ci, "pull_request.opened"), ["run", "tell"]);
    assert_eq!(wants(ci, "push"), ["tell"]);
    assert!(wants(plain, "pull_request.opened").is_empty());
}

#[test]
fn a_runner_has_its_own_handlers_and_looks_at_no_secret_of_others() {
    let handler = |name: &str, more: &str| {
        format!(
            "[handlers.{name}]\nsource = \"plain\"\nevents = [\"*\"]\ncommand = [\"/bin/true\"]\n{more}\n"
        )
    };
    let plain = "[sources.plain]\nprovider = \"none\"\nallow_unsigned = true\n";
    let deploy = "runner = \"deploy\"\nenv = { KEY = \"file:/nowhere/key\" }";
    let (_folder, path) = written(&[plain, &handler("a", ""), &handler("b", deploy)].concat());
    let config = load(&path).unwrap();
    let names = |runner: &str| {
        let commands = config.resolve_commands(&environment(), &runner.parse().unwrap());
        commands.map(|all| all.iter().map(|one| one.name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(names("default").unwrap(), ["a"]);
    assert_eq!(names("deploy").unwrap_err().len(), 1, "the secret is its own");
    assert_eq!(names("nobody").unwrap(), Vec::<String>::new());
    assert!(config.unresolved(&environment()).is_empty());
    let told = config.other_runners();
    assert_eq!((told.len(), told[0].line), (1, 13), "{told:?}");
    assert!(told[0].help.as_ref().unwrap().contains("hooklatch-runner@deploy.service"));
    let workers = config.resolve(&environment()).unwrap().workers;
    let runners = workers.iter().map(|worker| match &worker.handler {
        Handler::Command(command) => command.runner.as_str(),
        Handler::Forward(_) => panic!("a command"),
    });
    assert_eq!(runners.collect::<Vec<_>>(), ["default", "deploy"]);
}

#[test]
fn workers_have_absolute_programs_resolved_variables_and_the_defaults_of_their_kind() {
    let (folder, path) = written(TWO);
    let resolved = load(&path).unwrap().resolve(&environment()).unwrap();
    let [run, tell] = &resolved.workers[..] else { panic!("two handlers") };
    let Handler::Command(known) = &run.handler else { panic!("a command") };
    let commands = load(&path).unwrap().resolve_commands(&environment(), &RunnerName::default());
    let commands = commands.unwrap();
    let [crate::runner::Configured { digest, settings: command, .. }] = &commands[..] else {
        panic!("a command")
    };
    assert_eq!((known.configuration, known.timeout), (*digest, command.timeout));
    let program = folder.path().join("bin/run");
    assert_eq!(command.argv, [program.to_str().unwrap(), "--now"]);
    assert_eq!(command.cwd, None);
    assert_eq!(command.home, Path::new("/"), "a home that does not exist is no place to run");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let wanted =
        [pair("MODE", "live"), pair("PATH", "/opt/bin"), pair("TOKEN", "one"), pair("TZ", "UTC")];
    assert_eq!(command.env, wanted);
    assert_eq!(run.policy.on_unknown, OnUnknown::Hold);
    assert_eq!(run.policy.give_up, GiveUp::Attempts(5));
    assert_eq!((run.concurrency, command.timeout), (1, Duration::from_secs(600)));
    let Handler::Forward(forward) = &tell.handler else { panic!("a forward") };
    assert_eq!(tell.policy.on_unknown, OnUnknown::Rerun);
    assert_eq!(tell.policy.give_up, GiveUp::After(Duration::from_secs(3 * 86_400)));
    assert_eq!((tell.concurrency, forward.timeout), (8, Duration::from_secs(30)));
}

#[test]
fn a_source_whose_handler_answers_says_how_long_and_to_whom() {
    let text = r#"
[server]
trusted_proxies = ["127.0.0.1"]
[limits]
accept_wait_millis = "9s"
[sources.shop]
provider = "bearer"
reply = "handler"
reply_wait = "2s"
keep_answers = "72h"
keep_error_answers = "1min"
request_fields = ["/amount"]
caller_header = "X-Tenant"
certificate_header = "X-Client-Cert"
requests_per_minute = 0
[sources.shop.callers]
till = ["env:SECRET", "env:OLD"]
web = "env:WEB"
[sources.plain]
provider = "bearer"
secrets = "env:SECRET"
reply = "handler"
[sources.certified]
provider = "certificate"
reply = "handler"
certificate_header = "X-Client-Cert"
[handlers.pay]
source = ["shop", "plain", "certified"]
events = ["*"]
command = ["/bin/true"]
timeout = "7s"
grace = "2s"
"#;
    let (_folder, path) = written(text);
    let environment = environment().with("OLD", "o").with("WEB", "w");
    let config = load(&path).unwrap();
    let sources = config.resolve(&environment).unwrap().sources;
    let [certified, plain, shop] = &sources[..] else { panic!("three sources") };
    let [of_certified, of_plain, reply] =
        [certified, plain, shop].map(|source| source.reply.as_ref().unwrap());
    assert!(!certified.refuse_proxied && certified.keys.is_empty());
    assert_eq!(of_certified.certificate_header.as_deref(), Some("X-Client-Cert"));
    let seconds = Duration::from_secs;
    let waits = |reply: &crate::http::Reply| (reply.first_wait, reply.repeat_wait);
    // As long as the handler may take to its very end, and the commit of it.
    assert_eq!(waits(of_plain), (seconds(7 + 2 + 9), seconds(5)));
    assert_eq!((of_plain.keep, of_plain.keep_errors), (seconds(86_400), seconds(600)));
    assert_eq!((of_plain.callers.len(), of_plain.requests_per_minute), (0, Some(600)));
    assert_eq!((reply.handler.as_str(), waits(reply).1), ("pay", seconds(2)));
    assert_eq!((reply.keep, reply.keep_errors), (seconds(72 * 3600), seconds(60)));
    assert_eq!((reply.fields[0].to_string().as_str(), reply.fields.len()), ("/amount", 1));
    assert_eq!((shop.keys.len(), reply.requests_per_minute), (3, None));
    let callers: Vec<_> = reply.callers.iter().map(|(at, name)| (&**at, name.as_str())).collect();
    assert_eq!(callers, [("env:SECRET", "till"), ("env:OLD", "till"), ("env:WEB", "web")]);
    let headers = (reply.caller_header.as_deref(), reply.certificate_header.as_deref());
    assert_eq!(headers, (Some("X-Tenant"), Some("X-Client-Cert")));
    // A secret of two callers would be a way for the one to the other's answers.
    let same = environment.with("WEB", "o");
    let found = config.resolve(&same).err().unwrap();
    assert_eq!((found.len(), found[0].line), (1, 18), "{found:?}");
    let same = config.unresolved(&Environment::default().with("SECRET", "s").with("OLD", "s"));
    assert_eq!(same.len(), 1, "two of one caller may be the same while one is rotated: {same:?}");
}

#[test]
fn a_window_of_repeats_is_measured_by_the_sources_own_tolerance() {
    let source = |more: &str| {
        format!("[sources.alerts]\nprovider = \"grafana\"\nsecrets = \"env:SECRET\"\n{more}")
    };
    let (_folder, path) = written(&source("tolerance = \"1min\"\nrepeats = \"6min\"\n"));
    assert!(load(&path).is_ok());
    let (_folder, path) = written(&source("repeats = \"6min\"\n"));
    let wrong = load(&path).err().unwrap();
    assert!(wrong[0].message.contains("over the window of repeats"), "{wrong:?}");
}

#[test]
fn the_times_of_a_source_that_answers_fit_its_provider() {
    let source = |provider: &str, more: &str| {
        format!(
            "[sources.{provider}]\nprovider = \"{provider}\"\nsecrets = \"env:SECRET\"\nreply = \"handler\"\n{more}"
        )
    };
    let url = "public_url = \"https://hooks.example.org/twilio\"\n";
    let text = format!(
        "[storage]\nkeep_payloads = \"3d\"\n{}{}[handlers.answer]\nsource = [\"slack\", \"twilio\"]\n\
         events = [\"*\"]\ncommand = [\"/bin/true\"]\n",
        source("slack", ""),
        source("twilio", url)
    );
    let (_folder, path) = written(&text);
    let sources = load(&path).unwrap().resolve(&environment()).unwrap().sources;
    let [slack, twilio] = [&sources[0], &sources[1]].map(|source| source.reply.as_ref().unwrap());
    let millis = Duration::from_millis;
    // Four fifths of the 3 s and the 15 s that they wait, and never more than a repeat waits anywhere.
    assert_eq!((slack.first_wait, slack.repeat_wait), (millis(2400), millis(2400)));
    assert_eq!((twilio.first_wait, twilio.repeat_wait), (millis(12_000), millis(5000)));
    // Slack signs a time. A captured request of Twilio's never grows stale.
    let days = |days: u64| Duration::from_secs(days * 86_400);
    assert_eq!((slack.keep, twilio.keep), (days(1), days(3)));
}

#[test]
fn a_handler_that_answers_is_tried_once_and_what_it_says_is_kept_whole() {
    let text = r#"
[limits]
answer_whole_bytes = "3 KiB"
[sources.shop]
provider = "bearer"
secrets = "env:SECRET"
reply = "accepted"
[sources.till]
provider = "bearer"
secrets = "env:SECRET"
reply = "accepted"
[handlers.run]
source = "shop"
events = ["*"]
command = ["/bin/true"]
[handlers.tell]
source = "till"
events = ["*"]
forward = "http://127.0.0.1:3000/in"
"#;
    // What runners of the last version have made of it too: they go on starting it.
    let plain = r#"{"argv":["/bin/true"],"cwd":null,"env":[],"grace_millis":"10000","output_bytes":[16384,16384],"pass_env":[],"stdin_memory_bytes":1048576,"timeout_millis":"600000"}"#;
    for answers in [false, true] {
        let reply = if answers { "handler" } else { "accepted" };
        let (_folder, path) = written(&text.replace("accepted", reply));
        let config = load(&path).unwrap();
        let commands = config.resolve_commands(&environment(), &RunnerName::default()).unwrap();
        let workers = config.resolve(&environment()).unwrap().workers;
        let whole = answers.then_some(3 << 10);
        for worker in &workers {
            let once = (OnUnknown::Hold, GiveUp::Attempts(1));
            let policy = &worker.policy;
            assert_eq!((policy.on_unknown, policy.give_up) == once, answers);
            assert_eq!(policy.answers, answers);
            match &worker.handler {
                Handler::Command(command) => {
                    assert_eq!(command.answers, answers);
                    assert_eq!(command.output_bytes, (16 << 10, 16 << 10));
                    assert_eq!(command.configuration, commands[0].digest, "both ends have one");
                }
                Handler::Forward(forward) => assert_eq!(forward.whole_answer_bytes, whole),
            }
        }
        assert_eq!(commands[0].settings.answer_bytes, whole);
        let plain = Digest::of(plain);
        assert_eq!(commands[0].digest == plain, !answers);
    }
}

#[test]
fn retention_and_limits_reach_the_store() {
    let (folder, path) = written(
        "[storage]\npath = \"x/store.db\"\nkeep_ids = \"100d\"\n[limits]\nbatch_count = 7\n",
    );
    let settings = load(&path).unwrap().store();
    assert_eq!(settings.path, folder.path().join("x/store.db"));
    assert_eq!(settings.limits.keep_ids_millis, 100 * 86_400_000);
    assert_eq!(settings.limits.batch_count, 7);
}

#[test]
fn nothing_said_is_the_documented_default() {
    let (_folder, path) = written("");
    let config = load(&path).unwrap();
    assert_eq!(config.server().listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.store().path, Path::new("/var/lib/hooklatch/hooklatch.db"));
    assert_eq!(*config.limits(), Limits::default());
}

#[test]
fn a_secret_loses_one_newline_and_nothing_else() {
    let (folder, _) = written("");
    let secret = folder.path().join("secret");
    let read = |bytes: &[u8]| {
        fs::write(&secret, bytes).unwrap();
        let reference = Reference::parse("file:secret", folder.path()).unwrap();
        reference.read(&environment()).map(|text| text.to_string()).map_err(|e| e.to_string())
    };
    let reference = "'file:secret': the secret";
    assert_eq!(read(b"abc\n"), Ok("abc".to_owned()));
    assert_eq!(read(b"abc\r\n"), Ok("abc".to_owned()));
    assert_eq!(read(b"abc\n\n"), Ok("abc\n".to_owned()));
    assert_eq!(read(b" abc "), Ok(" abc ".to_owned()));
    let longest = "x".repeat(32 << 10);
    assert_eq!(read(format!("{longest}\r\n").as_bytes()), Ok(longest.clone()));
    for longer in ["1", "123"].map(|more| longest.clone() + more) {
        assert_eq!(read(longer.as_bytes()), Err(format!("{reference} is larger than 32 KiB")));
    }
    assert_eq!(read(b"\n"), Err(format!("{reference} is empty")));
    assert_eq!(read(b"\xff"), Err(format!("{reference} is not UTF-8")));
}

#[test]
fn a_credential_is_found_where_systemd_puts_it() {
    let (folder, _) = written("");
    let reference = Reference::parse("credential:token", Path::new("/")).unwrap();
    let environment = Environment::default().with("CREDENTIALS_DIRECTORY", folder.path());
    assert_eq!(reference.read(&environment).unwrap().as_str(), "one");
    // Of a folder that is loaded as a whole, and not in place of one of its own.
    fs::write(folder.path().join("secrets_token"), "other").unwrap();
    fs::write(folder.path().join("secrets_stripe"), "two").unwrap();
    assert_eq!(reference.read(&environment).unwrap().as_str(), "one");
    let reference = Reference::parse("credential:stripe", Path::new("/")).unwrap();
    assert_eq!(reference.read(&environment).unwrap().as_str(), "two");
    let missing = Reference::parse("credential:github", Path::new("/")).unwrap();
    let error = missing.read(&environment).unwrap_err();
    assert!(format!("{error:?}").contains("/etc/hooklatch/secrets"), "{error}");
    for bad in ["credential:", "credential:..", "credential:a/b"] {
        assert!(Reference::parse(bad, Path::new("/")).is_err(), "{bad}");
    }
}

#[test]
fn a_secret_that_its_provider_cannot_use_is_told_without_its_text() {
    let (_folder, path) =
        written("[sources.a]\nprovider = \"standard-webhooks\"\nsecrets = \"env:SECRET\"\n");
    let environment = Environment::default().with("SECRET", "whsec_not base64");
    let problems = load(&path).unwrap().resolve(&environment).err().unwrap();
    assert_eq!((problems.len(), problems[0].line), (1, 3));
    assert!(!problems[0].to_string().contains("base64\""), "{}", problems[0]);
    assert!(!problems[0].to_string().contains("whsec_not"), "{}", problems[0]);
}

#[test]
fn a_command_is_looked_for_where_the_runner_will() {
    let (_folder, path) = written(
        "[sources.a]\nprovider = \"stripe\"\nsecrets = \"env:SECRET\"\n[handlers.h]\nsource = \"a\"\nevents = \"*\"\ncommand = [\"sh\"]\npass_env = [\"PATH\"]\n",
    );
    let config = load(&path).unwrap();
    assert!(config.check_commands(&environment(), &RunnerName::default()).is_empty());
    let elsewhere = environment().with("PATH", "/no/such/folder");
    let found = config.check_commands(&elsewhere, &RunnerName::default());
    assert!(found[0].message.contains("in no folder of PATH (/no/such/folder)"), "{found:?}");
}

#[test]
fn values_and_what_they_are_read_by_are_in_the_digest_of_a_command() {
    let text = r#"
[sources.ci]
provider = "github"
secrets = "env:SECRET"
[sources.shop]
provider = "stripe"
secrets = "env:SECRET"
[handlers.run]
source = "ci"
events = ["*"]
command = ["/bin/true", "--branch={BRANCH}"]
[handlers.run.values]
BRANCH = { from = "/ref", strip = "refs/heads/", is = "ref", match = "main|dev", max = "1 KiB", else = "main" }
"#;
    let of = |text: &str| {
        let (_folder, path) = written(text);
        let config = load(&path).unwrap_or_else(|problems| panic!("{problems:?}"));
        let commands = config.resolve_commands(&environment(), &RunnerName::default()).unwrap();
        let workers = config.resolve(&environment()).unwrap().workers;
        let Handler::Command(known) = &workers[0].handler else { panic!("a command") };
        assert_eq!(known.configuration, commands[0].digest, "both ends have one");
        (config, commands)
    };
    let (config, commands) = of(text);
    let values = commands[0].settings.values.as_ref().unwrap();
    assert_eq!(values.values.form_fields.values().collect::<Vec<_>>(), ["payload"]);
    assert_eq!(values.arguments.len(), 1);
    assert!(of(text).0.changed_handlers(&config).is_empty());
    for (from, to) in [
        ("BRANCH", "NAME"),
        ("/ref", "/base_ref"),
        ("refs/heads/", "refs/"),
        ("is = \"ref\"", "is = \"line\""),
        ("main|dev", "main"),
        ("1 KiB", "2 KiB"),
        ("else = \"main\"", "else = \"dev\""),
        ("--branch", "--name"),
        // Without the form field a pointer reads another text.
        ("source = \"ci\"", "source = \"shop\""),
    ] {
        assert!(text.contains(from), "{from}");
        let (changed, other) = of(&text.replace(from, to));
        assert_ne!(other[0].digest, commands[0].digest, "{from}");
        assert!(!changed.changed_handlers(&config).is_empty(), "{from}");
    }
}

/// The problems of a handler `h` with these lines, each as its place in them and its text.
fn faults(lines: &str) -> Vec<String> {
    let text = format!(
        "[sources.a]\nprovider = \"none\"\nallow_unsigned = true\n[handlers.h]\nsource = \"a\"\nevents = \"*\"\ncommand = [\"/bin/sh\"]\n{lines}"
    );
    let (_dir, path) = written(&text);
    let problems = super::load(&path).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_pace_of_a_handler_is_read_with_its_defaults() {
    let text = "[sources.a]\nprovider = \"none\"\nallow_unsigned = true\n[handlers.h]\nsource = \"a\"\nevents = \"*\"\ncommand = [\"/bin/sh\"]\ndelay = \"30s\"\nrate = \"30/min\"\nbackoff = [\"10s\", \"1min\"]\n";
    let (_dir, path) = written(text);
    let config = super::load(&path).unwrap();
    let pace = &config.handlers[0].pace;
    let delay = pace.delay.unwrap();
    let seconds = Duration::from_secs;
    assert_eq!((delay.wait, delay.most), (seconds(30), seconds(300)));
    let rate = pace.rate.unwrap();
    assert_eq!((rate.starts.get(), rate.per, rate.burst.get()), (30, seconds(60), 1));
    assert_eq!(pace.backoff, [seconds(10), seconds(60)]);
}

#[test]
fn a_pace_that_cannot_be_is_refused_where_it_stands() {
    for (lines, wanted) in [
        ("delay = \"8d\"", "8d is out of range"),
        ("coalesce_by = \"/a\"\ndelay = \"30s\"\ndelay_most = \"20s\"", "shorter than 'delay'"),
        ("coalesce_by = \"/a\"\ndelay_most = \"20s\"", "'delay_most' without 'delay'"),
        ("delay = \"30s\"\ndelay_most = \"90s\"", "'delay_most' without 'coalesce_by'"),
        ("burst = 2", "'burst' without 'rate'"),
        ("rate = \"30\"", "'30' is not a rate"),
        ("rate = \"30/d\"", "'30/d' is not a rate"),
        ("rate = \"-1/s\"", "'-1/s' is not a rate"),
        ("rate = \"0/s\"", "0 is out of range: it may be 1 to 10000"),
        ("rate = \"1/s\"\nburst = 0", "0 is out of range: it may be 1 to 10000"),
        ("backoff = []", "0 pauses are listed: it may be 1 to 20"),
        ("backoff = [\"10s\", \"x\"]", "'x':"),
        ("backoff = [\"1ms\"]", "1ms is out of range"),
    ] {
        let found = faults(lines);
        let line = 8 + lines.lines().count() - 1;
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(found[0].contains(wanted), "{lines}: {found:?}");
        assert!(found[0].contains(&format!(":{line}:")), "{lines}: {found:?}");
    }
}

#[test]
fn a_handler_that_answers_takes_no_pace() {
    let text = "[sources.a]\nprovider = \"none\"\nallow_unsigned = true\nreply = \"handler\"\n[handlers.h]\nsource = \"a\"\nevents = \"*\"\ncommand = [\"/bin/sh\"]\ndelay = \"30s\"\nrate = \"1/s\"\nbackoff = [\"1s\"]\n";
    let (_dir, path) = written(text);
    let problems = super::load(&path).err().unwrap();
    let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let of_pace = |line: &String| line.contains("a handler that answers runs at once, and once");
    assert_eq!(found.iter().filter(|line| of_pace(line)).count(), 3, "{found:?}");
}

/// The problems of a source `s` with these lines.
fn source_faults(lines: &str) -> Vec<String> {
    let (_dir, path) = written(&format!("[sources.s]\n{lines}\n"));
    let problems = super::load(&path).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_challenge_that_needs_a_verify_token_demands_it() {
    let meta = "provider = \"meta\"\nsecrets = \"env:SECRET\"";
    let found = source_faults(meta);
    assert!(found[0].contains("needs 'verify_token', which is missing"), "{found:?}");
    assert_eq!(source_faults(&format!("{meta}\nverify_token = \"file:v\"")), Vec::<String>::new());
    let found = source_faults(&format!("{meta}\nverify_token = \"my own token\""));
    assert!(found[0].contains("expected a reference"), "{found:?}");
    assert!(!found[0].contains("my own token"), "{found:?}");
    let stripe = "provider = \"stripe\"\nsecrets = \"env:SECRET\"\nverify_token = \"env:SECRET\"";
    let found = source_faults(stripe);
    assert!(found[0].contains("provider 'stripe' uses no verify token"), "{found:?}");
}

#[test]
fn a_source_takes_the_methods_that_it_names_and_get_only_where_nothing_is_signed() {
    let of = |provider: &str, methods: &str| {
        source_faults(&format!("{provider}\nmethods = {methods}")).first().cloned()
    };
    let bearer = "provider = \"bearer\"\nsecrets = \"env:SECRET\"";
    let github = "provider = \"github\"\nsecrets = \"env:SECRET\"";
    let none = "provider = \"none\"\nallow_unsigned = true";
    let hubspot =
        "provider = \"hubspot\"\nsecrets = \"env:SECRET\"\npublic_url = \"https://h.example\"";
    assert_eq!(of(bearer, "[\"GET\", \"POST\"]"), None);
    assert_eq!(of(none, "[\"POST\", \"GET\"]"), None);
    assert_eq!(of(github, "[\"POST\"]"), None);
    assert_eq!(of(github, "[\"POST\", \"PUT\"]"), None);
    assert_eq!(of(bearer, "[\"GET\"]"), None);
    for (provider, methods, wrong) in [
        (github, "[\"GET\", \"POST\"]", "a GET has no body"),
        (bearer, "[]", "the list is empty"),
        (bearer, "[\"POST\", \"HEAD\"]", "'HEAD' is not one of GET, POST, PUT"),
        (bearer, "[\"post\"]", "'post' is not one of GET, POST"),
        (hubspot, "[\"PUT\"]", "signs the method"),
    ] {
        let found = of(provider, methods).unwrap();
        assert!(found.contains(wrong), "{methods}: {found}");
    }
}

const CLUSTER: &str = "
[storage]
url = \"postgresql://app@db.example.org:5433/app\"
password = \"env:SECRET\"
ca = \"ca.pem\"
require_synchronous_standby = true
[node]
name = \"a\"
machine = \"serial-1\"
[sources.plain]
provider = \"none\"
allow_unsigned = true
[handlers.h]
source = \"plain\"
events = \"*\"
command = [\"/bin/true\"]
cluster_concurrency = 3
nodes = [\"a\", \"b\"]
";

#[test]
fn a_node_has_its_name_its_machine_and_its_database() {
    let (folder, path) = written(CLUSTER);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertificateParams::new(vec!["db.example.org".to_owned()]).unwrap();
    let authority = authority.self_signed(&key).unwrap().pem();
    fs::write(folder.path().join("ca.pem"), authority).unwrap();
    let config = load(&path).unwrap();
    let node = config.resolve(&environment()).unwrap().node.unwrap();
    assert_eq!((node.name.as_str(), node.machine.as_str()), ("a", "serial-1"));

    let shown = serde_json::to_value(&config).unwrap();
    assert_eq!(shown["storage"]["url"], "postgresql://app@db.example.org:5433/app");
    assert_eq!(shown["storage"]["password"]["value"], "***");
    assert_eq!(shown["handlers"][0]["nodes"], serde_json::json!(["a", "b"]));
    assert_eq!(shown["handlers"][0]["cluster_concurrency"], 3);

    // Each on its own keeps the receiver from starting, with its key.
    fs::write(folder.path().join("ca.pem"), "none").unwrap();
    let wrong = config.resolve(&Environment::default()).err().unwrap();
    let keys = |wrong: &[crate::document::Problem]| {
        wrong.iter().map(|one| one.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&wrong), ["storage.password", "storage.ca"]);
    let wrong = config.resolve(&environment()).err().unwrap();
    assert_eq!(keys(&wrong), ["storage.ca"]);
}

#[test]
fn a_node_without_settings_has_the_names_of_its_machine() {
    let (_folder, path) = written("[storage]\nurl = \"postgresql://app@localhost/app\"\n");
    let node = load(&path).unwrap().resolve(&environment());
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    match node {
        Ok(resolved) => {
            let node = resolved.node.unwrap();
            assert_eq!((node.name.as_str(), node.machine.as_str()), (host.trim(), machine.trim()));
        }
        Err(problems) => {
            let texts: Vec<String> = problems.iter().map(|one| one.to_string()).collect();
            let is_known =
                |text: &String| text.contains("[node] name") || text.contains("[node] machine");
            assert!(texts.iter().all(is_known), "{texts:?}");
        }
    }
}

#[test]
fn a_database_that_is_in_doubt_hides_the_store_and_its_url_stays_over_a_reload() {
    let text = CLUSTER.replace("ca = \"ca.pem\"\n", "path = \"here.db\"\n");
    let (_folder, path) = written(&text);
    let before = load_in_part(&path).unwrap();
    assert!(before.receiver_restarts(&before).is_empty());
    let (_folder, path) = written(&text.replace("5433", "5434").replace("\"a\"\n", "\"c\"\n"));
    let keys = |config: &Config| -> Vec<String> {
        config.receiver_restarts(&before).into_iter().map(|problem| problem.key).collect()
    };
    let changed = load_in_part(&path).unwrap();
    let mut keys = keys(&changed);
    keys.sort();
    assert_eq!(keys, ["node.name", "storage.path", "storage.url"]);
    for wrong in ["url = 1", "password = \"plain\"", "ca = 1"] {
        let key = wrong.split(' ').next().unwrap();
        let rest =
            text.lines().filter(|line| !line.starts_with(key)).collect::<Vec<_>>().join("\n");
        let (_folder, path) = written(&rest.replace("[storage]", &format!("[storage]\n{wrong}")));
        assert!(load_in_part(&path).is_err(), "{wrong}");
    }
}
