//! `quarantine verify` and `quarantine accept`: verify failed deliveries again, count, and accept them.
//!
//! A running receiver judges with the sources it has; otherwise this process does, with the sources of the
//! configuration and under the store's lock. The store is closed while the operator decides. Deliveries that
//! arrive after the count are not included.

use std::collections::BTreeMap;

use crate::admin::{AcceptQuarantine, StoreClient, VerifyQuarantine};
use crate::cli;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Failure};
use crate::http;
use crate::model::Name;
use crate::store::{QuarantineFilter, Reverifier, ReverifyCounts};

use crate::cmd::output::{self, Field, thousands};
use crate::cmd::{confirm, progress, store};

use super::select::{self, deliveries, meant};

/// The results so far.
#[derive(Default)]
struct Found {
    looked_at: u64,
    sources: BTreeMap<Name, ReverifyCounts>,
}

impl Found {
    fn sum(&self, of: impl Fn(&ReverifyCounts) -> u64) -> u64 {
        self.sources.values().map(of).sum()
    }
}

/// Says how many would be accepted now.
pub(super) fn verify(args: &cli::VerifyAgain) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let (found, ..) = verified(&config, args)?;
    report(&found, false, &args.options)
}

pub(super) fn accept(args: &cli::AcceptAgain) -> Result<Exit, Failure> {
    let options = &args.verify.options;
    if args.dry_run {
        return verify(&args.verify);
    }
    let config = store::load(options)?;
    let (filter, matching) = if args.yes {
        let filter = select::filter(&args.verify.which)?;
        open(&config, async |client| meant(client, filter).await)?
    } else {
        confirm::need_terminal()?;
        let (found, filter, matching) = verified(&config, &args.verify)?;
        if found.sum(|one| one.good) == 0 {
            return report(&found, false, options);
        }
        if !confirm::confirmed(&question(&found))? {
            return Ok(confirm::declined());
        }
        (filter, matching)
    };
    let mut found = Found::default();
    let accepted = open(&config, async |client| {
        go(client, &filter, true, matching, options.json(), &mut found).await
    });
    accepted.map_err(|failure| {
        let settled = deliveries(found.sum(|one| one.accepted + one.duplicates));
        failure.help(format!("{settled} were accepted before; the same command goes on"))
    })?;
    report(&found, true, options)
}

/// What would be accepted now, the filter without deliveries that arrived since, and how many match it.
fn verified(
    config: &Config,
    args: &cli::VerifyAgain,
) -> Result<(Found, QuarantineFilter, u64), Failure> {
    let filter = select::filter(&args.which)?;
    let mut found = Found::default();
    let (filter, matching) = open(config, async |client| {
        let (filter, matching) = meant(client, filter).await?;
        go(client, &filter, false, matching, args.options.json(), &mut found).await?;
        Ok((filter, matching))
    })?;
    Ok((found, filter, matching))
}

fn question(found: &Found) -> String {
    let good = found.sources.iter().filter(|(_, one)| one.good > 0);
    let which = good.map(|(source, one)| format!("{source} {}", thousands(one.good)));
    let which = which.collect::<Vec<_>>().join(", ");
    format!("accept {} ({which})", deliveries(found.sum(|one| one.good)))
}

/// Like [`store::with_client`], and gives a stopped store today's judge.
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
fn judge(config: &Config) -> Result<Reverifier, Failure> {
    store::need_whole(config)?;
    let parts = config.resolve(&Environment::capture());
    let parts = parts.map_err(|problems| {
        Failure::from(problems)
            .help("a running receiver judges with the secrets it has: hooklatch serve")
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
            true => client.call(AcceptQuarantine { filter, after: after_now }).await?,
            false => client.call(VerifyQuarantine { filter, after: after_now }).await?,
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

fn add(sum: &mut ReverifyCounts, more: ReverifyCounts) {
    let ReverifyCounts { good, accepted, held, duplicates, bad, bodiless } = more;
    sum.good += good;
    sum.accepted += accepted;
    sum.held += held;
    sum.duplicates += duplicates;
    sum.bodiless += bodiless;
    for (reason, deliveries) in bad {
        *sum.bad.entry(reason).or_default() += deliveries;
    }
}

fn report(found: &Found, accepted: bool, options: &cli::Options) -> Result<Exit, Failure> {
    let json = serde_json::json!({
        "verb": if accepted { "accept" } else { "verify" },
        "looked_at": found.looked_at,
        "sources": found.sources,
    });
    output::either(&options.format, &json, || print(found, accepted, &options.suffix()))
}

fn print(found: &Found, accepted: bool, suffix: &str) -> Result<(), Failure> {
    let row = |(source, one): (&Name, &ReverifyCounts)| {
        let bad = one.bad.iter();
        let bad = bad.map(|(reason, deliveries)| format!("{} {reason}", thousands(*deliveries)));
        let mut bad: Vec<String> = bad.collect();
        if one.bodiless > 0 {
            bad.push(format!("{} without a body", thousands(one.bodiless)));
        }
        let good: Vec<String> = match (accepted, one.held) {
            (false, _) => vec![thousands(one.good)],
            (true, 0) => vec![thousands(one.accepted), thousands(one.duplicates)],
            (true, held) => vec![
                format!("{} ({} held)", thousands(one.accepted), thousands(held)),
                thousands(one.duplicates),
            ],
        };
        let texts = [source.to_string()].into_iter().chain(good).chain([bad.join(", ")]);
        texts.map(Field::from).collect()
    };
    let head: &[&'static str] = match accepted {
        true => &["SOURCE", "ACCEPTED", "DUPLICATE", "STILL BAD"],
        false => &["SOURCE", "VERIFY NOW", "STILL BAD"],
    };
    let empty = "no failed delivery matches";
    output::table(head, found.sources.iter().map(row).collect(), empty)?;
    let good = found.sum(|one| one.good);
    if !accepted && good > 0 {
        output::line(format_args!(
            "{} would be accepted: hooklatch quarantine accept{suffix}",
            deliveries(good)
        ))?;
    }
    Ok(())
}
