//! `hooklatch confirm`: confirms a provider's subscription, by a request to the URL that a stored event names.
//!
//! The receiver never follows a URL of a delivery. Must stay true: the event was verified when it was stored; only
//! hosts of the provider's file are asked, over TLS; and a person has said yes.

use serde_json::json;

use crate::admin::ShowEvent;
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::store::EventFilter;
use crate::verify;

use super::kit::target::Target;
use super::runtime::block_on;
use super::{confirm, output, show, store};

/// The largest answer that is read, in bytes. It is not used.
const ANSWER_BYTES: usize = 64 << 10;

/// Finds the newest event that asks, asks the person, and requests the URL.
pub(super) fn run(args: &cli::Confirm) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let source = &args.source;
    let endpoint = config.endpoint(source).ok_or_else(|| {
        Exit::NotFound.failure(format!("no such source: {source}")).help("conf.d/*.toml name them")
    })?;
    let provider = endpoint.scheme.name();
    let keys = endpoint.scheme.proof().published_keys.as_ref();
    let asks = keys.and_then(|keys| Some((keys, keys.confirmation.as_ref()?)));
    let (keys, asks) = asks.ok_or_else(|| {
        Exit::Usage.failure(format!("provider {provider} asks for no such confirmation"))
    })?;
    let filter = EventFilter {
        source: Some(source.clone()),
        event_type: Some(asks.event_type.clone()),
        limit: Some(1),
        ..EventFilter::default()
    };
    let found = store::with_client(&config, async |client| {
        let rows = store::events(client, filter).await?;
        let row = rows.into_iter().next().ok_or_else(|| {
            let what = format!("source {source} has no event of type {}", asks.event_type);
            Exit::NotFound.failure(what).help(format!(
                "subscribe the URL at {provider} first; `hooklatch quarantine` has what was refused"
            ))
        })?;
        let request =
            ShowEvent { source: Some(source.clone()), event: row.event_id, variant: None };
        Ok(client.call(request).await?.events)
    })?;
    let event = found.first().ok_or_else(show::payload_gone)?;
    let body = event.body.as_ref().ok_or_else(show::payload_gone)?;
    let url = verify::text_at(body, &asks.url).filter(|url| keys.allows(url)).ok_or_else(|| {
        let what = format!(
            "{} of event {} is not a URL at a host of the provider's file",
            asks.url, event.event.event_id
        );
        Exit::Config.failure(what).help("keys.hosts in the file names the hosts")
    })?;
    if !args.yes {
        confirm::need_terminal()?;
        if !confirm::confirmed(&format!("request {}", output::escape(&url)))? {
            return Ok(confirm::declined());
        }
    }
    let target = Target::parse(&url, "/", true);
    let got = block_on(async { target?.get(ANSWER_BYTES).await })?;
    got.map_err(|why| Exit::Unavailable.failure(format!("{url}: {why}")))?;
    let id = &event.event.event_id;
    let json = json!({ "source": source, "event": id, "url": url });
    output::answer(&args.options.format, json, format!("confirmed, by event {id}"))
}
