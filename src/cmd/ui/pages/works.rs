//! How far a replay or drop of many jobs has come.

use crate::admin::ShowJob;
use crate::store::Verb;

use super::super::parts::*;
use super::super::view::View;

pub(super) async fn show(view: &mut View<'_>, number: &str) -> Result<Markup, Failure> {
    let number = number.parse().map_err(|_| Exit::NotFound.failure("there is no such page"))?;
    let work = view.app.works.get(number)?;
    let all = work.jobs.len();
    let (verb, done) = match work.verb {
        Verb::Replay => ("Replay", "put back"),
        Verb::Drop => ("Drop", "dropped"),
    };
    view.at("/inbox", format!("{verb} {}", many(all as u64, "job")));
    let is_stopped = !work.is_running && work.moved < all;
    // One was to run first, and the others wait for its end.
    let first = match is_stopped && work.moved == 1 {
        true => Some(view.app.ask(ShowJob { job: work.jobs[0].0 }).await?),
        false => None,
    };
    let result = &work.result;
    let left = [
        (result.changed, "had changed by then"),
        (result.payload_gone, "have no payload any more"),
        (result.unwanted, "dropped, because the condition does not hold"),
        (result.undecided, "left held, because the condition still cannot be decided"),
        (result.superseded, "left alone, because a newer event has taken their place"),
    ];
    let word = if work.is_running {
        "Under way"
    } else if is_stopped {
        "Not all"
    } else {
        "Done"
    };
    let rest = format!("/change/rest?work={number}");
    Ok(html! {
        (view.head(""))
        section.card aria-label="Progress" data-part="progress" {
            div.pad {
                label for="bar" { (word) ": " (thousands(work.moved as u64)) " of " (thousands(all as u64)) }
                progress #bar max=(all) value=(work.moved) {}
                dl.kv {
                    @for (handler, jobs) in &result.done { dt { (handler) } dd { (thousands(*jobs)) " " (done) } }
                    @for (jobs, why) in left { @if jobs > 0 { dt { (thousands(jobs)) } dd { (why) } } }
                }
                @if let Some(why) = &work.failed { (banner("bad", "dead", format!("{why} What was moved stays so."))) }
                @if let Some(row) = &first { p {
                    "The first is " a.link href=(event_link(&row.source, row.event_id.as_str())) { (shown(&row.event_type)) } ": "
                    (state(row.state, row.state.as_str())) " "
                    @if let Some(detail) = &row.last_detail { (shown(detail)) }
                } }
                div.btns {
                    @if is_stopped { (change(&rest, "primary", "replay", format!("{verb} the other {}…", all - work.moved))) }
                    a.btn.small href="/inbox" { "To the inbox" }
                }
            }
        }
    })
}
