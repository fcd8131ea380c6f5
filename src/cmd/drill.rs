//! `hooklatch drill`: the receiver is killed many times under load, and every event accounted for.
//!
//! Receiver, runner, store, handlers and wire are the real ones, in the drill's own folder; only the
//! provider is fake. What must stay true: nothing outside of that folder is touched, and no process
//! that the drill has started outlives it.

use data_encoding::HEXLOWER;
use indicatif::ProgressBar;
use serde::Serialize;

use super::kit::account::{Account, Broken, Evidence};
use super::kit::load::{Load, Tally};
use super::kit::provider::Provider;
use super::kit::receiver::Receiver;
use super::kit::site::Site;
use super::output::{self, Field};
use super::random::bytes;
use super::serve::Signals;
use super::{block_on, owner, progress};
use crate::cli;
use crate::exit::{Exit, Failure};

/// Events that are acknowledged between two kills are fewer than this; by chance none at all, so that
/// a receiver is killed while it still recovers.
const MOST_BETWEEN_KILLS: u64 = 50;

/// Broken promises that the table lists; `--json` has all.
const LISTED: usize = 10;

/// Runs the drill.
pub(super) fn run(args: &cli::Drill) -> Result<Exit, Failure> {
    let seed = match args.seed {
        Some(seed) => seed,
        // Short enough to be typed.
        None => u64::from(u32::from_ne_bytes(bytes()?)),
    };
    if let Some(folder) = &args.folder {
        owner::assume(&folder.join("hooklatch.db"))?;
    }
    let secret = format!("whsec_{}", HEXLOWER.encode(&bytes::<32>()?));
    let files = [
        ("hooklatch.toml", include_str!("drill/hooklatch.toml")),
        ("handler", include_str!("drill/handler")),
        ("secret", &secret),
    ];
    let mut site = Site::new(args.folder.as_deref(), &files)?;
    let provider = Provider::new("stripe", &secret)?;
    let result = block_on(drill(args, &site, provider, seed))?.map_err(|failure| {
        site.keep();
        let kept = format!("the folder is kept: {}", site.root().display());
        let help = failure.help.as_ref().map_or(kept.clone(), |help| format!("{help}; {kept}"));
        failure.help(help)
    });
    let report = result?.map_err(|signal| {
        let message = format!("ended by {signal} before there was anything to account for");
        Failure::new(Exit::Unavailable, message)
    })?;
    if !report.as_promised {
        site.keep();
    }
    ignore_left_reader(if args.format.json { output::json(&report) } else { report.print(&site) })?;
    Ok(if report.as_promised { Exit::Ok } else { Exit::No })
}

/// The drill continues and its verdict stands where the reader has left: `hooklatch drill | head -1`.
fn ignore_left_reader(printed: Result<(), Failure>) -> Result<(), Failure> {
    printed.or_else(|failure| if failure.reader_left { Ok(()) } else { Err(failure) })
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
        let line = format!("{kills} of a receiver with its store in {place}, seed {seed}\n");
        ignore_left_reader(output::line(line))?;
    }
    let bar = progress::bar(u64::from(args.kills), "{pos}/{len} kills  {msg}");
    let mut storm = Storm { site, receiver: None, runner_kills: 0, bar };
    let result = tokio::select! {
        result = storm.run(args, provider, Random(seed)) => result.map(Ok),
        signal = signals.next() => Ok(Err(signal)),
    };
    storm.bar.finish_and_clear();
    // A receiver ends what its killed predecessor has left, so one must run before the stop.
    if matches!(result, Ok(Err(_))) && storm.receiver.is_none() {
        storm.receiver = Some(Receiver::start(site).await?);
    }
    let stopped = site.stop(storm.receiver.take()).await;
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

/// What runs, and is killed at random moments.
struct Storm<'a> {
    site: &'a Site,
    receiver: Option<Receiver>,
    runner_kills: usize,
    bar: ProgressBar,
}

impl Storm<'_> {
    /// Kills, and then waits until every event is acknowledged and every job is settled.
    async fn run(
        &mut self,
        args: &cli::Drill,
        provider: Provider,
        mut random: Random,
    ) -> Result<Tally, Failure> {
        let receiver = Receiver::start(self.site).await?;
        let load = Load::start(provider, receiver.address, self.bar.clone());
        self.receiver = Some(receiver);
        for _ in 0..args.kills {
            load.more(random.below(MOST_BETWEEN_KILLS)).await?;
            // Every choice is made in every run, so that one seed means the same kills.
            let (order, between) = (random.below(3), random.below(10));
            if args.runner_kills && order == 1 && self.kill_runner().await? {
                load.more(between).await?;
            }
            // Dropped, it is killed.
            self.receiver = None;
            if args.runner_kills && order == 2 {
                self.kill_runner().await?;
            }
            self.bar.inc(1);
            let receiver = Receiver::start(self.site).await?;
            load.redirect(receiver.address);
            self.receiver = Some(receiver);
        }
        let tally = load.finish().await?;
        let acknowledged = tally.acknowledged;
        self.bar.set_message(format!("acknowledged {acknowledged}, waiting for the handlers"));
        self.site.settle().await?;
        Ok(tally)
    }

    /// False where there is no runner, as before the first command.
    async fn kill_runner(&mut self) -> Result<bool, Failure> {
        let Some(runner) = self.site.runner() else { return Ok(false) };
        runner.kill().await?;
        self.runner_kills += 1;
        Ok(true)
    }
}

/// Random numbers of one seed (SplitMix64, by Vigna): the same seed, the same numbers.
struct Random(u64);

impl Random {
    /// A number under `bound`, which is over 0.
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound) as usize
    }
}

/// A whole drill.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether every promise held.
    as_promised: bool,
    /// Repeats its choices.
    seed: u64,
    /// Receivers killed.
    kills: u16,
    runner_kills: usize,
    /// Deliveries without an answer: a kill cut them off, or the next receiver was not there yet.
    unanswered: usize,
    /// Deliveries answered 503.
    refused: usize,
    ledger: Account,
}

impl Report {
    /// Prints the account as a table with what is promised of each line, and what broke by event.
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
        let rows = rows.map(|(what, count, meaning)| vec![what.into(), count, meaning.into()]);
        output::table(&["LEDGER", "COUNT", ""], rows.into(), "nothing was sent")?;
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
        let row = |one: &Broken| vec![(&one.event).into(), (&one.what).into()];
        output::table(&["EVENT", "SEEN"], broken.iter().take(LISTED).map(row).collect(), "")?;
        match broken.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => output::line(format_args!(" and {more} more; --json lists all")),
        }
    }
}
