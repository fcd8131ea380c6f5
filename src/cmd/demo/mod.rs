//! `hooklatch demo`: the whole product at work, on this machine, in a few seconds.
//!
//! The server, the store, the handlers and the wire are the real ones; only the provider is played.

mod deliveries;
mod ledger;
mod site;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use tokio::sync::watch;

use crate::cli;
use crate::clock::Clock;
use crate::config::{self, Environment};
use crate::exit::{Exit, Failure};
use crate::model::State;
use crate::serve::{self, Runners, Service, Serving};
use crate::store::{EventFilter, JobFilter, JobRow};

use super::serve::{Signals, launch};
use super::{block_on, output, played, store};

use deliveries::{Delivery, Providers, Repeat};
use ledger::{Counts, Entry};
use site::Site;

/// How long the demo's handlers may take: they need about two seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the demo looks whether every job has settled.
const GLANCE: Duration = Duration::from_millis(50);

const HEADING: Style = Style::new().bold();
const COMMAND: Style = AnsiColor::Cyan.on_default();

/// Runs the demonstration; without `--once` it then serves until a signal.
pub(super) fn run(args: &cli::Demo) -> Result<Exit, Failure> {
    let site = Site::new()?;
    block_on(demonstrate(args, &site))?
}

async fn demonstrate(args: &cli::Demo, site: &Site) -> Result<Exit, Failure> {
    let mut signals = Signals::register()?;
    let clock = Clock::system();
    let environment = Environment::capture();
    let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (path, database) = (site.path("hooklatch.toml"), site.path("hooklatch.db"));
    let config = config::load(&path)
        .map_err(|problems| store::config_failure(&problems))?
        .moved_to(free_port, database.clone());
    // Its runner may end with whatever unit this is in: nothing of the demo is worth more.
    let launch = launch(&path, &database, false)?;
    let serving = serve::start(
        config,
        &environment,
        clock.clone(),
        Runners::BesideStore(Some(launch)),
        Service::default(),
    )
    .await
    .map_err(store::serve_failure)?;
    let address = serving
        .addresses()
        .first()
        .copied()
        .ok_or_else(|| Failure::new(Exit::Unavailable, "the demo has no port"))?;
    if !args.format.json {
        output::line(format_args!(
            "{HEADING}Hooklatch serves on http://{address}{HEADING:#}, with a fresh store in {}\n",
            site.path("").display()
        ))?;
    }
    let entries = deliver_all(&serving, address, site, &clock).await?;
    let kept = entries.iter().all(Entry::kept);
    if args.format.json {
        output::json(&serde_json::json!({ "as_promised": kept, "ledger": entries }))?;
    } else {
        ledger::print(&entries)?;
    }
    if !args.once {
        invite(&site.path("hooklatch.toml"), address)?;
        signals.next().await;
    }
    let (_hurry, hurried) = watch::channel(false);
    serving.stop(hurried).await;
    Ok(if kept { Exit::Ok } else { Exit::No })
}

/// Plays the providers, waits until every job has settled, and counts.
async fn deliver_all(
    serving: &Serving,
    address: SocketAddr,
    site: &Site,
    clock: &Clock,
) -> Result<Vec<Entry>, Failure> {
    let providers = Providers::new(site::STRIPE_SECRET, site::GITHUB_SECRET)?;
    let deliveries = providers.deliveries(clock.now())?;
    let mut answers = Vec::new();
    for delivery in &deliveries {
        answers.push(deliver(address, delivery).await?);
    }
    let jobs = settled(serving, clock).await?;
    let filter = EventFilter { limit: Some(1000), ..EventFilter::default() };
    let events = serving.store().events(filter).await.map_err(store_failure)?;
    let entry = |(delivery, seen): (Delivery, Counts)| {
        let id = delivery.event_id;
        let succeeded =
            |job: &&JobRow| job.event_id.as_str() == id && job.state == State::Succeeded;
        Entry {
            what: delivery.what,
            source: delivery.source,
            sent: match delivery.repeat {
                Repeat::InTurn(n) | Repeat::AtOnce(n) => n,
            },
            promised: delivery.promised,
            seen: Counts {
                stored: events.iter().filter(|event| event.event_id.as_str() == id).count(),
                started: site.starts_of(id),
                succeeded: jobs.iter().filter(succeeded).count(),
                ..seen
            },
        }
    };
    Ok(deliveries.into_iter().zip(answers).map(entry).collect())
}

async fn deliver(address: SocketAddr, delivery: &Delivery) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    let one = || played::post(address, delivery.path, &delivery.headers, delivery.body.clone());
    let failed =
        |error| Failure::new(Exit::Unavailable, format!("a delivery had no answer: {error}"));
    let answers = match delivery.repeat {
        Repeat::InTurn(times) => {
            let mut answers = Vec::new();
            for _ in 0..times {
                answers.push(one().await.map_err(failed)?);
            }
            answers
        }
        Repeat::AtOnce(times) => {
            futures_util::future::try_join_all((0..times).map(|_| one())).await.map_err(failed)?
        }
    };
    for answer in answers {
        match (answer.status, answer.body["status"].as_str()) {
            (200, Some("accepted")) => counts.accepted += 1,
            (200, Some("duplicate")) => counts.duplicate += 1,
            (401, _) => counts.refused += 1,
            _ => {}
        }
    }
    Ok(counts)
}

/// The jobs, when none of them is to run any more or the patience is at its end.
async fn settled(serving: &Serving, clock: &Clock) -> Result<Vec<JobRow>, Failure> {
    let end = clock.monotonic() + PATIENCE;
    loop {
        let filter = JobFilter { limit: Some(1000), ..JobFilter::default() };
        let jobs = serving.store().jobs(filter).await.map_err(store_failure)?;
        let open =
            |job: &JobRow| matches!(job.state, State::Ready | State::Running | State::Waiting);
        if !jobs.iter().any(open) || clock.monotonic() > end {
            return Ok(jobs);
        }
        tokio::time::sleep(GLANCE).await;
    }
}

fn store_failure(error: crate::store::Error) -> Failure {
    Failure::new(Exit::Unavailable, error.to_string())
}

/// What to try next, as lines that can be pasted.
fn invite(config: &Path, address: SocketAddr) -> Result<(), Failure> {
    let program =
        std::env::current_exe().map_or("hooklatch".into(), |path| path.display().to_string());
    let config = config.display();
    output::line(format_args!("\n{HEADING}It keeps serving. In another terminal:{HEADING:#}\n"))?;
    output::line(format_args!("  {COMMAND}export HOOKLATCH_CONFIG={config}{COMMAND:#}"))?;
    for line in [
        "events",
        "jobs",
        "show evt_1DemoInvoice",
        "events --rejected",
        "replay evt_1DemoInvoice --handler fulfil",
    ] {
        output::line(format_args!("  {COMMAND}{program} {line}{COMMAND:#}"))?;
    }
    output::line(format_args!(
        "  {COMMAND}curl -i http://{address}/stripe -d '{{}}'{COMMAND:#}   refused: not signed"
    ))?;
    output::line(
        "\nCtrl-C ends it and deletes its store. Your own configuration: README.md, \"First webhook\".",
    )
}
