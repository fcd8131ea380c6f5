//! `hooklatch status`: one screen, the one command to run next, and an exit code for monitors.

mod screen;

use std::time::Duration;

use crate::cli;
use crate::clock::Clock;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::handler::link::View;
use crate::model::Timestamp;
use crate::store::Backlog;

use super::output::{self, count, escape, local, size, thousands};
use super::store;
use screen::{Screen, Site, SourceLine, Verdict, screen};

/// Asks how everything stands and prints it.
pub(super) fn run(args: &cli::Status) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let sources: Vec<_> =
        config.sources().map(|(name, path)| (name.clone(), path.to_owned())).collect();
    let names = sources.iter().map(|(name, _)| name.clone()).collect();
    let asked = store::ask_of(&config, Request::Status { sources: names });
    // Whatever keeps the answer from coming, a store that was never made too, nothing is served.
    let status = match asked.map_err(|failure| Failure { exit: Exit::Unavailable, ..failure })? {
        Reply::Status(status) => *status,
        other => return Err(store::unexpected(&other)),
    };
    let (path, suffix) = (config.store().path, output::config_suffix(&args.file.config));
    let site = Site { sources, store: &path, suffix: &suffix };
    let screen = screen(status, &site, Clock::system().now());
    match args.format.json {
        true => output::json(&screen)?,
        false => lines(&screen).iter().try_for_each(output::line)?,
    }
    Ok(match screen.verdict {
        Verdict::Well => Exit::Ok,
        Verdict::NeedsAPerson => Exit::No,
        Verdict::NotServing => Exit::Unavailable,
    })
}

/// The screen for people: a word in front of each line says what it is about.
fn lines(screen: &Screen) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |about: &str, text: String| lines.push(format!("{about:<10}{text}"));
    let verdict = match screen.verdict {
        Verdict::Well => "all is well",
        Verdict::NeedsAPerson => "needs a person",
        Verdict::NotServing => "NOT SERVING",
    };
    let why = screen.why.iter().map(|why| escape(why)).collect::<Vec<_>>().join("; ");
    let colon = if why.is_empty() { "" } else { ": " };
    say("status", format!("{verdict}{colon}{why}"));
    for note in &screen.notes {
        say("note", escape(note));
    }
    if let Some(serving) = &screen.receiver {
        let (pid, version) = (serving.pid, escape(&serving.version));
        let since = local(serving.started_at);
        say("receiver", format!("pid {pid}, version {version}, since {since}"));
    }
    say("jobs", jobs(screen));
    if let Some(oldest) = &screen.oldest_ready {
        let since = when(oldest.since, screen.now);
        say("oldest", format!("ready since {since}, for handler {}", oldest.handler));
    }
    for stuck in &screen.stuck {
        let (jobs, oldest) = (thousands(stuck.jobs), when(stuck.oldest_at, screen.now));
        let (handler, reason) = (&stuck.handler, &stuck.reason);
        say(stuck.state.as_str(), format!("{jobs} of {handler}: {reason}, the oldest of {oldest}"));
    }
    for paused in &screen.paused {
        say("paused", format!("{} since {}", paused.handler, local(paused.since)));
    }
    for restored in &screen.restores {
        let (at, made) = (when(restored.restored_at, screen.now), local(restored.made_at));
        say("restored", format!("{at} from a backup of {made}: what came in between is not known"));
    }
    for line in &screen.sources {
        say("source", source(line, screen));
    }
    for unknown in &screen.unknown_paths {
        let requests = count(unknown.requests, "request");
        let (path, last) = (escape(&unknown.path), when(unknown.last_at, screen.now));
        let meant = unknown.nearest.as_ref().map(|path| format!(": did you mean {path}?"));
        let meant = meant.unwrap_or_default();
        say("unknown", format!("{requests} to {path}, the last {last}{meant}"));
    }
    for text in screen.runners.iter().flat_map(|views| runners(views)) {
        say("runner", text);
    }
    if let Some(disk) = &screen.disk {
        let free = disk.free_bytes.map_or("an unknown amount".to_owned(), size);
        let (floor, database) = (size(disk.floor_bytes), size(disk.database_bytes));
        let log = size(disk.log_bytes);
        say("disk", format!("{free} free, {floor} needed; database {database}, log {log}"));
    }
    say("clock", local(screen.now));
    if screen.receiver.is_some() {
        let commit = screen.last_commit_at.map(|at| when(at, screen.now));
        say("commit", commit.unwrap_or_else(|| "none since the start".to_owned()));
    }
    say("next", screen.next.clone());
    lines
}

fn jobs(screen: &Screen) -> String {
    let sum = |backlogs: &[Backlog]| thousands(backlogs.iter().map(|one| one.jobs).sum());
    let (ready, running) = (sum(&screen.ready), sum(&screen.running));
    let next = screen.waiting.iter().map(|backlog| backlog.since).min();
    let due = next.map(|due| format!(" (the next is due {})", local(due))).unwrap_or_default();
    format!("{ready} ready, {running} running, {} waiting{due}", sum(&screen.waiting))
}

fn source(line: &SourceLine, screen: &Screen) -> String {
    let place = match (&line.path, line.served, &screen.receiver) {
        (None, true, Some(_)) => "served, and not found in the configuration".to_owned(),
        (None, ..) => "not configured any more".to_owned(),
        (Some(path), false, Some(_)) => format!("{path}, not served"),
        (Some(path), ..) => path.clone(),
    };
    let good = match line.last_good_at {
        Some(at) => format!("last good {}", when(at, screen.now)),
        None => "no good delivery yet".to_owned(),
    };
    let failed = line.last_failure.as_ref().map(|failed| {
        format!("; last refused {}: {}", when(failed.at, screen.now), escape(&failed.reason))
    });
    let counts = line.served.then(|| {
        let (new, again, refused) = (line.accepted, line.duplicates, line.refused);
        let [new, again, refused] = [new, again, refused].map(thousands);
        format!("; since the start {new} new, {again} again, {refused} refused")
    });
    let kept = (line.quarantined > 0).then(|| {
        let kept = thousands(line.quarantined);
        format!("; {kept} in quarantine (see `hooklatch quarantine`)")
    });
    let (failed, counts) = (failed.unwrap_or_default(), counts.unwrap_or_default());
    format!("{} at {place}: {good}{failed}{counts}{}", line.source, kept.unwrap_or_default())
}

/// A line for each; the default one is named where it is not the only one.
fn runners(views: &[View]) -> Vec<String> {
    match views {
        [] => vec!["not needed: no command is configured".to_owned()],
        [only] if only.name.is_default() => vec![runner(only)],
        all => all.iter().map(|view| format!("{}: {}", view.name, runner(view))).collect(),
    }
}

fn runner(view: &View) -> String {
    match (view.connected, view.room) {
        (true, Some(room)) => {
            let (running, free) = (view.running, room.saturating_sub(view.running));
            format!("connected, {running} running, {free} free")
        }
        (true, None) => format!("draining, {} running: it is being stopped", view.running),
        (false, _) => match &view.why {
            Some(why) => format!("not connected: {}", escape(why)),
            None => "not connected yet".to_owned(),
        },
    }
}

/// A time for people, with how long ago that was.
fn when(at: Timestamp, now: Timestamp) -> String {
    match now.0 - at.0 {
        ..0 => local(at),
        millis => format!(
            "{} ({} ago)",
            local(at),
            output::span(Duration::from_millis(millis.unsigned_abs()))
        ),
    }
}
