//! The facts that `status` prints, and its verdict: a pure function of the receiver's and the store's answer.
//!
//! Must stay true: only facts that strangers cannot cause change the verdict, because otherwise anyone who can
//! post to a path could wake the operator. Every verdict but "well" has a sentence and a command.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::admin::{GetStatus, ReceiverStatus, Refusal, Status};
use crate::config::Config;
use crate::handler::runner_client::RunnerStatus;
use crate::model::{Broken, HeldReason, Name, State, Timestamp, shell_word};
use crate::notify::BROKEN_AFTER;
use crate::store::{
    AwaitedNode, Backlog, BlockedGroups, Disk, NodeHandler, NodeRow, PausedRow, RestoredRow,
    SourceActivity, Stall, Stalled, StoppedJobs,
};
use crate::traffic::{HandlerSeen, TooLarge, UnknownPath};

use crate::cmd::output::{count, short_span};

/// How far the clock may move before a note. More than a slewed clock moves in a day, at 1.8 s an hour
/// (adjtimex(2)); no more than the shortest tolerance of a signature's age.
const CLOCK_MOVED_MILLIS: u64 = 60_000;

/// The answer of `status`; each has an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Serving, and nothing waits for a person.
    Well,
    /// Serving, and something waits for a person.
    NeedsAPerson,
    /// Events are not accepted now.
    NotServing,
}

#[derive(Debug, Serialize)]
pub(crate) struct Screen {
    pub(crate) verdict: Verdict,
    /// The sentences behind the verdict.
    pub(crate) why: Vec<String>,
    /// Facts to look at that do not change the verdict.
    pub(crate) notes: Vec<String>,
    /// The files differ from the configuration in force: a reload, or a restart, takes them.
    pub(crate) reload_needed: bool,
    /// The one command to run next.
    pub(crate) next: String,
    /// `None` if the store is stopped.
    pub(crate) receiver: Option<Serving>,
    pub(crate) refused: Option<String>,
    /// What stands still in the receiver, the worst first.
    pub(crate) stalls: Vec<Stall>,
    pub(crate) oldest_ready: Option<Backlog>,
    pub(crate) ready: Vec<Backlog>,
    pub(crate) running: Vec<Backlog>,
    pub(crate) waiting: Vec<Backlog>,
    pub(crate) stuck: Vec<StoppedJobs>,
    /// Groups that stand still behind one of these.
    pub(crate) blocked: Vec<BlockedGroups>,
    pub(crate) paused: Vec<PausedRow>,
    /// Handlers that cannot run. Empty if the store is stopped, because then they are not known.
    pub(crate) broken: Vec<Broken>,
    /// The attempts of each handler since the receiver's start.
    pub(crate) handlers: BTreeMap<Name, HandlerSeen>,
    /// What a roll call waits for; nothing is replayed meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) awaited: Vec<AwaitedNode>,
    /// Restored backups; events that arrived in their gaps are not known here.
    pub(crate) restores: Vec<RestoredRow>,
    pub(crate) sources: Vec<SourceLine>,
    pub(crate) unknown_paths: Vec<UnknownPath>,
    /// `None` if the store is stopped.
    pub(crate) runners: Option<Vec<RunnerStatus>>,
    /// The nodes of a database that several machines use, without those that are lost and not awaited.
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) disk: Option<Disk>,
    pub(crate) now: Timestamp,
    pub(crate) last_commit_at: Option<Timestamp>,
}

/// The receiver that answered.
#[derive(Debug, Serialize)]
pub(crate) struct Serving {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) clock_moved_millis: i64,
}

/// The facts about one source from store and receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SourceLine {
    pub(crate) source: Name,
    /// Its URL path; `None` if it is not configured any more.
    pub(crate) path: Option<String>,
    /// The receiver has it.
    pub(crate) served: bool,
    pub(crate) last_good_at: Option<Timestamp>,
    pub(crate) last_failure: Option<Failed>,
    /// New events since the receiver's start; then repeated ones, and refused deliveries.
    pub(crate) accepted: u64,
    pub(crate) duplicates: u64,
    pub(crate) refused: u64,
    /// Challenges that were answered.
    pub(crate) handshakes: u64,
    /// Refused deliveries since the last good one.
    pub(crate) refused_in_a_row: u64,
    /// Refused deliveries whose body was larger than `max_body`.
    pub(crate) too_large: u64,
    /// Deliveries with such a body, by hour and declared size; nothing of them is proven.
    pub(crate) unproven_too_large: Vec<TooLarge>,
    /// Failed deliveries that are kept and can be verified again.
    pub(crate) quarantined: u64,
}

