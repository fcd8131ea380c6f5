//! `hooklatch status`: one screen, the one command to run next, and an exit code for monitors.

mod screen;

use anstyle::{AnsiColor, Style};

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::handler::runner_client::RunnerStatus;
use crate::limits::COUNTED_READY;
use crate::model::{Broken, Timestamp};
use crate::store::{Backlog, NodeRow};
use crate::traffic::TooLarge;

use super::output::{self, count, escape, local, size, state_style, thousands};
use super::store;
pub(super) use screen::{Screen, Site, SourceLine, Verdict, screen};

/// Asks the receiver or the store, and prints the answer.
pub(super) fn run(args: &cli::Options) -> Result<Exit, Failure> {
    let config = store::load(args)?;
    let (path, suffix) = (config.store().path, args.suffix());
    let site = Site::of(&config, &path, &suffix);
    let asked = store::ask_of(&config, site.question());
    // Without an answer nothing is served, even if only the store does not exist yet.
    let status = asked.map_err(|failure| Failure { exit: Exit::Unavailable, ..failure })?;
    let screen = screen(status, &site, Clock::system().now());
    output::either(&args.format, &screen, || {
        let mut facts = facts(&screen);
        if screen.receiver.is_some() {
            facts.push(("pages", PLAIN, vec![format!("hooklatch ui{suffix}")]));
        }
        facts.iter().try_for_each(|(about, style, lines)| output::facts(about, *style, lines))
    })?;
    Ok(match screen.verdict {
        Verdict::Well => Exit::Ok,
        Verdict::NeedsAPerson => Exit::No,
        Verdict::NotServing => Exit::Unavailable,
    })
}

/// A label, its style, and the lines after it.
pub(super) type Fact = (&'static str, Style, Vec<String>);

const PLAIN: Style = Style::new();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// The screen for people.
pub(super) fn facts(screen: &Screen) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut say = |about, style, lines| facts.push((about, style, lines));
    let (verdict, style) = match screen.verdict {
        Verdict::Well if screen.notes.is_empty() => ("all is well", GOOD),
        Verdict::Well => ("serving", WARNING),
        Verdict::NeedsAPerson => ("needs a person", WARNING),
        Verdict::NotServing => ("NOT SERVING", BAD),
    };
    // Without a reason for a person the first note is the sentence.
    let (why, notes) = match (screen.why.is_empty(), screen.notes.split_first()) {
        (true, Some((first, notes))) => (first.clone(), notes),
        _ => (screen.why.join("; "), &screen.notes[..]),
    };
    let separator = match (screen.verdict, why.is_empty()) {
        (_, true) => "",
        (Verdict::Well, false) => "; ",
        (_, false) => ": ",
    };
    say("status", style, vec![format!("{verdict}{separator}{}", escape(&why))]);
    for broken in &screen.broken {
        say("broken", BAD, self::broken(broken, screen.now));
    }
    for stuck in &screen.stuck {
        let (jobs, oldest) = (thousands(stuck.jobs), ago(stuck.oldest_at, screen.now));
        let (handler, reason) = (&stuck.handler, &stuck.reason);
        let line = format!("{jobs} of {handler}: {reason}; the oldest came {oldest}");
        say(stuck.state.as_str(), state_style(stuck.state).bold(), vec![line]);
    }
    for blocked in &screen.blocked {
        let (groups, handler) = (count(blocked.groups, "group"), &blocked.handler);
        let line =
            format!("{groups} of {handler} behind a held or dead job, such as {}", blocked.job);
        say("blocked", WARNING, vec![line]);
    }
    for note in notes {
        say("note", PLAIN, vec![escape(note)]);
    }
    for paused in &screen.paused {
        let line = format!("{} since {}", paused.handler, local(paused.since));
        say("paused", WARNING, vec![line]);
    }
    for line in &screen.sources {
        say("source", PLAIN, source_lines(line, screen));
    }
    for unknown in &screen.unknown_paths {
        let requests = count(unknown.requests, "request");
        let (path, last) = (escape(&unknown.path), when(unknown.last_at, screen.now));
        let meant = unknown.nearest.as_ref().map(|path| format!("did you mean {path}?"));
        let lines = [Some(format!("{requests} to {path}, the last {last}")), meant];
        say("unknown", PLAIN, lines.into_iter().flatten().collect());
    }
    say("jobs", PLAIN, jobs(screen));
    for restored in &screen.restores {
        let event = restored.event(|at| when(at, screen.now));
        let line = format!("{event}: what came in between is not known");
        say("restored", PLAIN, vec![line]);
    }
    if let Some(serving) = &screen.receiver {
        let (pid, version) = (serving.pid, escape(&serving.version));
        let since = local(serving.started_at);
        say("receiver", PLAIN, vec![format!("pid {pid}, version {version}, since {since}")]);
    }
    if let Some(views) = &screen.runners {
        say("runner", PLAIN, runners(views));
    }
    if !screen.nodes.is_empty() {
        say("node", PLAIN, screen.nodes.iter().map(node).collect());
    }
    if let Some(disk) = &screen.disk {
        let free = disk.free_bytes.map_or("an unknown amount".to_owned(), size);
        let (floor, database) = (size(disk.floor_bytes), size(disk.database_bytes));
        let log = size(disk.log_bytes);
        let lines =
            [format!("{free} free, {floor} needed"), format!("database {database}, log {log}")];
        say("disk", PLAIN, lines.into());
    }
    let mut clock = vec![local(screen.now)];
    if screen.receiver.is_some() {
        let write = screen.last_commit_at.map(|at| when(at, screen.now));
        clock.push(format!("last write {}", write.unwrap_or("none since the start".to_owned())));
    }
    say("clock", PLAIN, clock);
    say("next", PLAIN, vec![screen.next.clone()]);
    facts
}

