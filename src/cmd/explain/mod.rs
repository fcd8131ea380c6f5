//! `hooklatch explain`: prints what happened to an event, why, and what happens next. The store's record
//! comes from the receiver or the database; `explainer` and `next` write the sentences of an `explanation`.

mod explainer;
mod explanation;
mod next;

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::Timestamp;
use crate::store::IdKind;

use super::output::{self, escape, local};
use super::{ids, store};
pub(super) use explainer::Explainer;
use explanation::paragraphs;
pub(super) use explanation::{Explanation, HandlerPart};

/// Explains every event with the given id: variants, or events of several sources. For the id of a job,
/// explains the job's event.
pub(super) fn run(args: &cli::Explain) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let (found, nodes) = store::with_client(&config, async |client| {
        let target = ids::target(client, IdKind::Any, args.source.as_ref(), &args.event).await?;
        let nodes = match config.has_database() {
            true => store::nodes(client).await,
            false => Vec::new(),
        };
        let (found, unread) = ids::shown(client, &target).await?;
        unread.map_or(Ok((found, nodes)), |why| Err(Failure::from(why)))
    })?;
    let suffix = args.options.suffix();
    let time = if args.options.json() { |time: Timestamp| time.to_string() } else { local };
    let now = Clock::system().now();
    let explainer = Explainer { config: &config, nodes: &nodes, now, time, suffix: &suffix };
    let all: Vec<Explanation> = found.iter().map(|detail| explainer.explain(detail)).collect();
    output::either(&args.options.format, &all, || {
        all.iter().flat_map(paragraphs).enumerate().try_for_each(|(nth, facts)| {
            if nth > 0 {
                output::line("")?;
            }
            facts.iter().try_for_each(|(about, text)| output::fact(about, escape(text)))
        })
    })
}

#[cfg(test)]
mod tests;
