//! `quarantine verify` and `quarantine accept`: judged again, counted, and perhaps accepted.
//!
//! The receiver judges with the sources it has; where none runs this process does, with those of the
//! configuration, under the store's lock. The way to the store is closed while a person thinks, and what
//! came after the count is not meant.

use std::collections::BTreeMap;

use crate::admin::{AcceptQuarantine, StoreClient, VerifyQuarantine};
use crate::cli;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Failure};
use crate::http;
use crate::model::Name;
use crate::store::{Judge, QuarantineFilter, Verdicts};

use crate::cmd::output::{self, Field, thousands};
use crate::cmd::{confirm, progress, store};

use super::{deliveries, meant};

/// What was found so far.
#[derive(Default)]
struct Found {
    looked_at: u64,
    sources: BTreeMap<Name, Verdicts>,
}

/// Says how many would be accepted now.
pub(super) fn verify(args: &cli::VerifyAgain) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let filter = super::filter(&args.which)?;
    judged(&config, filter, args.format.json, &output::config_suffix(&args.file.config))
}

pub(super) fn accept(args: &cli::AcceptAgain) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let (filter, json) = (super::filter(&args.which)?, args.format.json);
    let suffix = output::config_suffix(&args.file.config);
    if args.dry_run {
        return judged(&config, filter, json, &suffix);
    }
    if !args.yes {
        confirm::somebody_is_there()?;
    }
    let (filter, matching) = open(&config, async |client| meant(client, filter).await)?;
    if !args.yes {
        let mut found = Found::default();
        open(&config, async |client| go(client, &filter, false, matching, json, &mut found).await)?;
        let good: u64 = found.sources.values().map(|one| one.good).sum();
        if good == 0 {
            return told(&found, false, json, &suffix);
        }
        let which: Vec<String> = found
            .sources
            .iter()
            .filter(|(_, one)| one.good > 0)
            .map(|(source, one)| format!("{source} {}", thousands(one.good)))
            .collect();
        let question = format!("accept {} ({})", deliveries(good), which.join(", "));
        if !confirm::confirmed(&question)? {
            return Ok(confirm::declined());
        }
    }
    let mut found = Found::default();
    let done =
        open(&config, async |client| go(client, &filter, true, matching, json, &mut found).await);
    let settled: u64 = found.sources.values().map(|one| one.accepted + one.duplicates).sum();
    done.map_err(|failure| {
        let settled = deliveries(settled);
        failure.help(format!("{settled} were accepted before; the same command goes on"))
    })?;
    told(&found, true, json, &suffix)
}

fn judged(
    config: &Config,
    filter: QuarantineFilter,
    json: bool,
    suffix: &str,
) -> Result<Exit, Failure> {
    let mut found = Found::default();
    open(config, async |client| {
        let (filter, matching) = meant(client, filter).await?;
        go(client, &filter, false, matching, json, &mut found).await
    })?;
    told(&found, false, json, suffix)
}

/// Opens the way to the store; a stopped one is told how to judge.
fn open<T>(
    config: &Config,
    work: impl AsyncFnOnce(&StoreClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    store::with_client(config, async |client| {
        if let StoreClient::Local(_, context) = client {
            context.store.set_judge(judge(config)?);
        }
        work(client).await
    })
}

/// Today's sources with their secrets, read here.
fn judge(config: &Config) -> Result<Judge, Failure> {
    store::need_whole(config)?;
    let parts = config.resolve(&Environment::capture());
    let parts = parts.map_err(|problems| {
        let failure = store::config_failure(&problems);
        failure.help("a running receiver judges with the secrets it has: hooklatch serve")
    })?;
    let sources = http::Sources::new(parts.sources);
    let sources = sources.map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    Ok(sources.judge())
}

/// Judges every delivery that matches, until a signal comes.
async fn go(
    client: &StoreClient,
    filter: &QuarantineFilter,
    accept: bool,
    matching: u64,
    json: bool,
    found: &mut Found,
) -> Result<(), Failure> {
    let mut after = Some(0);
    progress::walk(matching, "deliveries", json, async || {
        let (Some(after_now), filter) = (after, filter.clone()) else { return Ok(None) };
        let judged = match accept {
            true => store::call(client, AcceptQuarantine { filter, after: after_now }).await?,
            false => store::call(client, VerifyQuarantine { filter, after: after_now }).await?,
        };
        found.looked_at += judged.looked_at;
        for (source, more) in judged.sources {
            add(found.sources.entry(source).or_default(), more);
        }
        if let Some(why) = judged.refused {
            let message = format!("the store accepts nothing now: {why}");
            return Err(Failure::new(Exit::Unavailable, message));
        }
        after = judged.next;
        Ok(Some(judged.looked_at))
    })
    .await
}

fn add(sum: &mut Verdicts, more: Verdicts) {
    let Verdicts { good, accepted, held, duplicates, bad, bodiless } = more;
    sum.good += good;
    sum.accepted += accepted;
    sum.held += held;
    sum.duplicates += duplicates;
    sum.bodiless += bodiless;
    for (reason, deliveries) in bad {
        *sum.bad.entry(reason).or_default() += deliveries;
    }
}

fn told(found: &Found, accepted: bool, json: bool, suffix: &str) -> Result<Exit, Failure> {
    if json {
        output::json(&serde_json::json!({
            "verb": if accepted { "accept" } else { "verify" },
            "looked_at": found.looked_at,
            "sources": found.sources,
        }))?;
        return Ok(Exit::Ok);
    }
    let row = |(source, one): (&Name, &Verdicts)| {
        let bad = one
            .bad
            .iter()
            .map(|(reason, deliveries)| format!("{} {reason}", thousands(*deliveries)));
        let mut bad: Vec<String> = bad.collect();
        if one.bodiless > 0 {
            bad.push(format!("{} without a body", thousands(one.bodiless)));
        }
        let bad = Field::from(bad.join(", "));
        let source = Field::from(source);
        match accepted {
            false => vec![source, thousands(one.good).into(), bad],
            true => {
                let new = match one.held {
                    0 => thousands(one.accepted),
                    held => format!("{} ({} held)", thousands(one.accepted), thousands(held)),
                };
                vec![source, new.into(), thousands(one.duplicates).into(), bad]
            }
        }
    };
    let head: &[&'static str] = match accepted {
        true => &["SOURCE", "ACCEPTED", "DUPLICATE", "STILL BAD"],
        false => &["SOURCE", "VERIFY NOW", "STILL BAD"],
    };
    let empty = "no failed delivery matches";
    output::table(head, found.sources.iter().map(row).collect(), empty)?;
    let good: u64 = found.sources.values().map(|one| one.good).sum();
    if !accepted && good > 0 {
        output::line(format_args!(
            "{} would be accepted: hooklatch quarantine accept{suffix}",
            deliveries(good)
        ))?;
    }
    Ok(Exit::Ok)
}
