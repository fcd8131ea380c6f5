//! `hooklatch drill`: kills the receiver many times under load, and then checks the promises for every
//! event.
//!
//! Receiver, runner, store, handlers and protocols are the real ones, in a separate folder; only the
//! provider is fake. Must stay true: the drill does not touch anything outside that folder and the database of
//! `--url`, and no process that it started outlives it.

use std::path::Path;

use data_encoding::HEXLOWER;
use indicatif::ProgressBar;
use serde::Serialize;

use super::kit::account::{Account, Broken, Evidence};
use super::kit::load::{Load, Tally};
use super::kit::provider::Provider;
use super::kit::receiver::Receiver;
use super::kit::site::Site;
use super::output::{self, Field, ignore_left_reader, words_of};
use super::random::bytes;
use super::runtime::block_on;
use super::signals::Signals;
use super::{owner, progress};
use crate::cli;
use crate::config::{Environment, Reference};
use crate::document::Fault;
use crate::exit::{Exit, Failure};

/// Fewer events than this are acknowledged between two kills. The number is random and may be 0, so that
/// some kills hit a receiver that still recovers.
const MOST_BETWEEN_KILLS: u64 = 50;

/// The number of broken promises in the table; `--json` has all of them.
const LISTED: usize = 10;

/// Runs the drill and prints its report. The exit code says whether every promise held.
pub(super) fn run(args: &cli::Drill) -> Result<Exit, Failure> {
    let seed = match args.seed {
        Some(seed) => seed,
        // 32 bits, so that the seed is short enough to type.
        None => u64::from(u32::from_ne_bytes(bytes()?)),
    };
    if let Some(folder) = &args.folder {
        owner::assume(&folder.join("hooklatch.db"))?;
    }
    let secret = format!("whsec_{}", HEXLOWER.encode(&bytes::<32>()?));
    let mut site = lay_out(args, &secret)?;
    let provider = Provider::new("stripe", &secret)?;
    let result = block_on(drill(args, &site, provider, seed))?;
    let result = result.map_err(|failure| site.keep_for(failure));
    let report = result?.map_err(|signal| {
        let message = format!("ended by {signal} before there was anything to account for");
        Exit::Unavailable.failure(message)
    })?;
    if !report.as_promised {
        site.keep();
    }
    ignore_left_reader(output::either(&args.format, &report, || report.print(&site)))?;
    Ok(Exit::answer(report.as_promised))
}

