//! What `status` says, and what it makes of it: a pure function of what was answered.
//!
//! What must stay true: only what strangers cannot bring about changes the verdict, or whoever can post
//! to a path could wake a person; every verdict but "well" has a sentence and a command.

use std::path::Path;

use serde::Serialize;

use crate::admin::{ReceiverStatus, Status};
use crate::handler::runner_client::RunnerStatus;
use crate::model::{Broken, Name, State, Timestamp, shell_word};
use crate::notify::BROKEN_AFTER;
use crate::store::{Backlog, Disk, LastWord, PausedRow, RestoredRow, Standing, Stuck};
use crate::traffic::UnknownPath;

use crate::cmd::output::count;

/// How far the clock may have moved before it is worth a word: more than a slewed clock's 1.8 s an hour
/// makes of a day (adjtimex(2)), less than the shortest tolerance of a signature's age.
const CLOCK_MOVED_MILLIS: u64 = 60_000;

/// The answer of `status` in a word; each has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Serving, and nothing waits for a person.
    Well,
    /// Serving, and something waits for a person.
    NeedsAPerson,
    /// Events are not accepted now.
    NotServing,
}

#[derive(Debug, Serialize)]
pub(super) struct Screen {
    pub(super) verdict: Verdict,
    /// The sentences behind the verdict.
    pub(super) why: Vec<String>,
    /// What is worth a look and does not change the verdict.
    pub(super) notes: Vec<String>,
    /// The one command to run next.
    pub(super) next: String,
    /// None where the store is stopped.
    pub(super) receiver: Option<Serving>,
    pub(super) refused: Option<String>,
    pub(super) oldest_ready: Option<Backlog>,
    pub(super) ready: Vec<Backlog>,
    pub(super) running: Vec<Backlog>,
    pub(super) waiting: Vec<Backlog>,
    pub(super) stuck: Vec<Stuck>,
    pub(super) paused: Vec<PausedRow>,
    /// Handlers that cannot run. Empty where the store is stopped: then nothing is known of them.
    pub(super) broken: Vec<Broken>,
    /// From backups; what came in their gaps is not known here.
    pub(super) restores: Vec<RestoredRow>,
    pub(super) sources: Vec<SourceLine>,
    pub(super) unknown_paths: Vec<UnknownPath>,
    /// None where the store is stopped.
    pub(super) runners: Option<Vec<RunnerStatus>>,
    pub(super) disk: Option<Disk>,
    pub(super) now: Timestamp,
    pub(super) last_commit_at: Option<Timestamp>,
}

/// The receiver that answered.
#[derive(Debug, Serialize)]
pub(super) struct Serving {
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) started_at: Timestamp,
    pub(super) clock_moved_millis: i64,
}

/// One source: what store and receiver know of it together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SourceLine {
    pub(super) source: Name,
    /// Where it is, or would be, served; none where it is not configured any more.
    pub(super) path: Option<String>,
    /// The receiver has it.
    pub(super) served: bool,
    pub(super) last_good_at: Option<Timestamp>,
    pub(super) last_failure: Option<Failed>,
    /// Since the receiver's start: new events, repeated ones, refused deliveries.
    pub(super) accepted: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    /// Refused deliveries since the last good one.
    pub(super) refused_in_a_row: u64,
    /// Refused deliveries whose body was larger than `max_body`.
    pub(super) too_large: u64,
    /// Failed deliveries that are kept and can be verified again.
    pub(super) quarantined: u64,
}

/// A failed delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Failed {
    pub(super) at: Timestamp,
    pub(super) reason: String,
}

impl SourceLine {
    /// Says how many deliveries were refused since the last good one, if any.
    fn refusing(&self) -> Option<String> {
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

/// How commands are written for whoever reads the screen.
pub(super) struct Site<'a> {
    /// The configured sources with their paths.
    pub(super) sources: Vec<(Name, String)>,
    /// The database.
    pub(super) store: &'a Path,
    /// What a command needs to find this configuration; empty for the usual place.
    pub(super) suffix: &'a str,
}

impl Site<'_> {
    fn command(&self, typed: &str) -> String {
        format!("hooklatch {typed}{}", self.suffix)
    }
}

