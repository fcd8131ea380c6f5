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

use crate::cmd::output::{self, thousands, words_of};
use crate::cmd::{confirm, progress, store};

use super::select::{deliveries, meant};

/// The deliveries that are meant, and the results so far.
#[derive(Default)]
struct Found {
    filter: QuarantineFilter,
    matching: u64,
    looked_at: u64,
    sources: BTreeMap<Name, ReverifyCounts>,
}

impl Found {
    /// The deliveries that match now, and none that arrives later.
    async fn meant(client: &StoreClient, which: &cli::Kept) -> Result<Self, Failure> {
        let (filter, matching) = meant(client, which).await?;
        Ok(Found { filter, matching, ..Found::default() })
    }

    fn sum(&self, of: impl Fn(&ReverifyCounts) -> u64) -> u64 {
        self.sources.values().map(of).sum()
    }
}

/// Says how many would be accepted now.
pub(super) fn verify(args: &cli::VerifyAgain) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    report(&verified(&config, args)?, false, &args.options)
}

pub(super) fn accept(args: &cli::AcceptAgain) -> Result<Exit, Failure> {
    let options = &args.verify.options;
    if args.dry_run {
        return verify(&args.verify);
    }
    let config = store::load(options)?;
    let meant = if args.yes {
        open(&config, &args.note, async |client| Found::meant(client, &args.verify.which).await)?
    } else {
        confirm::need_terminal()?;
        let found = verified(&config, &args.verify)?;
        if found.sum(|one| one.good) == 0 {
            return report(&found, false, options);
        }
        if !confirm::confirmed(&question(&found))? {
            return Ok(confirm::declined());
        }
        found
    };
    let mut found = Found { looked_at: 0, sources: BTreeMap::new(), ..meant };
    let accepted = open(&config, &args.note, async |client| {
        go(client, true, options.json(), &mut found).await
    });
    accepted.map_err(|failure| {
        let settled = deliveries(found.sum(|one| one.accepted + one.duplicates));
        failure.help(format!("{settled} were accepted before; the same command goes on"))
    })?;
    report(&found, true, options)
}

/// What would be accepted now.
fn verified(config: &Config, args: &cli::VerifyAgain) -> Result<Found, Failure> {
    open(config, &cli::Note::default(), async |client| {
        let mut found = Found::meant(client, &args.which).await?;
        go(client, false, args.options.json(), &mut found).await?;
        Ok(found)
    })
}

fn question(found: &Found) -> String {
    let good = found.sources.iter().filter(|(_, one)| one.good > 0);
    let which = good.map(|(source, one)| format!("{source} {}", thousands(one.good)));
    let which = which.collect::<Vec<_>>().join(", ");
    format!("accept {} ({which})", deliveries(found.sum(|one| one.good)))
}

/// Like [`store::with_client_noted`], and gives a stopped store today's judge.
fn open<T>(
    config: &Config,
    note: &cli::Note,
    work: impl AsyncFnOnce(&StoreClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    store::with_client_noted(config, note, async |client| {
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
    Ok(http::Sources::new(parts.sources, Vec::new()).judge())
}

/// Judges every delivery that matches, until a signal comes.
async fn go(
    client: &StoreClient,
    accept: bool,
    json: bool,
    found: &mut Found,
) -> Result<(), Failure> {
    let mut next = Some(0);
    progress::walk(found.matching, "deliveries", json, async || {
        let (Some(after), filter) = (next, found.filter.clone()) else { return Ok(None) };
        let judged = match accept {
            true => client.call(AcceptQuarantine { filter, after }).await?,
            false => client.call(VerifyQuarantine { filter, after, keys: None }).await?,
        };
        found.looked_at += judged.looked_at;
        for (source, more) in judged.sources {
            found.sources.entry(source).or_default().add(more);
        }
        if let Some(why) = judged.refused {
            let message = format!("the store accepts nothing now: {why}");
            return Err(Exit::Unavailable.failure(message));
        }
        next = judged.next;
        Ok(Some(judged.looked_at))
    })
    .await
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
        let mut row = vec![words_of("SOURCE", source)];
        if accepted {
            let held = match one.held {
                0 => String::new(),
                held => format!(" ({} held)", thousands(held)),
            };
            row.push(words_of("ACCEPTED", format!("{}{held}", thousands(one.accepted))));
            row.push(words_of("DUPLICATE", thousands(one.duplicates)));
        } else {
            row.push(words_of("VERIFY NOW", thousands(one.good)));
        }
        row.push(words_of("STILL BAD", bad.join(", ")));
        row
    };
    let rows = found.sources.iter().map(row).collect();
    output::listing(rows, false, "no failed delivery matches")?;
    let good = found.sum(|one| one.good);
    if !accepted && good > 0 {
        output::line(format_args!(
            "{} would be accepted: hooklatch quarantine accept{suffix}",
            deliveries(good)
        ))?;
    }
    Ok(())
}
