//! `hooklatch explain`: what became of an event, why, and what happens next.

mod story;

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::Timestamp;

use super::output::{self, escape, local};
use super::{ids, store};
use story::{HandlerStory, Next, Story, Telling};

/// Explains every event with the id: its variants, or those of several sources. Of a job its event.
pub(super) fn run(args: &cli::Explain) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let found = store::with_door(&config, async |door| {
        let target = ids::event_or_job(door, args.source.as_ref(), &args.event).await?;
        ids::shown(door, &target).await
    })?;
    let suffix = output::config_suffix(&args.file.config);
    let time: fn(Timestamp) -> String = match args.format.json {
        true => |time| time.to_string(),
        false => local,
    };
    let telling = Telling { config: &config, now: Clock::system().now(), time, suffix: &suffix };
    let stories: Vec<Story> = found.iter().map(|detail| telling.story(detail)).collect();
    if args.format.json {
        output::json(&stories)?;
        return Ok(Exit::Ok);
    }
    for (nth, story) in stories.iter().enumerate() {
        if nth > 0 {
            output::line("")?;
        }
        lines(story).iter().try_for_each(|line| output::line(escape(line)))?;
    }
    Ok(Exit::Ok)
}

/// A story for people.
fn lines(story: &Story) -> Vec<String> {
    let mut lines = vec![format!(
        "event {} of type {}, source {}",
        story.event, story.event_type, story.source
    )];
    lines.extend(story.arrival.iter().map(|said| format!("  {said}")));
    lines.push(format!("  replay guard: {}", story.replay_guard));
    lines.extend(story.next.iter().flat_map(|next| happens("  ", next)));
    lines.extend(story.handlers.iter().flat_map(handler));
    lines
}

fn handler(told: &HandlerStory) -> Vec<String> {
    let wants = if told.wants { "wants it" } else { "does not want it" };
    let mut lines = vec![format!("handler {} {wants}: {}", told.handler, told.why)];
    if let Some(job) = &told.job {
        let reason = job.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        lines.push(format!("  job {} is {}{reason}", job.job, job.state));
        lines.extend(job.attempts.iter().map(|attempt| format!("    {attempt}")));
        lines.extend(happens("    ", &job.next));
    }
    lines.extend(told.next.iter().flat_map(|next| happens("  ", next)));
    lines
}

fn happens(indent: &str, next: &Next) -> Vec<String> {
    let what = format!("{indent}next: {}", next.what);
    let command = next.command.as_ref().map(|command| format!("{indent}      {command}"));
    std::iter::once(what).chain(command).collect()
}
