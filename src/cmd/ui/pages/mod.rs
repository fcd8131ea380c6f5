//! The pages: which address shows what. Each file of this folder is one screen.

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
use maud::{Markup, html};

use crate::admin::GetStatus;
use crate::clock::Clock;
use crate::cmd::output::thousands;
use crate::cmd::status::{Screen, Site, Verdict, screen};
use crate::config::Config;
use crate::exit::{Exit, Failure};

use super::app::App;
use super::parts::{self, Frame, banner, more, time, zone};
use super::request::Request;
use super::server::status_of;

/// The answer to a request for a page.
pub(super) enum Page {
    Shown { status: StatusCode, html: String },
    /// It is elsewhere.
    To(String),
}

/// What a screen is made of.
pub(super) struct View<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) asked: &'a Request,
    pub(super) screen: Screen,
    pub(super) config: Arc<Config>,
    pub(super) frame: Frame,
}

impl View<'_> {
    /// Says where in the navigation this is, and what it is called.
    pub(super) fn at(&mut self, place: &'static str, title: impl Into<String>) {
        self.frame.place = place;
        self.frame.title = title.into();
    }
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

/// What a screen answers.
pub(super) enum Content {
    Main(Markup),
    To(String),
}

impl From<Markup> for Content {
    fn from(main: Markup) -> Self {
        Content::Main(main)
    }
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
        ["work", number] => works::show(view, number).await?.into(),
        ["change", what] => change::show(view, cookie, what).await?.into(),
        ["more"] => {
            view.at("/more", "More");
            html! { (view.frame.head(&html! {})) (more()) }.into()
        }
        _ => return Err(Exit::NotFound.failure("there is no such page")),
    })
}

/// Asks for what every page shows.
async fn view<'a>(app: &'a Arc<App>, asked: &'a Request) -> Result<View<'a>, Failure> {
    let config = app.config()?;
    let sources: Vec<_> =
        config.sources.iter().map(|own| (own.name.clone(), own.path.value.clone())).collect();
    let names = sources.iter().map(|(name, _)| name.clone()).collect();
    let status = app.ask(GetStatus { sources: names }).await?;
    let store = config.store().path;
    let site = Site { sources, store: &store, suffix: &app.suffix };
    let screen = screen(status, &site, Clock::system().now());
    let live = (!asked.is_change()).then(|| asked.target.clone());
    let frame = Frame {
        inbox: screen.stuck.iter().map(|stuck| stuck.jobs).sum(),
        refusing: screen.sources.iter().filter(|line| line.refusing().is_some()).count() as u64,
        kept: screen.sources.iter().map(|line| line.quarantined).sum(),
        verdict: match screen.verdict {
            Verdict::NotServing => Err("Not serving"),
            _ => Ok("Serving"),
        },
        facts: facts(&screen, app),
        now: screen.now,
        place: "",
        title: String::new(),
        live,
        clock: !asked.is_live,
        theme: asked.theme,
    };
    Ok(View { app, asked, screen, config, frame })
}

fn facts(screen: &Screen, app: &App) -> Vec<Markup> {
    let serving = screen.receiver.as_ref().map(|receiver| {
        html! { "since " (time(receiver.started_at, screen.now)) " · " (parts::shown(&receiver.version)) }
    });
    let role = html! { "role: " (app.role.as_str()) " · times in " (zone()) };
    serving.into_iter().chain([role]).collect()
}

/// Without a receiver there is nothing to show: a stopped store is not opened, because its lock would keep the
/// receiver from starting.
fn no_receiver(failure: &Failure, asked: &Request) -> String {
    parts::alone("No receiver answers", &sentence(failure), &asked.target)
}

/// A failure as a sentence, with the command that helps.
pub(super) fn sentence(failure: &Failure) -> String {
    let message = parts::shown(&failure.message);
    let mut chars = message.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let help = failure.help.as_ref().map(|help| format!(" {}", parts::shown(help)));
    format!("{first}{}.{}", chars.as_str(), help.unwrap_or_default())
}

/// A number and a noun: "1,204 jobs".
pub(super) fn many(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}
