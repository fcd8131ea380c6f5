//! What every page is made of: the state of things, the configuration, and the frame around the page.

use std::sync::Arc;

use maud::DOCTYPE;

use crate::admin::Operation;
use crate::clock::Clock;
use crate::cmd::status::{Screen, Site, SourceLine, Verdict, screen};
use crate::config::{Access, Config};

use super::app::App;
use super::assets::{ICON, SCRIPT, STYLE};
use super::login::Way;
use super::parts::*;
use super::request::Request;

/// An entry of the navigation: where to, glyph, word.
const PLACES: &[(&str, &str, &str)] = &[
    ("/", "overview", "Overview"),
    ("/inbox", "inbox", "Inbox"),
    ("/events", "events", "Events"),
    ("/handlers", "handlers", "Handlers"),
    ("/sources", "sources", "Sources"),
    ("/quarantine", "quarantine", "Quarantine"),
    ("/audit", "audit", "Audit"),
];

/// Places of the tab bar on a phone; the page behind the last tab links to the others.
const TABS: usize = 4;

/// What a page is made of.
pub(super) struct View<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) asked: &'a Request,
    pub(super) screen: Screen,
    pub(super) config: Arc<Config>,
    /// The page follows what happens.
    pub(super) is_live: bool,
    /// Where the visitor is in the navigation.
    place: &'static str,
    title: String,
}

impl<'a> View<'a> {
    /// Asks for what every page shows.
    pub(super) async fn new(app: &'a Arc<App>, asked: &'a Request) -> Result<Self, Failure> {
        let config = app.config()?;
        let store = config.store().path;
        let site = Site::of(&config, &store, &app.suffix);
        let status = app.ask(site.question()).await?;
        let mut screen = screen(status, &site, Clock::system().now());
        for broken in screen.broken.iter_mut().filter(|_| !app.may_see_payloads()) {
            // It ends with the last line of the errors.
            broken.cause = "its command cannot run".to_owned();
        }
        Ok(View {
            app,
            asked,
            screen,
            config,
            is_live: !asked.is_change(),
            place: "",
            title: String::new(),
        })
    }

    /// Carries out a request of the admin API.
    pub(super) async fn ask<O: Operation>(&self, request: O) -> Result<O::Reply, Failure> {
        self.app.ask(request).await
    }

    /// Says where in the navigation this is, and what it is called.
    pub(super) fn at(&mut self, place: &'static str, title: impl Into<String>) {
        (self.place, self.title) = (place, title.into());
    }

    fn entry(&self, (to, glyph, word): (&str, &str, &str)) -> Markup {
        let of = |count: fn(&SourceLine) -> u64| self.screen.sources.iter().map(count).sum();
        let (number, class) = match to {
            "/inbox" => (self.stuck(), "count warn"),
            "/sources" => (of(|line| line.refusing().is_some().into()), "count bad"),
            "/quarantine" => (of(|line| line.quarantined), "count"),
            _ => (0, ""),
        };
        html! { a href=(to) aria-current=[(to == self.place).then_some("page")] {
            (icon(glyph)) (word) @if number > 0 { span class=(class) { (thousands(number)) } }
        } }
    }

    fn stuck(&self) -> u64 {
        self.screen.stuck.iter().map(|stuck| stuck.jobs).sum()
    }