/// A failed delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failed {
    pub(crate) at: Timestamp,
    pub(crate) reason: String,
}

impl SourceLine {
    /// Says how many deliveries were refused since the last good one, if any.
    pub(crate) fn refusing(&self) -> Option<String> {
        let failed =
            self.last_failure.as_ref().filter(|failed| Some(failed.at) > self.last_good_at)?;
        let deliveries = match self.refused_in_a_row {
            // 0: it was refused before the receiver's start.
            0 | 1 => "delivery".to_owned(),
            several => format!("{several} deliveries"),
        };
        let word = failed.reason.split(": ").next().unwrap_or_default();
        Some(format!("source {} refused its last {deliveries} ({word})", self.source))
    }
}

/// The configuration's facts for sources and printed commands.
pub(crate) struct Site<'a> {
    /// The configured sources with their paths.
    pub(crate) sources: Vec<(Name, String)>,
    /// The digest of the files; none if they have mistakes.
    pub(crate) configuration: Option<String>,
    /// The database.
    pub(crate) store: &'a Path,
    /// The `--config` option for printed commands; empty for the default file.
    pub(crate) suffix: &'a str,
}

impl<'a> Site<'a> {
    pub(crate) fn of(config: &Config, store: &'a Path, suffix: &'a str) -> Self {
        let own = config.sources.iter();
        let sources = own.map(|own| (own.name.clone(), own.path.value.clone())).collect();
        // Files with mistakes cannot be compared: the command has said so.
        let configuration = config.mistakes().is_empty().then(|| config.digest().to_string());
        Site { sources, configuration, store, suffix }
    }

    /// What to ask for [`screen`].
    pub(crate) fn question(&self) -> GetStatus {
        GetStatus { sources: self.sources.iter().map(|(name, _)| name.clone()).collect() }
    }

    /// Whether the receiver, of this version, has another configuration in force.
    fn is_ahead_of(&self, receiver: &ReceiverStatus) -> bool {
        let same_version = receiver.version == env!("CARGO_PKG_VERSION");
        let in_force = Some(&receiver.configuration).filter(|digest| !digest.is_empty());
        same_version
            && in_force.zip(self.configuration.as_ref()).is_some_and(|(one, own)| one != own)
    }

    fn command(&self, typed: &str) -> String {
        format!("hooklatch {typed}{}", self.suffix)
    }
}

