//! The pages: which address shows what. Each file of this folder is one screen.

mod audit;
pub(super) mod change;
pub(super) mod event;
mod events;
mod handlers;
mod inbox;
mod needs;
mod overview;
mod quarantine;
mod sources;
mod works;

use std::sync::Arc;

use actix_web::http::StatusCode;
use maud::html;

use crate::exit::{Exit, Failure};

use super::app::App;
use super::parts::{self, banner, more, sentence};
use super::request::Request;
use super::view::{Content, View, view};

/// The answer to a request for a page.
pub(super) enum Page {
    Shown {
        status: StatusCode,
        html: String,
    },
    /// It is elsewhere.
    To(String),
}

/// Makes the page that is asked for.
pub(super) async fn page(app: &Arc<App>, cookie: &str, asked: &Request) -> Result<Page, Failure> {
    let mut view = match view(app, asked).await {
        Ok(view) => view,
        Err(failure) => {
            let status = status_of(&failure);
            return Ok(Page::Shown { status, html: no_receiver(&failure, asked) });
        }
    };
    let made = content(&mut view, cookie).await;
    let (status, main) = match made {
        Ok(Content::To(path)) => return Ok(Page::To(path)),
        Ok(Content::Main(main)) => (StatusCode::OK, main),
        Err(failure) => {
            view.frame.live = None;
            view.frame.title = "Not shown".to_owned();
            let main = html! {
                (view.frame.head(&html! {}))
                (banner("bad", "dead", &html! { (sentence(&failure)) }))
            };
            (status_of(&failure), main)
        }
    };
    Ok(Page::Shown { status, html: view.frame.page(&main) })
}

async fn content(view: &mut View<'_>, cookie: &str) -> Result<Content, Failure> {
    let asked = view.asked;
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    Ok(match path[..] {
        [] => overview::show(view).await?.into(),
        ["inbox"] => inbox::show(view).await?.into(),
        ["events"] => events::show(view).await?,
        ["event"] => event::show(view).await?.into(),
        ["handlers"] => handlers::show(view).await?.into(),
        ["sources"] => sources::show(view).await?.into(),
        ["quarantine"] => quarantine::show(view).await?.into(),
        ["audit"] => audit::show(view).await?.into(),
        ["work", number] => works::show(view, number).await?.into(),
        ["change", what] => change::show(view, cookie, what).await?.into(),
        ["more"] => {
            view.at("/more", "More");
            html! { (view.frame.head(&html! {})) (more()) }.into()
        }
        _ => return Err(Exit::NotFound.failure("there is no such page")),
    })
}

/// Without a receiver there is nothing to show: a stopped store is not opened, because its lock would keep the
/// receiver from starting.
fn no_receiver(failure: &Failure, asked: &Request) -> String {
    parts::alone("No receiver answers", &sentence(failure), &asked.target)
}

/// The status of the page that says so.
pub(super) fn status_of(failure: &Failure) -> StatusCode {
    match failure.exit {
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::NotFound => StatusCode::NOT_FOUND,
        Exit::WrongState | Exit::No => StatusCode::CONFLICT,
        Exit::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