    /// A whole page. Its title begins with what waits for a person.
    pub(super) fn page(&self, main: &Markup) -> String {
        let is_bad = self.screen.verdict == Verdict::NotServing;
        let title = match self.stuck() {
            0 => self.title.clone(),
            jobs => format!("({jobs}) {}", self.title),
        };
        let body = html! {
            a.skip href="#main" { "Skip to content" }
            div.frame {
                header.side data-part="side" {
                    (brand()) nav aria-label="Main" { @for place in PLACES { (self.entry(*place)) } }
                    div.foot {
                        strong { span.dot.bad[is_bad] {} (if is_bad { "Not serving" } else { "Serving" }) }
                        @if let Some(receiver) = &self.screen.receiver {
                            div { "since " (time(receiver.started_at, self.screen.now)) " · " (shown(&receiver.version)) }
                        }
                        div { "role: " (if self.app.operates() { "operate" } else { "view" }) " · times in " (zone()) }
                        div { (self.logout()) }
                    }
                }
                main #main tabindex="-1" {
                    div #gone role="alert" {}
                    @if self.screen.reload_needed { div.banner.warn data-part="reload" {
                        (icon("note")) span { "The files differ from the configuration in force. Handlers are shown as the files have them. " }
                        a.link href="/change/reload" data-dialog { "Reload…" }
                    } }
                    (main)
                }
            }
            nav.tabbar aria-label="Sections" data-part="tabs" {
                @for place in &PLACES[..TABS] { (self.entry(*place)) }
                (self.entry(("/more", "more", "More")))
            }
        };
        let live = self.is_live.then_some(&self.asked.target);
        whole(&title, live, self.asked.theme.as_deref(), &body)
    }

    /// Ends the session, where this dashboard has made it.
    pub(super) fn logout(&self) -> Markup {
        let is_by_proxy = matches!(self.app.login.way, Way::Configured(Access::Proxy(_)));
        html! { @if !is_by_proxy { form method="post" action="/logout" { button.btn.small.quiet { "Log out" } } } }
    }

    /// The head of a page: its title and what stands beside it.
    pub(super) fn head(&self, beside: impl Render) -> Markup {
        html! { div.head data-part="head" {
            h1 { (self.title) } span.grow {} (beside)
            @if self.is_live { span.live {
                span.dot {} span #following role="status" { "As of" } " "
                span.num.clock { (minute(self.screen.now)) }
            } }
            form.search role="search" action="/find" {
                (icon("search"))
                input #q type="search" name="id" aria-label="Find an event or a job by its id"
                    placeholder="Find an event by its id";
                kbd aria-hidden="true" { "/" }
            }
        } }
    }
}

pub(super) const WITHHELD: &str = "The role view does not see bodies, headers and outputs here.";

/// The section in the place of a payload that the role may not see.
pub(super) fn withheld() -> Markup {
    html! { section.card data-part="payload" { p.pad.muted { (WITHHELD) } } }
}

/// The places that a phone's tab bar has no room for.
pub(super) fn more() -> Markup {
    html! { nav.card aria-label="More" { ul.more {
        @for (to, glyph, word) in &PLACES[TABS..] { li { a href=(to) { (icon(glyph)) (word) } } }
    } } }
}

fn brand() -> Markup {
    html! { a.brand href="/" {
        svg viewBox="0 0 24 24" aria-hidden="true" {
            rect width="24" height="24" rx="6.5" fill="currentColor" {}
            path d="M8 5.5v7.2a4 4 0 0 0 8 0v-2.2M12.9 10.5h6.2" fill="none" stroke-width="2.1"
                stroke-linecap="round" {}
        }
        "Hooklatch"
    } }
}

/// A page without the frame: for a browser without a session, or while no receiver answers. It tries `again` until
/// there is one.
pub(super) fn bare(title: &str, content: impl Render, again: Option<&String>) -> String {
    let body = html! { main.bare #main { (brand()) h1 { (title) } p { (content) } div #gone role="alert" {} } };
    whole(title, again, None, &body)
}

fn whole(title: &str, live: Option<&String>, theme: Option<&str>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" data-theme=[theme] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover";
                meta name="color-scheme" content="light dark";
                title { (title) " · Hooklatch" }
                link rel="icon" href=(ICON.path);
                link rel="stylesheet" href=(STYLE.path);
                script type="module" src=(SCRIPT.path) {}
                // Without a script the page is loaded again.
                @if live.is_some() { noscript { meta http-equiv="refresh" content="15"; } }
            }
            body data-live=[live] { (body) }
        }
    };
    page.into_string()
}
