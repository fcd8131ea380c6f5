//! The pages: which address shows what. Each file of this folder is one screen.

mod audit;
mod causes;
mod change;
pub(super) mod event;
mod events;
mod handlers;
mod inbox;
mod overview;
mod quarantine;
mod sources;
mod works;

use std::sync::Arc;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};

use super::view::{View, bare, more};
use super::{app::App, parts::*, request::Request};

/// Marks a page that changes while the store does not: an attempt runs, and prints.
pub(super) struct MovesByItself;

/// The page that is asked for, or the one that says why there is none.
pub(super) async fn page(app: &Arc<App>, cookie: &str, asked: &Request) -> HttpResponse {
    let mut view = match View::new(app, asked).await {
        Ok(view) => view,
        // A stopped store is not opened: its lock would keep the receiver from starting.
        Err(failure) => {
            let again = Some(&asked.target).filter(|_| !asked.is_change());
            let html = bare("No receiver answers", sentence(&failure), again);
            return answer(status(&failure), html);
        }
    };
    let made = match asked.path.first().map(String::as_str) {
        Some("find") => match events::find(app, asked).await {
            Ok(to) => return see(&to).finish(),
            Err(failure) => Err(failure),
        },
        _ => content(&mut view, cookie).await,
    };
    match made {
        Ok(main) => {
            let mut page = answer(StatusCode::OK, view.page(&main));
            if view.screen.running.iter().any(|backlog| backlog.jobs > 0) {
                page.extensions_mut().insert(MovesByItself);
            }
            page
        }
        Err(failure) => {
            view.is_live = false;
            view.at("", "Not shown");
            let main = html! { (view.head("")) (banner("bad", "dead", sentence(&failure))) };
            answer(status(&failure), view.page(&main))
        }
    }
}

async fn content(view: &mut View<'_>, cookie: &str) -> Result<Markup, Failure> {
    let path: Vec<&str> = view.asked.path.iter().map(String::as_str).collect();
    match path[..] {
        [] => overview::show(view).await,
        ["inbox"] => inbox::show(view).await,
        ["events"] => events::show(view).await,
        ["event"] => event::show(view).await,
        ["handlers"] => handlers::show(view).await,
        ["sources"] => sources::show(view).await,
        ["quarantine"] => quarantine::show(view).await,
        ["audit"] => audit::show(view).await,
        // The number 0 is never given.
        ["work", number] => works::show(view, number.parse().unwrap_or(0)).await,
        ["change", what] => change::show(view, cookie, what).await,
        ["more"] => {
            view.at("/more", "More");
            Ok(html! { (view.head("")) (more()) (view.logout()) })
        }
        _ => Err(Exit::NotFound.failure("there is no such page")),
    }
}

pub(super) fn see(path: &str) -> HttpResponseBuilder {
    let mut builder = HttpResponse::SeeOther();
    builder.insert_header((header::LOCATION, path));
    builder
}

pub(super) fn answer(status: StatusCode, html: String) -> HttpResponse {
    let mut answer = HttpResponse::build(status);
    answer.content_type("text/html; charset=utf-8").body(html)
}

pub(super) fn failed(failure: &Failure) -> HttpResponse {
    let text = html! { (sentence(failure)) " " a.link href="/" { "To the overview" } };
    answer(status(failure), bare("That did not work", text, None))
}

/// The status of the page that says so.
fn status(failure: &Failure) -> StatusCode {
    match failure.exit {
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::NotFound => StatusCode::NOT_FOUND,
        Exit::WrongState | Exit::No => StatusCode::CONFLICT,
        Exit::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
