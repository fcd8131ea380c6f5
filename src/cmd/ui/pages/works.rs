//! What came of a replay or drop of many jobs.

use crate::admin::ShowJob;
use crate::store::Verb;

use super::super::{login::lock, parts::*, view::View};

pub(super) async fn show(view: &mut View<'_>, number: u64) -> Result<Markup, Failure> {
    let work = view.app.works.get(number)?;
    let job = lock(&work).first;
    let all = lock(&work).all;
    let moved = all - lock(&work).left.len();
    let result = lock(&work).result.clone();
    let (verb, done) = match lock(&work).verb {
        Verb::Replay => ("Replay", "put back"),
        Verb::Drop => ("Drop", "dropped"),
    };
    view.at("/inbox", format!("{verb} {}", many(all as u64, "job")));
    // One was to run first, and the others wait for its end.
    let first = match moved {
        1 => Some(view.ask(ShowJob { job }).await?),
        _ => None,
    };
    Ok(html! {
        (view.head(""))
        section.card aria-label="Progress" data-part="progress" { div.pad {
            label for="bar" { (thousands(moved as u64)) " of " (thousands(all as u64)) }
            progress #bar max=(all) value=(moved) {}
            dl.kv {
                @for (handler, jobs) in &result.done { dt { (handler) } dd { (thousands(*jobs)) " " (done) } }
                @for (jobs, why) in [
                    (result.changed, "had changed by then"),
                    (result.payload_gone, "have no payload any more"),
                    (result.unwanted, "dropped, because the condition does not hold"),
                    (result.undecided, "left held, because the condition still cannot be decided"),
                    (result.superseded, "left alone, because a newer event has taken their place"),
                ] { @if jobs > 0 { dt { (thousands(jobs)) } dd { (why) } } }
            }
            @if let Some(row) = &first { p {
                @let to = event_link(&row.source, row.event_id.as_str());
                "The first is " a.link href=(to) { (shown(&row.event_type)) } ": "
                (state(row.state, row.state.as_str())) " "
                @if let Some(detail) = &row.last_detail { (shown(detail)) }
            } }
            div.btns {
                @if moved < all && done == "put back" {
                    @let word = format!("{verb} the other {}…", all - moved);
                    (change(&format!("/change/rest?work={number}"), "primary", "replay", word))
                }
                a.btn.small href="/inbox" { "To the inbox" }
            }
        } }
    })
}
