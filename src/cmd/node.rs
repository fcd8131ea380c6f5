//! `hooklatch node`: the machines on one PostgreSQL, and the word of a person that one of them is lost.

use std::time::Duration;

use anstyle::AnsiColor;
use rustix::process::geteuid;
use serde_json::json;

use crate::cli::{self, Options};
use crate::clock::Clock;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Failure};
use crate::model::State;
use crate::store::postgres::{Admin, LostNode, NodeNotices, NodeWork, Target};
use crate::store::{Error, NodeRow};

use super::of_unit::of_unit;
use super::output::{self, below, count, short_span, whole, words_of};
use super::runtime::block_on;
use super::{confirm, owner, store};

/// Prints the nodes.
pub(super) fn list(args: &Options) -> Result<Exit, Failure> {
    let config = store::load(args)?;
    let target = target(&config, args)?;
    let admin = Admin::new(target, config.limits(), Clock::system());
    let nodes = block_on(admin.nodes())?.map_err(|error| unread(&error))?;
    output::rows(&args.format, &nodes, node_row, false, "no receiver has registered yet")
}

fn node_row(node: &NodeRow) -> Vec<output::Cell> {
    let state = match node.condition() {
        "lost" => "lost".into(),
        state @ "connected" => output::painted(state, AnsiColor::Green),
        state => output::painted(state, AnsiColor::Red),
    };
    let version = match node.outdated {
        true => output::painted(format!("{}, to be upgraded", node.version), AnsiColor::Yellow),
        false => node.version.as_str().into(),
    };
    vec![
        whole("NODE", &node.name),
        whole("STATE", state),
        whole("RUNNING", node.running),
        whole("SEEN", format!("{} ago", span(node.silent_millis))),
        words_of("VERSION", version),
        below("MACHINE", format!("machine {}", node.machine)),
    ]
}

fn span(millis: i64) -> String {
    short_span(Duration::from_millis(millis.try_into().unwrap_or(0)))
}

/// Lists what runs on a node, asks, and declares it lost.
pub(super) fn lost(args: &cli::NodeLost) -> Result<Exit, Failure> {
    let (options, name) = (&args.options, args.name.as_str());
    if !args.yes {
        confirm::need_terminal()
            .map_err(|failure| failure.help("--yes does it without a question"))?;
    }
    let config = store::load(options)?;
    let target = target(&config, options)?;
    let admin = Admin::new(target, config.limits(), Clock::system())
        .by(geteuid().as_raw(), store::by(&args.note));
    let looked = block_on(async {
        let all = admin.nodes().await.map_err(|error| unread(&error))?;
        let is_active = |node: &NodeRow| node.state == "active";
        let named = all.into_iter().filter(|node| node.name == name);
        let meant: Vec<_> = named.filter(|node| is_active(node) || node.awaited).collect();
        let has_active = meant.iter().any(is_active);
        // First one that a roll call awaits and that has lost its name since.
        let meant = meant.into_iter().min_by_key(is_active);
        let node = meant.ok_or_else(|| not_active(name, options))?;
        let work = admin.node_work(node.id).await.map_err(|error| unread(&error))?;
        Ok::<_, Failure>((node, work, has_active))
    })?;
    let (node, work, has_active) = looked?;
    warn(&node, &work);
    if node.connections > 0 && !args.connected {
        return Err(connected(&node));
    }
    if !args.yes {
        if !options.json() {
            output::listing(work.iter().map(work_row).collect(), false, "nothing runs there")?;
        }
        let question = format!("declare node '{name}' lost, because nothing of it runs any more");
        if !confirm::confirmed(&question)? {
            return Ok(confirm::declined());
        }
    }
    let notices = NodeNotices::default();
    notices.set(config.interest());
    let lost = block_on(admin.declare_lost(node.id, notices))?.map_err(|error| unread(&error))?;
    let lost = lost.ok_or_else(|| not_active(name, options))?;
    if node.state != "active" && has_active {
        output::note(format!(
            "another node '{name}' is active: the same command once more declares that one lost"
        ));
    }
    report(&node, &lost, options)
}

/// Something of the node runs. The server notices within half a minute that a machine is gone.
fn connected(node: &NodeRow) -> Failure {
    let (name, connections) = (&node.name, count(node.connections, "connection"));
    Exit::No
        .failure(format!("node '{name}' is alive: it has {connections} to the database"))
        .help("stop its receiver and its runners; if its machine has just died, wait for half a minute; --connected declares it lost all the same")
}

/// Says what makes the declaration wrong.
fn warn(node: &NodeRow, work: &[NodeWork]) {
    let name = &node.name;
    let reruns = work.iter().filter(|work| work.on_unknown == "rerun").count() as u64;
    if reruns > 0 {
        let jobs = count(reruns, "job");
        output::note(format!(
            "{jobs} with on_unknown = \"rerun\" may run on another node: what still runs on '{name}' then runs twice at once"
        ));
    }
}

fn work_row(work: &NodeWork) -> Vec<output::Cell> {
    let then = if work.on_unknown == "rerun" { "may run again" } else { "is held" };
    vec![
        whole("HANDLER", &work.handler),
        whole("#", work.attempt),
        whole("RUNS FOR", span(work.running_millis)),
        words_of("IF LOST", then),
        below("JOB", format!("job {} of {} {}", work.job, work.source, work.event)),
    ]
}

fn report(node: &NodeRow, lost: &LostNode, options: &Options) -> Result<Exit, Failure> {
    let all: Vec<_> = lost
        .unknown
        .iter()
        .map(|(job, attempt, state)| json!({ "job": job, "attempt": attempt, "state": state }))
        .collect();
    let held = lost.unknown.iter().filter(|(.., state)| *state == State::Held).count() as u64;
    let unknown = count(lost.unknown.len() as u64, "attempt");
    let name = &node.name;
    let mut text = format!("node {name} is lost; {unknown} of it ended as unknown");
    if held > 0 {
        let suffix = options.suffix();
        text += &format!("\n{} held: hooklatch held{suffix}", count(held, "job"));
    }
    let json = json!({ "node": name, "id": node.id.to_string(), "unknown": all });
    output::answer(&options.format, json, text)
}

/// How to reach the configured database.
fn target(config: &Config, options: &Options) -> Result<Target, Failure> {
    let environment = of_unit(&Environment::capture(), options.config(), "secrets");
    let Some(target) = config.database(&environment)? else {
        // A mistake may hide it.
        store::need_whole(config)?;
        return Err(Exit::Config
            .failure("the store is a file of this machine, which has no nodes")
            .help("several machines need a database: storage.url"));
    };
    // A server on this machine may ask the kernel who connects.
    owner::assume(&config.store().path)?;
    Ok(target)
}

fn unread(error: &Error) -> Failure {
    let why = error.to_string();
    let has_no_tables = why.contains("(42P01)");
    let failure = Exit::Unavailable.failure(why);
    match has_no_tables {
        true => failure.help("no receiver has made its tables there yet: is storage.url right?"),
        false => failure,
    }
}

fn not_active(name: &str, options: &Options) -> Failure {
    let help = format!("see hooklatch node list{}", options.suffix());
    Exit::NotFound.failure(format!("no active node has the name '{name}'")).help(help)
}