/// Makes the site: of one receiver, or of several nodes.
fn lay_out(args: &cli::Drill, secret: &str) -> Result<Site, Failure> {
    let (config, folder) = (include_str!("drill/hooklatch.toml"), args.folder.as_deref());
    let mut files = vec![("handler", include_str!("drill/handler")), ("secret", secret)];
    let Some(url) = &args.url else {
        files.push(("hooklatch.toml", config));
        return Site::new(folder, &files);
    };
    let wrong = |fault: Fault| Exit::Usage.failure(fault.to_string());
    let require = args.require_synchronous_standby;
    let mut storage = format!("url = {url:?}\nrequire_synchronous_standby = {require}\n");
    let mut password = None;
    if let Some(text) = &args.password_from {
        let reference = Reference::parse(text, Path::new("")).map_err(wrong)?;
        password =
            Some(reference.read(&Environment::capture()).map_err(|error| wrong(error.into()))?);
        storage += "password = \"file:password\"\n";
    }
    if let Some(password) = &password {
        files.push(("password", password.as_str()));
    }
    let names: Vec<String> =
        (1..=args.nodes.unwrap_or(1)).map(|number| format!("n{number}")).collect();
    let of_node = |name: &String| {
        let place = format!(
            "path = \"{name}.db\"\n{storage}\n[node]\nname = \"{name}\"\nmachine = \"drill\"\n"
        );
        (format!("{name}.toml"), config.replace("path = \"hooklatch.db\"\n", &place))
    };
    let configs: Vec<_> = names.iter().map(of_node).collect();
    files.extend(configs.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    Ok(Site::new(folder, &files)?.of_nodes(names))
}

/// The report, or the signal that ended the drill early.
async fn drill(
    args: &cli::Drill,
    site: &Site,
    provider: Provider,
    seed: u64,
) -> Result<Result<Report, &'static str>, Failure> {
    let mut signals = Signals::register()?;
    if !args.format.json {
        let kills = output::count(u64::from(args.kills), "kill");
        let place = site.root().display();
        let what = match args.nodes {
            Some(nodes) => format!("one of {nodes} nodes with their folders"),
            None => "a receiver with its store".to_owned(),
        };
        let line = format!("{kills} of {what} in {place}, seed {seed}\n");
        ignore_left_reader(output::line(line))?;
    }
    let bar = progress::bar(u64::from(args.kills), "{pos}/{len} kills  {msg}");
    let receivers = (0..site.size()).map(|_| None).collect();
    let mut storm = Storm { site, receivers, runner_kills: 0, bar };
    let result = tokio::select! {
        result = storm.run(args, provider, Random(seed)) => result.map(Ok),
        signal = signals.next() => Ok(Err(signal)),
    };
    storm.bar.finish_and_clear();
    // A receiver completes the attempts of its killed predecessor, so one must run before the stop.
    for (node, receiver) in storm.receivers.iter_mut().enumerate() {
        if matches!(result, Ok(Err(_))) && receiver.is_none() {
            *receiver = Some(site.start(node).await?);
        }
    }
    let stopped = site.stop(storm.receivers.into_iter().flatten().collect()).await;
    let tally = match result? {
        Ok(tally) => tally,
        Err(signal) => return stopped.map(|()| Err(signal)),
    };
    stopped?;
    let runner_kills = storm.runner_kills;
    let (sent, stored, ledger) = (tally.sent(), site.stored().await?, site.ledger()?);
    let ledger = Account::of(&Evidence { sent, stored, ledger, runner_kills });
    Ok(Ok(Report {
        as_promised: ledger.broken.is_empty(),
        seed,
        kills: args.kills,
        runner_kills,
        unanswered: tally.unanswered,
        refused: tally.refused,
        ledger,
    }))
}

/// The processes that the drill kills at random moments.
struct Storm<'a> {
    site: &'a Site,
    /// One for each node.
    receivers: Vec<Option<Receiver>>,
    runner_kills: usize,
    bar: ProgressBar,
}

impl Storm<'_> {
    /// Makes all kills, and then waits until every event is acknowledged and every job has reached a final
    /// state.
    async fn run(
        &mut self,
        args: &cli::Drill,
        provider: Provider,
        mut random: Random,
    ) -> Result<Tally, Failure> {
        let mut addresses = Vec::new();
        for (node, place) in self.receivers.iter_mut().enumerate() {
            let receiver = place.insert(self.site.start(node).await?);
            addresses.push(receiver.address);
        }
        let load = Load::start(provider, addresses, self.bar.clone());
        for _ in 0..args.kills {
            let node = random.one_of(self.receivers.len());
            load.more(random.below(MOST_BETWEEN_KILLS)).await?;
            // Draws all numbers whether they are used or not, so that a seed always gives the same kills.
            let (order, between) = (random.below(3), random.below(10));
            if args.runner_kills && order == 1 && self.kill_runner(node).await? {
                load.more(between).await?;
            }
            // Dropping the receiver kills it.
            self.receivers[node] = None;
            if args.runner_kills && order == 2 {
                self.kill_runner(node).await?;
            }
            self.bar.inc(1);
            let receiver = self.site.start(node).await?;
            load.redirect(node, receiver.address);
            self.receivers[node] = Some(receiver);
        }
        let tally = load.finish().await?;
        let acknowledged = tally.acknowledged;
        self.bar.set_message(format!("acknowledged {acknowledged}, waiting for the handlers"));
        self.site.settle().await?;
        Ok(tally)
    }

    /// Kills the runner. False if there is no runner, as before the first command.
    async fn kill_runner(&mut self, node: usize) -> Result<bool, Failure> {
        let Some(runner) = self.site.runner(node) else { return Ok(false) };
        runner.kill().await?;
        self.runner_kills += 1;
        Ok(true)
    }
}

