//! `hooklatch events --follow`: each event as it is accepted.
//!
//! It asks the receiver again and again for what came after the last answer's place, so nothing is
//! missed and nothing printed twice, over a restart of the receiver too. A stopped store is not
//! watched: that would hold its lock against the receiver that is to come.

use std::time::Duration;

use tokio::time::sleep;

use crate::cli;
use crate::config::Config;
use crate::control::{CallError, Client, Door, FailureKind, Reply, Request, connect, socket_path};
use crate::exit::{Exit, Failure};
use crate::model::Timestamp;
use crate::store::{Arrived, EventFilter, Mark};

use super::ids::{self, Short};
use super::output::{self, Table, json_line, lines, note};
use super::{events, store};

/// Between two looks: soon enough for a person.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Prints the newest events and then those that come, until a signal ends the process.
pub(super) fn run(args: &cli::Events, since: Option<Timestamp>) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let filter = events::filter(args, since);
    store::with_door(&config, async |door| {
        let chars = output::chars().filter(|_| !args.listing.wide);
        let mut table = (!args.listing.format.json).then(|| Table::new(events::columns(), chars));
        let mut mark = match store::call(door, after(&filter, None)).await? {
            Reply::Arrived(came) => {
                let short = ids::of_events(door, &came.events, &args.listing).await?;
                show(&mut table, true, came, &short)?
            }
            other => return Err(store::unexpected(&other)),
        };
        if matches!(door, Door::Local(_)) {
            note("no receiver runs, so no event can come: hooklatch serve");
            return Ok(Exit::Ok);
        }
        // The limit was for the beginning; afterwards everything is shown.
        let all = EventFilter { limit: None, ..filter };
        let mut told = false;
        loop {
            sleep(LOOK_AGAIN).await;
            match door.call(after(&all, Some(mark))).await {
                Ok(Reply::Arrived(came)) => {
                    // Whole ids where the receiver has just gone away.
                    let short = ids::of_events(door, &came.events, &args.listing).await;
                    mark = show(&mut table, false, came, &short.unwrap_or_default())?;
                    told = false;
                }
                Ok(other) => return Err(store::unexpected(&other)),
                Err(CallError::Gone { .. }) => {
                    note("the receiver went away; waiting for it");
                    *door = Door::Remote(again(&config).await);
                }
                // Its store is closed for repair, or it is about to go.
                Err(CallError::Failed(failure)) if failure.kind == FailureKind::Unavailable => {
                    if !told {
                        note(format_args!("{failure}; waiting for it"));
                    }
                    told = true;
                }
                Err(error) => return Err(store::call_failure(error)),
            }
        }
    })
}

fn after(filter: &EventFilter, mark: Option<Mark>) -> Request {
    Request::Arrived { filter: filter.clone(), after: mark }
}

/// A connection to the next receiver, whenever it comes.
async fn again(config: &Config) -> Client {
    let settings = config.store();
    loop {
        if let Ok(client) = connect(&socket_path(&settings.path), &settings.limits).await {
            return client;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Prints events as JSON, or as rows of a table that goes on; its head comes first.
fn show(
    table: &mut Option<Table>,
    begins: bool,
    came: Arrived,
    short: &Short,
) -> Result<Mark, Failure> {
    let Some(table) = table else {
        came.events.iter().try_for_each(json_line)?;
        return Ok(came.mark);
    };
    let rows: Vec<_> = came.events.iter().map(|event| events::row(event, short)).collect();
    rows.iter().for_each(|row| table.measure(row));
    if begins {
        lines(&table.head())?;
    }
    rows.iter().try_for_each(|row| lines(&table.lines(row)))?;
    Ok(came.mark)
}
