//! `hooklatch events --follow`: each event as it is accepted.
//!
//! After a lost connection it goes on behind the last line that it has read, so it misses no event and
//! prints none twice, over a restart of the receiver too. It does not watch a stopped store: that would
//! hold the lock that the next receiver needs.

use std::time::Duration;

use tokio::time::sleep;

use crate::admin::{CallError, FollowEvents, FollowedEvents, StoreClient};
use crate::cli;
use crate::exit::{Exit, Failure};

use super::output::{self, Table, json_line, note};
use super::{events, ids, jobs, store};

/// The pause between two tries to reach the next receiver.
const INTERVAL: Duration = Duration::from_millis(250);

/// Prints the newest events and then each that arrives, until a signal ends the process.
pub(super) fn run(args: &cli::Events) -> Result<Exit, Failure> {
    let (config, listing) = (store::load(&args.listing.options)?, &args.listing);
    let mut request = FollowEvents {
        source: args.source.clone(),
        event_type: args.event_type.clone(),
        since: jobs::since(args.since)?,
        state: args.state,
        handler: args.handler.clone(),
        limit: Some(listing.limit),
        after: None,
    };
    store::with_client(&config, async |client| {
        let mut table = Table::new(
            &events::columns(Default::default()),
            output::chars().filter(|_| !listing.wide),
        );
        let mut stream = client.open_stream(request.clone()).await?;
        let mut noted = false;
        loop {
            let Ok(Some(line)) = stream.line::<FollowedEvents>().await else {
                note("the receiver went away; waiting for it");
                // As long as the next receiver takes to start.
                stream = loop {
                    match client.open_stream(request.clone()).await {
                        Ok(stream) => break stream,
                        Err(error @ CallError::Failed(_)) => return Err(error.into()),
                        Err(_) => sleep(INTERVAL).await,
                    }
                };
                continue;
            };
            // Its store is closed for repair, or it is about to stop.
            if let Some(why) = line.waiting.as_ref().filter(|_| !noted) {
                note(format_args!("{why}; waiting for it"));
            }
            noted = line.waiting.is_some();
            if listing.options.json() {
                line.events.iter().try_for_each(json_line)?;
            } else {
                // Whole ids where the receiver has just gone away.
                let short = ids::of_events(client, &line.events, listing).await.unwrap_or_default();
                let rows = line.events.iter().map(|event| events::row(event, &short));
                table.print(rows.collect())?;
            }
            if matches!(client, StoreClient::Local(..)) {
                note("no receiver runs, so no event can come: hooklatch serve");
                return Ok(Exit::Ok);
            }
            if line.next.is_some() {
                // The limit is for the beginning.
                (request.after, request.limit) = (line.next, None);
            }
        }
    })
}
