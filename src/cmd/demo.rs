//! `hooklatch demo`: shows the whole product on this machine in a few seconds.
//!
//! Receiver, runner, store, handlers and protocols are the real ones, on a scratch site; only the
//! provider is fake. It compares what it sees with what is promised for each delivery.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use serde::Serialize;

use super::kit::provider::{Answer, Provider, post};
use super::kit::receiver::Receiver;
use super::kit::site::Site;
use super::output::{self, ignore_left_reader, words_of};
use super::progress;
use super::runtime::block_on;
use super::signals::Signals;
use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::{Headers, State, shell_word};

const HEADING: Style = Style::new().bold();
const COMMAND: Style = AnsiColor::Cyan.on_default();

macro_rules! quickstart {
    ($path:literal) => {
        include_str!(concat!("../../examples/quickstart/", $path))
    };
    ($($path:literal),+) => {
        [$(($path, quickstart!($path))),+]
    };
}

/// Runs the demonstration; with `--stay` it then serves until a signal. The exit code says whether the ledger is as
/// promised.
pub(super) fn run(args: &cli::Demo) -> Result<Exit, Failure> {
    // Uses a free port, and makes the handlers write a ledger.
    let config = quickstart!("hooklatch.toml").replace("127.0.0.1:8080", "127.0.0.1:0").replace(
        r#"pass_env = ["HOOKLATCH_DEMO_LEDGER"]"#,
        "env = { HOOKLATCH_DEMO_LEDGER = \"ledger.txt\" }\ncwd = \".\"",
    );
    let mut files = vec![("hooklatch.toml", config.as_str())];
    files.extend(quickstart![
        "handlers/audit",
        "handlers/deploy",
        "handlers/flaky",
        "handlers/fulfil",
        "handlers/ledger",
        "secrets/github.demo",
        "secrets/stripe.demo"
    ]);
    block_on(async {
        let mut signals = Signals::register()?;
        let mut site = Site::new(None, &files)?;
        let result = serve_and_show(args, &site, &mut signals).await;
        match result.map_err(|failure| site.keep_for(failure))? {
            Ok(true) => {
                if !args.format.json && !args.stay {
                    let program = program();
                    ignore_left_reader(output::verbatim(format_args!(
                        "\nTo look around in one that keeps serving:\n\n  \
                         {COMMAND}{program} demo --stay{COMMAND:#}"
                    )))?;
                }
                Ok(Exit::Ok)
            }
            Ok(false) => {
                site.keep();
                output::note(format_args!("the folder is kept: {}", site.root().display()));
                Ok(Exit::No)
            }
            Err(signal) => Err(Exit::Unavailable
                .failure(format!("ended by {signal} before the ledger was complete"))),
        }
    })?
}

/// Whether every line of the ledger is as promised, or the signal that ended the demonstration early.
async fn serve_and_show(
    args: &cli::Demo,
    site: &Site,
    signals: &mut Signals,
) -> Result<Result<bool, &'static str>, Failure> {
    let receiver = site.start(0).await?;
    let shown = tokio::select! {
        shown = show(args, site, &receiver) => shown.map(Ok),
        signal = signals.next() => Ok(Err(signal)),
    };
    if args.stay && matches!(shown, Ok(Ok(_))) {
        signals.next().await;
    }
    let stopped = site.stop(vec![receiver]).await;
    let shown = shown?;
    stopped.map(|()| shown)
}