/// Makes the screen of an answer. `now`: this machine's wall clock.
pub(super) fn screen(status: Status, site: &Site<'_>, now: Timestamp) -> Screen {
    let (mut why, mut notes, mut commands) = (Vec::new(), Vec::new(), Vec::new());
    let Status { receiver, refused, store } = status;
    if receiver.is_none() {
        why.push("no receiver runs: the store is stopped".to_owned());
        commands.push(site.command("serve"));
    }
    if let Some(refused) = &refused {
        why.push(format!("every delivery is answered 503: {}", refused.reason));
        let folder = site.store.parent().unwrap_or(site.store).display();
        commands.push(match refused.space {
            true => format!("df -h {}", shell_word(&folder.to_string())),
            false => site.command("status"),
        });
    }
    let serving = why.is_empty();
    let broken = receiver.as_ref().map_or(Vec::new(), |receiver| receiver.traffic.broken.clone());
    for one in &broken {
        let said = format!("handler {} cannot run", one.handler);
        match one.tries > BROKEN_AFTER {
            true => why.push(said),
            // A program that is being replaced is missing for a moment.
            false => notes.push(said),
        }
        commands.push(site.command(&format!("explain {}", one.event_id.shell_word())));
    }
    let runners = receiver.as_ref().map(|receiver| receiver.runners.clone());
    for (view, reason) in
        runners.iter().flatten().filter_map(|view| Some((view, no_commands(view)?)))
    {
        why.push(reason);
        commands.push(match &view.unit {
            Some(unit) => format!("systemctl status {}", shell_word(unit)),
            None => site.command("runner"),
        });
    }
    for source in receiver.iter().flat_map(|receiver| &receiver.without_secret) {
        why.push(format!(
            "the secret of source {source} is empty: its deliveries are answered 401"
        ));
        commands.push(site.command("config check"));
    }
    let stuck = store.as_ref().map_or(Vec::new(), |store| store.stuck.clone());
    for state in [State::Held, State::Dead] {
        let of_state: Vec<&Stuck> = stuck.iter().filter(|stuck| stuck.state == state).collect();
        let jobs: u64 = of_state.iter().map(|stuck| stuck.jobs).sum();
        if jobs > 0 {
            why.push(format!("{} {state}", count(jobs, "job")));
            commands.push(site.command(&format!("{state}{}", only(&of_state))));
        }
    }
    let sources = sources(receiver.as_ref(), store.as_ref().map(|s| &s.sources[..]), site);
    for line in &sources {
        if receiver.is_some() && !line.served && line.path.is_some() {
            notes.push(format!("source {} is configured and not served: reload", line.source));
            commands.push(site.command("reload"));
        }
        if let Some(refusing) = line.refusing() {
            notes.push(refusing);
            let judge =
                if line.quarantined > 0 { "quarantine verify" } else { "events --rejected" };
            commands.push(site.command(&format!("{judge} --source {}", line.source)));
        }
    }
    let paused = store.as_ref().map_or(Vec::new(), |store| store.paused.clone());
    for row in &paused {
        notes.push(format!("handler {} is paused", row.handler));
        commands.push(site.command(&format!("resume {}", row.handler)));
    }
    let moved = receiver.as_ref().map_or(0, |receiver| receiver.clock_moved_millis);
    if moved.unsigned_abs() > CLOCK_MOVED_MILLIS {
        let seconds = moved / 1000;
        notes.push(format!("the clock has moved by {seconds:+} s since the receiver's start"));
    }
    let newest = store.as_ref().and_then(|store| store.newest_event_at);
    if newest.is_some_and(|newest| newest.since(now).as_millis() > CLOCK_MOVED_MILLIS.into()) {
        notes.push("the newest event lies in the future: the clock was set back".to_owned());
    }
    let verdict = match (serving, why.is_empty()) {
        (false, _) => Verdict::NotServing,
        (true, false) => Verdict::NeedsAPerson,
        (true, true) => Verdict::Well,
    };
    let unknown_paths =
        receiver.as_ref().map_or(Vec::new(), |receiver| receiver.traffic.unknown_paths.clone());
    let store_ref = store.as_ref();
    let backlogs =
        |of: fn(&Standing) -> &Vec<Backlog>| store_ref.map(of).cloned().unwrap_or_default();
    let ready = backlogs(|store| &store.ready);
    Screen {
        verdict,
        why,
        notes,
        next: commands.into_iter().next().unwrap_or_else(|| site.command("events")),
        receiver: receiver.map(|receiver| Serving {
            version: receiver.version,
            pid: receiver.pid,
            started_at: receiver.started_at,
            clock_moved_millis: receiver.clock_moved_millis,
        }),
        refused: refused.map(|refused| refused.reason),
        oldest_ready: ready.iter().min_by_key(|backlog| backlog.since).cloned(),
        ready,
        running: backlogs(|store| &store.running),
        waiting: backlogs(|store| &store.waiting),
        stuck,
        paused,
        broken,
        restores: store.as_ref().map_or(Vec::new(), |store| store.restores.clone()),
        sources,
        unknown_paths,
        runners,
        last_commit_at: store.as_ref().and_then(|store| store.last_commit_at),
        disk: store.map(|store| store.disk),
        now,
    }
}

/// Why no command of a runner can run. A link that has not failed yet is only young.
fn no_commands(view: &RunnerStatus) -> Option<String> {
    let why = view.why.as_ref().filter(|_| !view.connected)?;
    let whose = match view.name.is_default() {
        true => String::new(),
        false => format!(" of runner {}", view.name),
    };
    Some(format!("no command{whose} can run: {why}"))
}

/// The filter that shows these jobs alone, where they are one handler's.
fn only(stuck: &[&Stuck]) -> String {
    match stuck {
        [first, rest @ ..] if rest.iter().all(|other| other.handler == first.handler) => {
            format!(" --handler {}", first.handler)
        }
        _ => String::new(),
    }
}

/// Every source that is configured, served or has failed deliveries, by name.
fn sources(
    receiver: Option<&ReceiverStatus>,
    words: Option<&[LastWord]>,
    site: &Site<'_>,
) -> Vec<SourceLine> {
    let (served, words) = (receiver.map(|receiver| &receiver.traffic.sources), words);
    let mut names: Vec<&Name> = site.sources.iter().map(|(name, _)| name).collect();
    names.extend(served.iter().flat_map(|served| served.keys()));
    names.extend(words.iter().flat_map(|words| words.iter().map(|word| &word.source)));
    names.sort();
    names.dedup();
    let line = |name: &Name| {
        let seen = served.and_then(|served| served.get(name)).cloned();
        let word = words.and_then(|words| words.iter().find(|word| word.source == *name));
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
        let later = |a: Failed, b: Failed| if a.at > b.at { a } else { b };
        let last_failure = match (refused, quarantined) {
            (Some(refused), Some(kept)) => Some(later(refused, kept)),
            (refused, kept) => refused.or(kept),
        };
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
            refused_in_a_row: seen.refused_in_a_row,
            too_large: seen.too_large,
            quarantined: word.map_or(0, |word| word.quarantined),
        }
    };
    names.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