/// A generator of random numbers (SplitMix64, by Vigna): a seed always gives the same numbers.
struct Random(u64);

impl Random {
    /// A number less than `count`; of one there is no choice, and none is drawn.
    fn one_of(&mut self, count: usize) -> usize {
        if count > 1 { self.below(count as u64) } else { 0 }
    }

    /// A number less than `bound`, which must not be 0.
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound) as usize
    }
}

/// The result of a whole drill.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether every promise held.
    as_promised: bool,
    /// The seed that repeats the drill's random choices.
    seed: u64,
    /// The number of killed receivers.
    kills: u16,
    runner_kills: usize,
    /// Deliveries without an answer: a kill cut them off, or the next receiver did not listen yet.
    unanswered: usize,
    /// Deliveries answered 503.
    refused: usize,
    ledger: Account,
}

impl Report {
    /// Prints the account as a table with the meaning of each number, followed by the broken promises.
    fn print(&self, site: &Site) -> Result<(), Failure> {
        let ledger = &self.ledger;
        let busy = match self.refused {
            0 => String::new(),
            busy => format!(" and {busy} a 503,"),
        };
        let cut = self.unanswered;
        let deliveries = format!("events; {cut} deliveries had no answer{busy} and were repeated");
        let coloured = |good, count: usize| output::painted(count, output::good_or_bad(good));
        let safe = |count| coloured(count == 0, count);
        let unknown = coloured(ledger.unknown == 0 || self.runner_kills > 0, ledger.unknown);
        let count = Field::from;
        let rows = [
            ("sent", count(ledger.sent), deliveries.as_str()),
            ("acknowledged", count(ledger.acknowledged), "events answered 2xx"),
            ("stored", count(ledger.stored), "events in the store"),
            ("started", count(ledger.started), "attempts begun, by the handlers' own ledger"),
            ("finished", count(ledger.finished), "attempts that came to their end"),
            ("lost", safe(ledger.lost), "events acknowledged and not there with all their jobs"),
            ("doubled", safe(ledger.doubled), "events stored or run again without a right to it"),
            ("unknown", unknown, "jobs whose outcome nobody knows, held for a person"),
        ];
        let row = |(what, count, meaning)| {
            vec![words_of("LEDGER", what), words_of("COUNT", count), words_of("", meaning)]
        };
        output::listing(rows.map(row).into(), false, "nothing was sent")?;
        output::line("")?;
        self.print_verdict()?;
        if site.is_kept() {
            output::line("\nThe store is kept. To look at it:\n")?;
            let config = site.config();
            output::line(format_args!("  hooklatch jobs --config {}", config.display()))?;
        }
        Ok(())
    }

    fn print_verdict(&self) -> Result<(), Failure> {
        let broken = &self.ledger.broken;
        if broken.is_empty() {
            let good = output::good_or_bad(true).on_default();
            let kills = output::count(u64::from(self.kills), "kill");
            let runners = match self.runner_kills {
                0 => String::new(),
                kills => format!(" and {kills} of its runner"),
            };
            return output::line(format_args!(
                "{good}every promise held{good:#} through {kills}{runners}"
            ));
        }
        let bad = output::good_or_bad(false).on_default();
        let count = output::count(broken.len() as u64, "broken promise");
        output::line(format_args!("{bad}{count}{bad:#}\n"))?;
        let row = |one: &Broken| vec![words_of("EVENT", &one.event), words_of("SEEN", &one.what)];
        output::listing(broken.iter().take(LISTED).map(row).collect(), false, "")?;
        match broken.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => output::line(format_args!(" and {more} more; --json lists all")),
        }
    }
}
