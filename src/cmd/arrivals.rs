//! `hooklatch events --follow`: each event as it is accepted.
//!
//! It repeats the question for what arrived after the last answer's mark, so that it misses no event and prints none
//! twice, over a restart of the receiver too. It does not watch a stopped store: that would hold the lock that the next
//! receiver needs.

use std::time::Duration;

use tokio::time::sleep;

use crate::cli;
use crate::config::Config;
use crate::control::{CallError, Client, Door, FailureKind, Reply, Request, connect, socket_path};
use crate::exit::{Exit, Failure};

use super::output::{self, Table, json_line, note};
use super::{events, ids, store};

/// Between two questions: soon enough for a person.
const INTERVAL: Duration = Duration::from_millis(250);

/// Prints the newest events and then each that arrives, until a signal ends the process.
pub(super) fn run(args: &cli::Events) -> Result<Exit, Failure> {
    let (config, listing) = (store::load(&args.file.config)?, &args.listing);
    let mut filter = events::filter(args)?;
    store::with_door(&config, async |door| {
        let mut table = Table::new(events::columns(), output::chars().filter(|_| !listing.wide));
        let (mut mark, mut noted) = (None, false);
        loop {
            let request = Request::Arrived { filter: filter.clone(), after: mark };
            match door.call(request).await {
                Ok(Reply::Arrived(arrived)) => {
                    if listing.format.json {
                        arrived.events.iter().try_for_each(json_line)?;
                    } else {
                        // Whole ids where the receiver has just gone away.
                        let short = ids::of_events(door, &arrived.events, listing).await;
                        let short = short.unwrap_or_default();
                        let rows = arrived.events.iter().map(|event| events::row(event, &short));
                        table.print(&rows.collect::<Vec<_>>())?;
                    }
                    if matches!(door, Door::Local(_)) {
                        note("no receiver runs, so no event can come: hooklatch serve");
                        return Ok(Exit::Ok);
                    }
                    // The limit is for the beginning.
                    filter.limit = None;
                    (mark, noted) = (Some(arrived.mark), false);
                }
                Ok(other) => return Err(store::unexpected(&other)),
                Err(error) if mark.is_none() => return Err(store::call_failure(error)),
                Err(CallError::Gone { .. }) => {
                    note("the receiver went away; waiting for it");
                    *door = Door::Remote(reconnect(&config).await);
                }
                // Its store is closed for repair, or it is about to stop.
                Err(CallError::Failed(failure)) if failure.kind == FailureKind::Unavailable => {
                    if !noted {
                        note(format_args!("{failure}; waiting for it"));
                    }
                    noted = true;
                }
                Err(error) => return Err(store::call_failure(error)),
            }
            sleep(INTERVAL).await;
        }
    })
}

/// Connects to the next receiver, however long it takes to start.
async fn reconnect(config: &Config) -> Client {
    let settings = config.store();
    loop {
        if let Ok(client) = connect(&socket_path(&settings.path), &settings.limits).await {
            return client;
        }
        sleep(INTERVAL).await;
    }
}
