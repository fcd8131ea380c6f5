//! `hooklatch confirm`: confirms a provider's subscription, by a request to the URL that a stored event names.
//!
//! The receiver never follows a URL of a delivery. Must stay true: the event was verified when it was stored; only
//! hosts of the provider's file are asked, over TLS; it names the source's `sender`; and a person, who saw that name, has
//! said yes.

use serde_json::json;

use crate::admin::ShowEvent;
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::model::Headers;
use crate::provider::Scheme;
use crate::store::{EventDetail, EventFilter};
use crate::verify::{self, Rejection};

use super::kit::target::Target;
use super::runtime::block_on;
use super::{confirm, output, show, store};

/// The largest answer that is read, in bytes. It is not used.
const ANSWER_BYTES: usize = 64 << 10;

/// How many of the newest events are looked at for one of the source's sender.
const EVENTS: usize = 20;

/// Finds the newest event of the source's sender that asks, asks the person, and requests the URL.
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
        limit: Some(EVENTS),
        ..EventFilter::default()
    };
    let found = store::with_client(&config, async |client| {
        let rows = store::events(client, filter).await?;
        if rows.is_empty() {
            let what = format!("source {source} has no event of type {}", asks.event_type);
            return Err(Exit::NotFound.failure(what).help(format!(
                "subscribe the URL at {provider} first; `hooklatch quarantine` has what was refused"
            )));
        }
        let mut foreign = None;
        for row in rows {
            let request =
                ShowEvent { source: Some(source.clone()), event: row.event_id, variant: None };
            for event in client.show(request).await? {
                match sender(endpoint.scheme, &event) {
                    Ok(sender) => return Ok((event, sender)),
                    Err(why) => foreign = foreign.or(Some(why)),
                }
            }
        }
        let why = foreign.map_or_else(String::new, |why| format!(": {}", why.detail));
        let what = format!("no event of type {} is from the source's sender{why}", asks.event_type);
        Err(Exit::Config.failure(what).help("name the sender in the source's `sender`"))
    })?;
    let (event, sender) = found;
    let body = event.body.as_ref().ok_or_else(|| show::without_body(&event))?;
    let url = verify::text_at(body, &asks.url).filter(|url| keys.allows(url)).ok_or_else(|| {
        let what = format!(
            "{} of event {} is not a URL at a host of the provider's file",
            asks.url, event.event.event_id
        );
        Exit::Config.failure(what).help("keys.hosts in the file names the hosts")
    })?;
    if !args.yes {
        confirm::need_terminal()?;
        let of = sender.as_ref().map(|sender| format!(" for {}", output::escape(sender)));
        let question = format!("request {}{}", output::escape(&url), of.unwrap_or_default());
        if !confirm::confirmed(&question)? {
            return Ok(confirm::declined());
        }
    }
    let target = Target::parse(&url, "/", true);
    let got = block_on(async { target?.get(ANSWER_BYTES).await })?;
    got.map_err(|why| Exit::Unavailable.failure(format!("{url}: {why}")))?;
    let id = &event.event.event_id;
    let json = json!({ "source": source, "event": id, "url": url, "sender": sender });
    let of = sender.map_or_else(String::new, |sender| format!(" {}", output::escape(&sender)));
    output::answer(&args.options.format, json, format!("confirmed{of}, by event {id}"))
}

/// The sender that the event names, if the provider has a place for one. The source may have taken the event under
/// another `sender`, so it is compared again.
fn sender(scheme: &Scheme, event: &EventDetail) -> Result<Option<String>, Rejection> {
    let mut headers = Headers::new();
    event.headers.iter().for_each(|(name, value)| headers.push(name, value.as_str()));
    let body = event.body.as_ref().map_or(&[][..], |body| &body[..]);
    verify::sender(scheme, &headers, body)
}