fn broken(broken: &Broken, now: Timestamp) -> Vec<String> {
    let wait = broken.next_try_at.since(now);
    let next = match wait.is_zero() {
        true => "as soon as it has a job".to_owned(),
        false => format!("in {}", output::span(wait)),
    };
    let tries = match broken.tries {
        1 => "1 try".to_owned(),
        tries => format!("{tries} tries"),
    };
    vec![
        format!("{}: {}", broken.handler, escape(&broken.cause)),
        format!(
            "{tries} since {}, the next {next}; `hooklatch reload` tries at once",
            local(broken.since)
        ),
    ]
}

fn jobs(screen: &Screen) -> Vec<String> {
    let sum = |backlogs: &[Backlog]| thousands(backlogs.iter().map(|one| one.jobs).sum());
    let (mut ready, running) = (sum(&screen.ready), sum(&screen.running));
    if screen.ready.iter().any(|one| one.jobs >= COUNTED_READY.unsigned_abs()) {
        ready.push('+');
    }
    let mut lines =
        vec![format!("{ready} ready, {running} running, {} waiting", sum(&screen.waiting))];
    if let Some(oldest) = &screen.oldest_ready {
        let since = ago(oldest.since, screen.now);
        lines.push(format!("the oldest became ready {since}, for handler {}", oldest.handler));
    }
    if let Some(due) = screen.waiting.iter().map(|backlog| backlog.since).min() {
        lines.push(format!("the next is due {}", local(due)));
    }
    lines
}

/// A source, its last words, and its counts.
pub(super) fn source_lines(line: &SourceLine, screen: &Screen) -> Vec<String> {
    let place = match (&line.path, line.served, &screen.receiver) {
        (None, true, Some(_)) => "served, and not found in the configuration".to_owned(),
        (None, ..) => "not configured any more".to_owned(),
        (Some(path), false, Some(_)) => format!("at {path}, not served"),
        (Some(path), ..) => format!("at {path}"),
    };
    let good = match line.last_good_at {
        Some(at) => format!("last good delivery {}", when(at, screen.now)),
        None => "no good delivery yet".to_owned(),
    };
    let mut lines = vec![format!("{} {place}", line.source), good];
    if let Some(failed) = &line.last_failure {
        lines.push(format!("last refused delivery {}", when(failed.at, screen.now)));
        // A store that could not be used then may be well now.
        lines.push(format!("the reason then: {}", escape(&failed.reason)));
    }
    if line.served {
        let (new, repeated, refused) = (line.accepted, line.duplicates, line.refused);
        let [new, repeated, refused] = [new, repeated, refused].map(thousands);
        let challenges = match line.handshakes {
            0 => String::new(),
            many => format!(", {} answered", count(many, "challenge")),
        };
        lines.push(format!(
            "since the start {new} new, {repeated} duplicate, {refused} refused{challenges}"
        ));
    }
    if line.too_large > 0 {
        let (bodies, source) = (thousands(line.too_large), &line.source);
        lines.push(format!(
            "bodies larger than the source takes: {bodies}; if the provider sent them, raise max_body in \
             [sources.{source}]"
        ));
        lines.extend(too_large(&line.unproven_too_large));
    }
    if line.quarantined > 0 {
        let kept = thousands(line.quarantined);
        lines.push(format!("{kept} in quarantine: see `hooklatch quarantine`"));
    }
    lines
}

/// How many bodies over the limit came in the last hour that had one, and the largest declared size of the day. Empty if
/// none came.
pub(super) fn too_large(rows: &[TooLarge]) -> Vec<String> {
    let Some(at) = rows.first().map(|row| row.at) else { return Vec::new() };
    let last: u64 = rows.iter().filter(|row| row.at == at).map(|row| row.requests).sum();
    let largest = match rows.iter().filter_map(|row| row.declared_bytes).max() {
        Some(bytes) => format!("the largest of the day declared {}", size(bytes)),
        None => "none declared its size".to_owned(),
    };
    vec![format!("unproven: {} in the hour from {}", thousands(last), local(at)), largest]
}

/// A line for each; the default one is named where it is not the only one.
fn runners(views: &[RunnerStatus]) -> Vec<String> {
    match views {
        [] => vec!["not needed: no command is configured".to_owned()],
        [only] if only.name.is_default() => vec![runner(only)],
        all => all.iter().map(|view| format!("{}: {}", view.name, runner(view))).collect(),
    }
}

fn runner(view: &RunnerStatus) -> String {
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

fn node(node: &NodeRow) -> String {
    let running = format!("{} running", node.running);
    let state = match node.condition() {
        "awaited" => "awaited since a failover".to_owned(),
        "connected" => "connected".to_owned(),
        state => format!("{state}, seen {} ago", output::short_span(node.silence())),
    };
    format!("{}: {state}, {running}", node.name)
}

/// A time for people, with how long ago that was.
fn when(at: Timestamp, now: Timestamp) -> String {
    match at > now {
        true => local(at),
        false => format!("{} ({})", local(at), ago(at, now)),
    }
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", output::span(now.since(at)))
}