/// Makes the screen of an answer. `now` is this machine's wall clock.
pub(crate) fn screen(status: Status, site: &Site<'_>, now: Timestamp) -> Screen {
    let Status { receiver, refused, stalls, store } = status;
    let receiver = receiver.as_ref();
    let disk = store.as_ref().map(|store| store.disk.clone());
    // An answer without the store has nothing of it.
    let store = store.unwrap_or_default();
    let mut findings = Findings { site, why: Vec::new(), notes: Vec::new(), commands: Vec::new() };
    if receiver.is_none() {
        findings.problem("no receiver runs: the store is stopped".to_owned(), "serve");
    }
    if let Some(refused) = &refused {
        findings.refusal(refused);
    }
    let serving = findings.why.is_empty();
    findings.of_damage(&store.stuck);
    // The refusal says the same of the commits.
    for stall in stalls.iter().filter(|stall| refused.is_none() || stall.what != Stalled::Commits) {
        let silence = short_span(now.since(stall.since));
        let look = if stall.what == Stalled::Pages { "doctor --deep" } else { "doctor" };
        findings.problem(format!("{stall} (for {silence})"), look);
    }
    if let Some(receiver) = receiver {
        findings.of_receiver(receiver);
    }
    findings.of_nodes(&store.nodes);
    if let Some(first) = store.awaited.first() {
        findings.problem(format!("nothing is replayed yet, because {first}"), "doctor");
    }
    findings.of_stuck_jobs(&store.stuck);
    let sources = sources(receiver, &store.sources, site);
    findings.of_sources(&sources, receiver.is_some());
    for row in &store.paused {
        let resume = format!("resume {}", row.handler);
        findings.note(format!("handler {} is paused", row.handler), &resume);
    }
    let reload_needed = receiver.is_some_and(|receiver| site.is_ahead_of(receiver));
    if reload_needed {
        let sentence = "the files differ from the configuration in force".to_owned();
        findings.note(sentence, "reload");
    }
    findings.of_lost_events(&store.restores);
    if let Some(mended) = &store.mended {
        let were = if mended.payloads == 1 { "was" } else { "were" };
        let payloads = count(mended.payloads, "damaged payload");
        let last = short_span(now.since(mended.last_at));
        let sentence = format!(
            "{payloads} {were} mended by later deliveries, the last one {last} ago: check the disk"
        );
        findings.note(sentence, "doctor --deep");
    }
    if let Some(warning) = &store.server_warning {
        findings.note(format!("the database's server warns: {warning}"), "doctor");
    }
    findings.of_clocks(receiver, store.newest_event_at, now);
    let Findings { why, notes, commands, .. } = findings;
    let verdict = match (serving, why.is_empty()) {
        (false, _) => Verdict::NotServing,
        (true, false) => Verdict::NeedsAPerson,
        (true, true) => Verdict::Well,
    };
    let traffic = receiver.map(|receiver| receiver.traffic.clone()).unwrap_or_default();
    Screen {
        verdict,
        why,
        notes,
        reload_needed,
        next: commands.into_iter().next().unwrap_or_else(|| site.command("events")),
        receiver: receiver.map(|receiver| Serving {
            version: receiver.version.clone(),
            pid: receiver.pid,
            started_at: receiver.started_at,
            clock_moved_millis: receiver.clock_moved_millis,
        }),
        refused: refused.map(|refused| refused.reason),
        stalls,
        oldest_ready: store.ready.iter().min_by_key(|backlog| backlog.since).cloned(),
        ready: store.ready,
        running: store.running,
        waiting: store.waiting,
        stuck: store.stuck,
        blocked: store.blocked,
        paused: store.paused,
        broken: traffic.broken,
        handlers: traffic.handlers,
        awaited: store.awaited,
        restores: store.restores,
        sources,
        unknown_paths: traffic.unknown_paths,
        runners: receiver.map(|receiver| receiver.runners.clone()),
        nodes: store
            .nodes
            .into_iter()
            .filter(|node| node.state == "active" || node.awaited)
            .collect(),
        last_commit_at: store.last_commit_at,
        disk,
        now,
    }
}

/// The sentences for people and the commands to run, most important first.
struct Findings<'a> {
    site: &'a Site<'a>,
    /// The sentences behind the verdict.
    why: Vec<String>,
    notes: Vec<String>,
    commands: Vec<String>,
}