/// Runs the demonstration and prints it. Returns whether every line is as promised. A reader of standard output that
/// leaves does not end it: the exit code is the verdict.
async fn show(args: &cli::Demo, site: &Site, receiver: &Receiver) -> Result<bool, Failure> {
    let address = receiver.address;
    let mut ledger = deliveries()?;
    let bar = match args.format.json {
        true => ProgressBar::hidden(),
        false => {
            ignore_left_reader(output::line(format_args!(
                "{HEADING}Hooklatch serves on http://{address}{HEADING:#}, with a fresh store in {}\n",
                site.path("").display()
            )))?;
            progress::bar(ledger.len() as u64, "{pos}/{len} sent  {msg}")
        }
    };
    for delivery in &mut ledger {
        bar.set_message(delivery.what);
        delivery.send(receiver).await?;
        bar.inc(1);
    }
    bar.set_message("waiting for the handlers");
    site.settle().await?;
    bar.finish_and_clear();
    let (stored, lines) = (site.stored().await?, site.ledger()?);
    for Delivery { event, seen, .. } in &mut ledger {
        let of_event = || stored.iter().filter(|one| one.event == *event);
        let jobs = of_event().flat_map(|one| &one.jobs);
        seen.stored = of_event().count();
        seen.started = lines.starts(event);
        seen.succeeded = jobs.filter(|job| job.state == State::Succeeded).count();
    }
    let as_promised = ledger.iter().all(Delivery::is_as_promised);
    let json = serde_json::json!({ "as_promised": as_promised, "ledger": ledger });
    ignore_left_reader(output::either(&args.format, &json, || print(&ledger)))?;
    if args.stay {
        invite(site, receiver)?;
    }
    Ok(as_promised)
}

/// One kind of delivery, with the promised and the observed counts.
#[derive(Serialize)]
struct Delivery {
    /// A description for people.
    what: &'static str,
    source: &'static str,
    sent: usize,
    promised: Counts,
    seen: Counts,
    #[serde(skip)]
    event: &'static str,
    #[serde(skip)]
    headers: Headers,
    #[serde(skip)]
    body: Bytes,
}

/// The number of answers, events and handler runs of a delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counts {
    /// Answered `accepted`.
    accepted: usize,
    /// Answered `duplicate`.
    duplicate: usize,
    /// Answered 401.
    refused: usize,
    /// Events in the store with the delivery's id.
    stored: usize,
    /// How often handlers started, according to their ledger.
    started: usize,
    /// Jobs in state `succeeded`.
    succeeded: usize,
}

/// Every delivery, in the order of sending.
fn deliveries() -> Result<Vec<Delivery>, Failure> {
    let stripe = Provider::new("stripe", quickstart!("secrets/stripe.demo"))?;
    let github = Provider::new("github", quickstart!("secrets/github.demo"))?;
    let forger = Provider::new("stripe", "whsec_demonstration_of_a_wrong_secret")?;
    let now = Clock::system().now();
    let hour_ago = now.before(Duration::from_secs(3600));
    let accepted = Counts { accepted: 1, stored: 1, ..Counts::default() };
    let once = |duplicate, started, succeeded| Counts { duplicate, started, succeeded, ..accepted };
    let refused = Counts { refused: 1, ..Counts::default() };
    let checkout = ("evt_1DemoCheckout", "checkout.session.completed");
    let invoice = ("evt_1DemoInvoice", "invoice.paid");
    let forged = ("evt_1DemoForged", "invoice.paid");
    let stale = ("evt_1DemoStale", "invoice.paid");
    let push = ("a4f0c1de-0000-4000-8000-000000000001", "push");
    let release = ("a4f0c1de-0000-4000-8000-000000000002", "release");
    let (twice, copies) = ("a signed event, and a duplicate", "twenty copies at once");
    let (wrong, old) = ("forged: signed with another secret", "stale: signed an hour ago");
    let flaky = "its handler fails once, then succeeds";
    let table = [
        (twice, &stripe, checkout, now, once(1, 2, 2)),
        (twice, &github, push, now, once(1, 1, 1)),
        (copies, &stripe, invoice, now, once(19, 2, 2)),
        (wrong, &forger, forged, now, refused),
        (old, &stripe, stale, hour_ago, refused),
        (flaky, &github, release, now, once(0, 2, 1)),
    ];
    let mut deliveries = Vec::new();
    for (what, provider, (event, kind), at, promised) in table {
        let body = match kind {
            "push" => r#"{"ref":"refs/heads/main"}"#.to_owned(),
            "release" => r#"{"action":"published"}"#.to_owned(),
            _ => format!(
                r#"{{"id":"{event}","object":"event","type":"{kind}","created":{},"data":{{"object":{{"amount":1999}}}},"pending_webhooks":1}}"#,
                at.seconds()
            ),
        };
        let body = Bytes::from(body);
        let headers = provider.sign(event, kind, &body, at)?;
        let sent = promised.accepted + promised.duplicate + promised.refused;
        let (source, seen) = (provider.name, Counts::default());
        deliveries.push(Delivery { what, source, sent, promised, seen, event, headers, body });
    }
    Ok(deliveries)
}

