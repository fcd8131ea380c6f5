//! What every screen is made of: the state of things, the configuration, and the frame around it.

use std::sync::Arc;

use maud::{Markup, html};

use crate::admin::GetStatus;
use crate::clock::Clock;
use crate::cmd::status::{Screen, Site, Verdict, configuration, screen};
use crate::config::Config;
use crate::exit::Failure;

use super::app::App;
use super::parts::{self, Frame, time, zone};
use super::request::Request;

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

/// Asks for what every page shows.
pub(super) async fn view<'a>(app: &'a Arc<App>, asked: &'a Request) -> Result<View<'a>, Failure> {
    let config = app.config()?;
    let sources: Vec<_> =
        config.sources.iter().map(|own| (own.name.clone(), own.path.value.clone())).collect();
    let names = sources.iter().map(|(name, _)| name.clone()).collect();
    let status = app.ask(GetStatus { sources: names }).await?;
    let store = config.store().path;
    let configuration = configuration(&config);
    let site = Site { sources, configuration, store: &store, suffix: &app.suffix };
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