impl Findings<'_> {
    /// Adds a sentence that changes the verdict. `typed` is the command to run, without `hooklatch`.
    fn problem(&mut self, sentence: String, typed: &str) {
        self.why.push(sentence);
        self.commands.push(self.site.command(typed));
    }

    /// Adds a sentence that does not change the verdict, as [`Findings::problem`] does.
    fn note(&mut self, sentence: String, typed: &str) {
        self.notes.push(sentence);
        self.commands.push(self.site.command(typed));
    }

    fn refusal(&mut self, refused: &Refusal) {
        self.why.push(format!("every delivery is answered 503: {}", refused.reason));
        let folder = self.site.store.parent().unwrap_or(self.site.store).display();
        self.commands.push(match refused.space {
            true => format!("df -h {}", shell_word(&folder.to_string())),
            false => self.site.command("status"),
        });
    }

    fn of_receiver(&mut self, receiver: &ReceiverStatus) {
        for broken in &receiver.traffic.broken {
            let sentence = format!("handler {} cannot run", broken.handler);
            let explain = format!("explain {}", broken.event_id.shell_word());
            match broken.tries > BROKEN_AFTER {
                true => self.problem(sentence, &explain),
                // A program that is being replaced is missing for a moment.
                false => self.note(sentence, &explain),
            }
        }
        for runner in &receiver.runners {
            // A runner without an error has not been tried yet.
            let Some(why) = runner.why.as_ref().filter(|_| !runner.connected) else { continue };
            let whose = match runner.name.is_default() {
                true => String::new(),
                false => format!(" of runner {}", runner.name),
            };
            self.why.push(format!("no command{whose} can run: {why}"));
            self.commands.push(match &runner.unit {
                Some(unit) => format!("systemctl status {}", shell_word(unit)),
                None => self.site.command("runner"),
            });
        }
        for source in &receiver.without_secret {
            let sentence =
                format!("source {source} has no secret: its deliveries are answered 401");
            self.problem(sentence, "config check");
        }
    }

    fn of_nodes(&mut self, nodes: &[NodeRow]) {
        for node in nodes.iter().filter(|node| node.outdated) {
            let sentence =
                format!("node {} runs version {}: upgrade it, too", node.name, node.version);
            self.note(sentence, "node list");
        }
        for node in nodes.iter().filter(|node| node.is_silent()) {
            let silence = short_span(node.silence());
            let sentence = format!("node {} is silent for {silence}", node.name);
            match node.running {
                0 => self.note(sentence, "node list"),
                running => {
                    let attempts = count(running, "attempt");
                    self.problem(format!("{sentence}, with {attempts} running"), "node list");
                }
            }
        }
        for node in nodes.iter().filter(|node| !node.lacks.is_empty()) {
            let (handlers, them) = match node.lacks.as_slice() {
                [handler] => (format!("handler {handler}"), "it"),
                several => {
                    let names: Vec<&str> = several.iter().map(Name::as_str).collect();
                    (format!("handlers {}", listed(&names)), "them")
                }
            };
            let name = &node.name;
            let sentence = format!(
                "node {name} lacks {handlers}: an event that {name} accepts gets no job for {them}"
            );
            self.note(sentence, "node list");
        }
        let differing = nodes.iter().flat_map(|node| &node.handlers).filter(|own| own.differs);
        let differing: BTreeSet<&Name> = differing.map(|own| &own.handler).collect();
        for handler in differing {
            let published = nodes.iter().filter_map(|node| {
                let own = node.handlers.iter().find(|own| own.handler == *handler)?;
                Some((node.name.as_str(), own))
            });
            let published: Vec<_> = published.collect();
            self.note(format!("handler {handler}: {}", differences(&published)), "node list");
        }
    }

    fn of_lost_events(&mut self, restores: &[RestoredRow]) {
        let lost: u64 = restores.iter().map(|row| row.lost).sum();
        if lost > 0 {
            let events = count(lost, "accepted event");
            self.notes.push(format!(
                "the database has gone back and lacks {events}: let them be sent again"
            ));
            let named = "journalctl -u hooklatch -g 'an accepted event is lost'";
            self.commands.push(named.to_owned());
        }
    }

    fn of_damage(&mut self, stuck: &[StoppedJobs]) {
        let reason = HeldReason::PayloadDamaged.as_str();
        let damaged = stuck.iter().filter(|stuck| stuck.reason == reason);
        let jobs: u64 = damaged.map(|stuck| stuck.jobs).sum();
        if jobs > 0 {
            let jobs = count(jobs, "job");
            let sentence = format!("the stored payload of {jobs} is damaged: let it be sent again");
            self.problem(sentence, "held --reason payload-damaged");
        }
    }

    fn of_stuck_jobs(&mut self, stuck: &[StoppedJobs]) {
        for state in [State::Held, State::Dead] {
            let of_state = || stuck.iter().filter(|stuck| stuck.state == state);
            let Some(first) = of_state().next() else { continue };
            // The filter that shows these jobs alone, where they are one handler's.
            let only = match of_state().all(|other| other.handler == first.handler) {
                true => format!(" --handler {}", first.handler),
                false => String::new(),
            };
            let jobs = count(of_state().map(|stuck| stuck.jobs).sum(), "job");
            self.problem(format!("{jobs} {state}"), &format!("{state}{only}"));
        }
    }

    fn of_sources(&mut self, sources: &[SourceLine], receiver_runs: bool) {
        for line in sources {
            let source = &line.source;
            if receiver_runs && !line.served && line.path.is_some() {
                let sentence = format!("source {source} is configured and not served: reload");
                self.note(sentence, "reload");
            }
            if let Some(refusing) = line.refusing() {
                let command = match line.quarantined {
                    0 => "events --rejected",
                    _ => "quarantine verify",
                };
                self.note(refusing, &format!("{command} --source {source}"));
            }
        }
    }

    fn of_clocks(
        &mut self,
        receiver: Option<&ReceiverStatus>,
        newest_event_at: Option<Timestamp>,
        now: Timestamp,
    ) {
        let moved = receiver.map_or(0, |receiver| receiver.clock_moved_millis);
        if moved.unsigned_abs() > CLOCK_MOVED_MILLIS {
            let seconds = moved / 1000;
            let note = format!("the clock has moved by {seconds:+} s since the receiver's start");
            self.notes.push(note);
        }
        if newest_event_at.is_some_and(|at| at.since(now).as_millis() > CLOCK_MOVED_MILLIS.into()) {
            let note = "the newest event lies in the future: the clock was set back";
            self.notes.push(note.to_owned());
        }
    }
}