impl Delivery {
    /// Sends the copies: two one after the other, more than two concurrently.
    async fn send(&mut self, receiver: &Receiver) -> Result<(), Failure> {
        let path = format!("/{}", self.source);
        let one = |_| post(receiver.address, &path, &self.headers, self.body.clone());
        let at_once = if self.sent > 2 { self.sent } else { 1 };
        let answers = stream::iter(0..self.sent).map(one).buffered(at_once);
        let answers: Vec<Answer> = answers.try_collect().await.map_err(|error| {
            Exit::Unavailable.failure(format!("a delivery had no answer: {error}"))
        })?;
        let seen = &mut self.seen;
        for answer in answers {
            match (answer.status, answer.status_word()) {
                (200, Some("accepted")) => seen.accepted += 1,
                (200, Some("duplicate")) => seen.duplicate += 1,
                (401, _) => seen.refused += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_as_promised(&self) -> bool {
        self.promised == self.seen
    }
}

/// Prints the ledger as a table, with a verdict for each line.
fn print(ledger: &[Delivery]) -> Result<(), Failure> {
    let number = |number: usize| match number {
        0 => "-".to_owned(),
        _ => number.to_string(),
    };
    let row = |delivery: &Delivery| {
        let seen = &delivery.seen;
        let answers = [
            (seen.accepted, "accepted"),
            (seen.duplicate, "duplicate"),
            (seen.refused, "refused (401)"),
        ];
        let answer =
            |(count, word): &(usize, &str)| (*count > 0).then(|| format!("{count} {word}"));
        let answers: Vec<String> = answers.iter().filter_map(answer).collect();
        let good = delivery.is_as_promised();
        let verdict = match good {
            true => "as promised".to_owned(),
            false => format!("PROMISED {:?}", delivery.promised),
        };
        vec![
            words_of("DELIVERY", delivery.what),
            words_of("SOURCE", delivery.source),
            words_of("SENT", delivery.sent),
            words_of("ANSWERED", answers.join(", ")),
            words_of("STORED", number(seen.stored)),
            words_of("RUN", number(seen.started)),
            words_of("DONE", number(seen.succeeded)),
            words_of("", output::painted(verdict, output::good_or_bad(good))),
        ]
    };
    output::listing(ledger.iter().map(row).collect(), false, "nothing was sent")?;
    let count = ledger.iter().filter(|one| one.is_as_promised()).count();
    let all = ledger.len();
    let style = output::good_or_bad(count == all).on_default();
    output::line(format_args!("\n{style}{count} of {all} lines as promised{style:#}"))
}

/// This program as a word of a shell.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "hooklatch".into());
    shell_word(&path.display().to_string()).into_owned()
}

/// Prints commands to try next, which can be pasted.
fn invite(site: &Site, receiver: &Receiver) -> Result<(), Failure> {
    let program = program();
    let config = site.config().display().to_string();
    let config = shell_word(&config);
    output::line(format_args!("\n{HEADING}It keeps serving. In another terminal:{HEADING:#}\n"))?;
    output::verbatim(format_args!("  {COMMAND}export HOOKLATCH_CONFIG={config}{COMMAND:#}"))?;
    for line in [
        "ui",
        "events",
        "jobs",
        "show evt_1DemoInvoice",
        "events --rejected",
        "replay evt_1DemoInvoice --handler fulfil",
    ] {
        output::verbatim(format_args!("  {COMMAND}{program} {line}{COMMAND:#}"))?;
    }
    let address = receiver.address;
    output::verbatim(format_args!(
        "  {COMMAND}curl -i http://{address}/stripe -d '{{}}'{COMMAND:#}  # refused: not signed"
    ))?;
    output::line(
        "\nCtrl-C ends it and deletes its store. Your own configuration: README.md, \"First webhook\".",
    )
}
