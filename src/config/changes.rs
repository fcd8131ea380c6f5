//! Compares a configuration with the one in force, for a reload: what differs, and which of the differences a
//! running process cannot take over.

use std::net::SocketAddr;

use crate::admin::{Names, SecretRead};
use crate::document::{Fault, Problem, Problems};
use crate::limits::{AppliedBy, Change, Limits};
use crate::model::{Name, RunnerName};

use super::cluster;
use super::configuration::Config;
use super::settings;
use super::sources::Source;

/// References whose secrets a running process cannot read again, by prefix, and why.
const STAY: [(&str, &str); 2] = [
    ("credential:", "systemd renews credentials when the unit is restarted"),
    ("env:", "a process keeps the environment of its start"),
];

/// The help for a setting that the receiver reads at its start only.
const RESTART: &str = "restart the receiver to change it: systemctl restart hooklatch";

impl Config {
    /// Each setting that differs from the configuration of a running receiver, and that the receiver cannot
    /// change before a restart.
    pub fn receiver_restarts(&self, running: &Config) -> Vec<Problem> {
        let texts = |config: &Config| {
            let settings = &config.settings;
            let metrics = settings.metrics.map_or("none".to_owned(), |address| address.to_string());
            let mut texts = vec![
                (settings::LISTEN, settings.server.listen.to_string()),
                (settings::STORE_PATH, settings.store_path.display().to_string()),
                (settings::METRICS_LISTEN, metrics),
            ];
            texts.extend(cluster::read_at_start(settings));
            texts
        };
        let pairs = texts(running).into_iter().zip(texts(self));
        let settings = pairs.map(|((key, from), (_, to))| Change { key: key.to_owned(), from, to });
        let settings = settings.filter(|change| change.from != change.to);
        let limits = running.limits().changes(self.limits(), |by| by == AppliedBy::ReceiverStart);
        self.restarts(settings.chain(limits.into_iter().map(with_dotted_key)), RESTART)
    }

    /// Each limit that a runner started with and that only a restart or a new execution of the runner can change.
    pub fn runner_restarts(&self, start: &Limits, runner: &RunnerName) -> Vec<Problem> {
        let limits = start.changes(self.limits(), |by| by == AppliedBy::RunnerStart);
        let help = format!(
            "SIGUSR2 to the runner changes it and keeps its commands: systemctl reload {}",
            runner.unit()
        );
        self.restarts(limits.into_iter().map(with_dotted_key), &help)
    }

    fn restarts(&self, changes: impl Iterator<Item = Change>, help: &str) -> Vec<Problem> {
        let problem = |Change { key, from, to }| {
            let message = format!("a reload cannot change it from {from} to {to}");
            let fault = Fault::new(message, help);
            match self.settings.places.get(&key) {
                Some(at) => at.problem(fault),
                // It was removed from the file.
                None => Problem { key, ..Problem::of_file(&self.file, fault) },
            }
        };
        changes.map(problem).collect::<Problems>().into_sorted()
    }

    /// The sources that verify nothing, if other machines can reach one of `addresses`, where deliveries
    /// come in.
    pub fn exposed_at(&self, addresses: &[SocketAddr]) -> Vec<Problem> {
        let is_open = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        let Some(open) = addresses.iter().find(is_open) else { return Vec::new() };
        let problem = |source: &Source| {
            source.at.problem(Fault::new(
                format!("source '{}' takes events from anybody, and {open} is not only this machine", source.name),
                "let the socket unit listen on 127.0.0.1 and restart the receiver, or give the source a provider that verifies",
            ))
        };
        let unproven = self.sources.iter().filter(|source| source.takes_anybody());
        unproven.map(problem).collect::<Problems>().into_sorted()
    }

    /// The sources that differ from those in `before`.
    pub fn changed_sources(&self, before: &Config) -> Names {
        names(&before.sources, &self.sources, |source| &source.name)
    }

    /// The handlers that differ from those in `before`.
    pub fn changed_handlers(&self, before: &Config) -> Names {
        names(&before.handlers, &self.handlers, |handler| &handler.name)
    }

    /// The limits that have another value than in `before`.
    pub fn changed_limits(&self, before: &Config) -> Vec<Change> {
        before.limits().changes(self.limits(), |_| true).into_iter().map(with_dotted_key).collect()
    }