/// How the nodes configure a handler, key by key: "timeout 30s on a, 10s on b".
fn differences(published: &[(&str, &NodeHandler)]) -> String {
    let keys: BTreeSet<&String> = published.iter().flat_map(|(_, own)| own.keys.keys()).collect();
    if keys.is_empty() {
        return "the nodes differ in what they do not publish, such as values of env".to_owned();
    }
    let of_key = |key: &String| {
        // Each value with its nodes.
        let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
        for &(node, own) in published {
            let value = own.keys.get(key).map_or("none", String::as_str);
            match values.iter_mut().find(|(other, _)| *other == value) {
                Some((_, nodes)) => nodes.push(node),
                None => values.push((value, vec![node])),
            }
        }
        let values = values.iter().map(|(value, nodes)| format!("{value} on {}", listed(nodes)));
        format!("{key} {}", values.collect::<Vec<_>>().join(", "))
    };
    keys.into_iter().map(of_key).collect::<Vec<_>>().join("; ")
}

/// "a", "a and b", "a, b and c".
fn listed(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Every source that is configured, served or has failed deliveries, by name.
fn sources(
    receiver: Option<&ReceiverStatus>,
    words: &[SourceActivity],
    site: &Site<'_>,
) -> Vec<SourceLine> {
    let served = receiver.map(|receiver| &receiver.traffic.sources);
    let mut names: Vec<&Name> = site.sources.iter().map(|(name, _)| name).collect();
    names.extend(served.iter().flat_map(|served| served.keys()));
    names.extend(words.iter().map(|word| &word.source));
    names.sort();
    names.dedup();
    let line = |name: &Name| {
        let seen = served.and_then(|served| served.get(name)).cloned();
        let word = words.iter().find(|word| word.source == *name);
        let configured = site.sources.iter().find(|(own, _)| own == name);
        let stored = word.and_then(|word| word.event.as_ref()).map(|(_, at)| *at);
        let matched = word.and_then(|word| word.secret_matched_at);
        let quarantined = word.and_then(|word| word.failure.as_ref()).map(|failure| Failed {
            at: failure.received_at,
            reason: format!("{}: {}", failure.reason, failure.detail),
        });
        let is_served = seen.is_some();
        let seen = seen.unwrap_or_default();
        let refused = seen.last_refused.map(|(at, reason)| Failed { at, reason });
        // Of the same moment the quarantined one says more.
        let last_failure = [refused, quarantined].into_iter().flatten().max_by_key(|one| one.at);
        SourceLine {
            source: name.clone(),
            path: configured
                .map(|(_, path)| path.clone())
                .or_else(|| Some(seen.path.clone()).filter(|_| is_served)),
            served: is_served,
            last_good_at: seen.last_good_at.max(stored).max(matched),
            last_failure,
            accepted: seen.accepted,
            duplicates: seen.duplicates,
            refused: seen.refused,
            handshakes: seen.handshakes,
            refused_in_a_row: seen.refused_in_a_row,
            too_large: seen.too_large,
            unproven_too_large: seen.unproven_too_large,
            quarantined: word.map_or(0, |word| word.quarantined),
        }
    };
    names.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