    /// The secrets of the handlers. A runner reads those of its commands.
    pub fn handler_secrets(&self) -> Vec<SecretRead> {
        let mut all = Vec::new();
        for handler in &self.handlers {
            let of = format!("handler {}", handler.name);
            let secrets = handler.secrets().into_iter();
            all.extend(secrets.map(|(secret, _)| read(secret.to_string(), of.clone(), None)));
        }
        all
    }
}

/// A secret that was read anew.
pub fn read(reference: String, of: String, changed: Option<bool>) -> SecretRead {
    let stays = STAY.iter().find(|(begins, _)| reference.starts_with(begins));
    let stays = stays.map(|(_, why)| (*why).to_owned());
    SecretRead { reference, of, changed, stays }
}

fn with_dotted_key(change: Change) -> Change {
    Change { key: settings::dotted(&change.key), ..change }
}

fn names<T: PartialEq>(before: &[T], now: &[T], name: impl Fn(&T) -> &Name) -> Names {
    let mut found = Names::default();
    for one in now {
        match before.iter().find(|other| name(other) == name(one)) {
            None => found.added.push(name(one).clone()),
            Some(other) if other != one => found.changed.push(name(one).clone()),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|one| now.iter().all(|other| name(other) != name(one)));
    found.gone = gone.map(|one| name(one).clone()).collect();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;

    const BEFORE: &str = r#"
[server]
listen = "127.0.0.1:1"
[limits]
tick_millis = "1s"
batch_count = 7
[sources.stays]
provider = "none"
allow_unsigned = true
[sources.goes]
provider = "none"
allow_unsigned = true
[sources.moves]
provider = "none"
allow_unsigned = true
[handlers.same]
source = "stays"
events = ["a"]
command = ["/bin/true"]
[handlers.other]
source = "stays"
events = ["a"]
command = ["/bin/true"]
env = { A = "1" }
"#;

    fn load(folder: &Path, text: &str) -> Config {
        let file = folder.join("hooklatch.toml");
        fs::write(&file, text).unwrap();
        super::super::load(&file).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn all(names: &Names) -> Vec<(&str, &str)> {
        names.all().map(|(name, what)| (name.as_str(), what)).collect()
    }

    #[test]
    fn what_differs_is_named_and_where_it_stands_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let before = load(folder.path(), BEFORE);
        let moved = load(folder.path(), &format!("\n\n# elsewhere\n{BEFORE}"));
        assert!(moved.changed_sources(&before).is_empty());
        assert!(moved.changed_handlers(&before).is_empty());
        assert!(moved.changed_limits(&before).is_empty());
        let after = BEFORE
            .replace("[sources.goes]", "[sources.comes]")
            .replace("[sources.moves]", "[sources.moves]\npath = \"/elsewhere\"")
            .replace("A = \"1\"", "A = \"2\"")
            .replace("tick_millis = \"1s\"", "tick_millis = \"2s\"");
        let after = load(folder.path(), &after);
        let sources = after.changed_sources(&before);
        assert_eq!(all(&sources), [("comes", "added"), ("moves", "changed"), ("goes", "removed")]);
        assert_eq!(all(&after.changed_handlers(&before)), [("other", "changed")]);
        let change = |key: &str, from: &str, to: &str| Change {
            key: key.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
        };
        assert_eq!(after.changed_limits(&before), [change("limits.tick_millis", "1s", "2s")]);
        assert_eq!(after.receiver_restarts(&before), []);
        assert_eq!(after.runner_restarts(&before.settings.limits, &RunnerName::default()), []);
    }

    #[test]
    fn each_setting_that_needs_a_restart_is_a_problem_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let before = load(folder.path(), BEFORE);
        let after = BEFORE
            .replace("127.0.0.1:1", "127.0.0.1:2")
            .replace("batch_count = 7", "runner_idle_millis = \"1s\"");
        let after =
            format!("{after}[storage]\npath = \"other.db\"\n[metrics]\nlisten = \"127.0.0.1:3\"");
        let after = load(folder.path(), &after);
        let shown = |found: Vec<Problem>| -> Vec<(usize, String, String)> {
            let one = |problem: Problem| (problem.line, problem.key, problem.message);
            found.into_iter().map(one).collect()
        };
        let problem = |line: usize, key: &str, from: &str, to: &str| {
            let message = format!("a reload cannot change it from {from} to {to}");
            (line, key.to_owned(), message)
        };
        let store = folder.path().join("other.db").display().to_string();
        let expected = [
            problem(0, "limits.batch_count", "7", "512"),
            problem(3, "server.listen", "127.0.0.1:1", "127.0.0.1:2"),
            problem(26, "storage.path", "/var/lib/hooklatch/hooklatch.db", &store),
            problem(28, "metrics.listen", "none", "127.0.0.1:3"),
        ];
        assert_eq!(shown(after.receiver_restarts(&before)), expected);
        let found = after.runner_restarts(&before.settings.limits, &RunnerName::default());
        assert_eq!(shown(found), [problem(6, "limits.runner_idle_millis", "1min", "1s")]);
    }

    #[test]
    fn a_changed_condition_or_key_changes_its_handler_alone() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{BEFORE}\n[handlers.chooses]\nsource = \"stays\"\nevents = [\"a\"]\ncommand = [\"/bin/true\"]\n\
             when = {{ \"/ref\" = {{ glob = \"v*\" }} }}\norder_by = \"/id\"\non_dead = \"block\"\n"
        );
        let before = load(folder.path(), &text);
        let spaced = text.replace("when = { ", "when = {   ").replace("\"/id\"", "[\"/id\"]");
        let spaced = load(folder.path(), &spaced.replace("on_dead = \"block\"", ""));
        assert!(spaced.changed_handlers(&before).is_empty());
        for (from, to) in [
            ("\"v*\"", "\"w*\""),
            ("glob", "matches"),
            ("/ref", "/base"),
            ("\"/id\"", "[\"/id\", \"type\"]"),
            ("\"block\"", "\"step-over\""),
            ("order_by = \"/id\"\non_dead = \"block\"", "coalesce_by = \"/id\""),
        ] {
            assert!(text.contains(from), "{from}");
            let after = load(folder.path(), &text.replace(from, to));
            assert_eq!(all(&after.changed_handlers(&before)), [("chooses", "changed")], "{from}");
            assert!(after.changed_sources(&before).is_empty(), "{from}");
        }
    }

    #[test]
    fn every_key_of_a_source_that_answers_is_one_that_can_differ() {
        let text = r#"
[server]
trusted_proxies = ["127.0.0.1"]
[sources.pay]
provider = "bearer"
reply = "handler"
reply_wait = "1s"
keep_answers = "1h"
keep_error_answers = "1min"
request_fields = ["/amount"]
caller_header = "X-Tenant"
certificate_header = "X-Client-Cert"
requests_per_minute = 7
callers = { shop = "env:SHOP", till = "env:TILL" }
[handlers.pay]
source = "pay"
events = ["*"]
command = ["/bin/true"]
"#;
        let folder = tempfile::tempdir().unwrap();
        let before = load(folder.path(), text);
        assert!(load(folder.path(), text).changed_sources(&before).is_empty());
        for (from, to) in [
            ("reply_wait = \"1s\"", "reply_wait = \"2s\""),
            ("keep_answers = \"1h\"", "keep_answers = \"2h\""),
            ("keep_error_answers = \"1min\"", ""),
            ("[\"/amount\"]", "[\"/amount\", \"/to\"]"),
            ("caller_header = \"X-Tenant\"", ""),
            ("X-Client-Cert", "X-Cert"),
            ("= 7", "= 0"),
            ("shop = ", "web = "),
            ("\"env:TILL\"", "[\"env:TILL\", \"env:OLD\"]"),
        ] {
            assert!(text.contains(from), "{from}");
            let after = load(folder.path(), &text.replace(from, to));
            assert_eq!(all(&after.changed_sources(&before)), [("pay", "changed")], "{from}");
            assert!(after.changed_handlers(&before).is_empty(), "{from}");
        }
        let plain = text.split("reply_wait").next().unwrap().replace("handler", "accepted");
        let plain = format!(
            "{plain}secrets = \"env:SHOP\"\n[handlers.pay]{}",
            text.split("[handlers.pay]").nth(1).unwrap()
        );
        let plain = load(folder.path(), &plain);
        assert_eq!(all(&plain.changed_sources(&before)), [("pay", "changed")]);
        assert_eq!(all(&plain.changed_handlers(&before)), [("pay", "changed")]);
    }

    #[test]
    fn a_source_that_proves_nothing_is_refused_where_the_world_can_reach_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = load(folder.path(), BEFORE);
        let loopback: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let open: SocketAddr = "0.0.0.0:1".parse().unwrap();
        assert_eq!(config.exposed_at(&[loopback]), []);
        let found = config.exposed_at(&[loopback, open]);
        let lines: Vec<_> = found.iter().map(|problem| problem.line).collect();
        assert_eq!((lines.as_slice(), found[0].key.as_str()), (&[7, 10, 13][..], "sources.stays"));
    }
}
