//! The parts that pages are made of: the frame, icons, states, times, numbers.
//!
//! Must stay true: every text goes through [`maud`]'s escaping, and what a text would hide is shown ([`shown`]).

use jiff::tz::TimeZone;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::clock::Clock;
use crate::cmd::output::{escape, span, thousands};
use crate::exit::Failure;
use crate::model::{Name, State, Timestamp};
use crate::store::EventRow;

use super::assets::{ICON, ICONS, SCRIPT, STYLE};
use super::request::link;

/// A text from outside: control and formatting characters are escapes.
pub(super) fn shown(text: &str) -> String {
    escape(text)
}

/// One of `assets/icons.svg`.
pub(super) fn icon(name: &str) -> Markup {
    html! { svg.icon aria-hidden="true" { use href=(format!("{}#{name}", ICONS.path)) {} } }
}

/// A glyph, a colour, and a word or what stands in its place.
pub(super) fn state(state: State, word: &str) -> Markup {
    let (class, glyph) = look(state);
    html! { span class=(format!("st {class}")) { (icon(glyph)) span { (word) } } }
}

/// The class and the glyph of a state.
pub(super) fn look(state: State) -> (&'static str, &'static str) {
    match state {
        State::Ready => ("ready", "ready"),
        State::Running => ("run", "run"),
        State::Waiting => ("wait", "wait"),
        State::Held => ("held", "held"),
        State::Succeeded => ("ok", "ok"),
        State::Dead => ("dead", "dead"),
        State::Dropped => ("dropped", "dropped"),
    }
}

/// A time in the server's zone: of the day alone where that is today's.
pub(super) fn time(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at) { (clock(at, now)) } }
}

/// The same in a sentence.
pub(super) fn said(at: Timestamp) -> String {
    clock(at, Clock::system().now())
}

/// The minute of the day: a page that nothing has changed stays the same for so long.
fn minute(at: Timestamp) -> String {
    clock(at, at).chars().take(5).collect()
}

fn clock(at: Timestamp, now: Timestamp) -> String {
    let zone = TimeZone::system();
    let zoned = |time: Timestamp| {
        jiff::Timestamp::from_millisecond(time.0).map(|instant| instant.to_zoned(zone.clone()))
    };
    match (zoned(at), zoned(now)) {
        (Ok(at), Ok(now)) if at.date() == now.date() => at.strftime("%H:%M:%S").to_string(),
        (Ok(at), _) => at.strftime("%d %b %Y, %H:%M:%S").to_string(),
        (Err(_), _) => at.to_string(),
    }
}

/// The name of the server's zone.
pub(super) fn zone() -> String {
    TimeZone::system().iana_name().unwrap_or("the server's zone").to_owned()
}

/// How long ago, so coarse that it changes once a minute.
pub(super) fn age(at: Timestamp, now: Timestamp) -> String {
    match now.since(at) {
        length if length.as_secs() < 60 => "under a minute".to_owned(),
        length if length.as_secs() < 120 => "1 min".to_owned(),
        length => span(length),
    }
}

/// A source's tile and name.
pub(super) fn source(name: &Name) -> Markup {
    let first: String = name.as_str().chars().take(1).collect();
    html! { span.src { span.tile aria-hidden="true" { (first) } (name) } }
}

/// The address of an event's page.
pub(super) fn event_link(source: &Name, id: &str) -> String {
    link("/event", [("source", source.as_str()), ("id", id)])
}

/// An id with its middle left out.
pub(super) fn short(id: &str) -> String {
    match id.is_ascii() && id.len() > 18 {
        true => format!("{}…{}", shown(&id[..9]), shown(&id[id.len() - 4..])),
        false => shown(id),
    }
}

/// What is unusual about an event.
pub(super) fn notes(event: &EventRow) -> String {
    shown(&crate::cmd::events::notes(event))
}

/// A link that looks like a button.
pub(super) fn button(to: &str, class: &str, glyph: &str, word: &str) -> Markup {
    html! { a class=(format!("btn {class}")) href=(to) { (icon(glyph)) (word) } }
}

/// A link to a change: the script shows its page as a dialog.
pub(super) fn change(to: &str, class: &str, glyph: &str, word: &str) -> Markup {
    html! { a class=(format!("btn small {class}")) href=(to) data-dialog { (icon(glyph)) (word) } }
}

/// Where there is nothing to show.
pub(super) fn empty(glyph: &str, text: &str) -> Markup {
    html! { div.empty { (icon(glyph)) p { (text) } } }
}

pub(super) fn banner(class: &str, glyph: &str, text: &Markup) -> Markup {
    html! { div class=(format!("banner {class}")) { (icon(glyph)) span { (text) } } }
}

/// Commands that do the same.
pub(super) fn shell(commands: &[String]) -> Markup {
    html! {
        section.card aria-labelledby="shell" {
            header { h2 #shell { "The same in a shell" } }
            div.pad { pre.term tabindex="0" aria-label="Commands" {
                @for command in commands { span { (command) } }
            } }
        }
    }
}

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

/// Places of the tab bar on a phone; the last has links to the others.
const TABS: usize = 4;

/// What the frame says on every page.
pub(super) struct Frame {
    /// Jobs that wait for a person, sources that refuse, deliveries in quarantine.
    pub(super) inbox: u64,
    pub(super) refusing: u64,
    pub(super) kept: u64,
    /// "Serving", or what is wrong.
    pub(super) verdict: Result<&'static str, &'static str>,
    pub(super) facts: Vec<Markup>,
    pub(super) now: Timestamp,
    /// Where the visitor is in the navigation.
    pub(super) place: &'static str,
    pub(super) title: String,
    /// The address whose changes the page follows; none for a form.
    pub(super) live: Option<String>,
    pub(super) theme: Option<&'static str>,
}

impl Frame {
    fn count(&self, place: &str) -> Markup {
        let (number, class) = match place {
            "/inbox" => (self.inbox, "count warn"),
            "/sources" => (self.refusing, "count bad"),
            "/quarantine" => (self.kept, "count"),
            _ => (0, ""),
        };
        html! { @if number > 0 { span class=(class) { (thousands(number)) } } }
    }

    fn entry(&self, (to, glyph, word): (&str, &str, &str)) -> Markup {
        let current = (to == self.place).then_some("page");
        html! { a href=(to) aria-current=[current] { (icon(glyph)) (word) (self.count(to)) } }
    }

    /// A whole page.
    pub(super) fn page(&self, main: &Markup) -> String {
        let badge = if self.inbox > 0 { format!("({}) ", self.inbox) } else { String::new() };
        let (dot, verdict) = match self.verdict {
            Ok(good) => ("dot", good),
            Err(bad) => ("dot bad", bad),
        };
        let body = html! {
            a.skip href="#main" { "Skip to content" }
            div.frame {
                header.side data-part="side" {
                    (brand())
                    nav aria-label="Main" { @for place in PLACES { (self.entry(*place)) } }
                    div.foot {
                        strong { span class=(dot) {} (verdict) }
                        @for fact in &self.facts { div { (fact) } }
                    }
                }
                main #main tabindex="-1" {
                    div #gone role="alert" {}
                    (main)
                }
            }
            nav.tabbar aria-label="Sections" data-part="tabs" {
                @for place in &PLACES[..TABS] { (self.entry(*place)) }
                a href="/more" aria-current=[(self.place == "/more").then_some("page")] { (icon("more")) "More" }
            }
        };
        whole(&format!("{badge}{}", self.title), self.live.as_deref(), self.theme, &body)
    }

    /// The head of a page's content: its heading and what stands beside it.
    pub(super) fn head(&self, beside: &Markup) -> Markup {
        html! {
            div.head data-part="head" {
                h1 { (self.title) }
                span.grow {}
                (beside)
                (self.following())
                (search())
            }
        }
    }

    /// Whether the page follows what happens.
    pub(super) fn following(&self) -> Markup {
        html! {
            @if self.live.is_some() {
                span.live { span.dot {} span #following role="status" { "As of" } " " span.num.clock { (minute(self.now)) } }
            }
        }
    }
}

/// The places that a phone's tab bar has no room for.
pub(super) fn more() -> Markup {
    html! {
        nav.card aria-label="More" { ul.more {
            @for (to, glyph, word) in &PLACES[TABS..] {
                li { a href=(to) { (icon(glyph)) (word) } }
            }
        } }
    }
}

fn search() -> Markup {
    html! {
        form.search role="search" action="/events" {
            (icon("search"))
            label.hide for="q" { "Find an event or a job by its id" }
            input #q type="search" name="id" placeholder="Find an event by its id";
            kbd aria-hidden="true" { "/" }
        }
    }
}

fn brand() -> Markup {
    html! {
        a.brand href="/" {
            svg viewBox="0 0 24 24" aria-hidden="true" {
                rect width="24" height="24" rx="6.5" fill="currentColor" {}
                path d="M8 5.5v7.2a4 4 0 0 0 8 0v-2.2M12.9 10.5h6.2" fill="none" stroke-width="2.1" stroke-linecap="round" {}
            }
            "Hooklatch"
        }
    }
}

/// A page without the frame, for those who have no session.
pub(super) fn bare(title: &str, text: &str) -> String {
    let body = html! {
        main.bare #main { (brand()) h1 { (title) } p { (text) } p { a.link href="/" { "To the overview" } } }
    };
    whole(title, None, None, &body)
}

/// A page without the frame that tries again until there is one with it.
pub(super) fn alone(title: &str, text: &str, again: &str) -> String {
    let body = html! {
        main.bare #main { (brand()) h1 { (title) } p { (text) } div #gone role="alert" {} }
    };
    whole(title, Some(again), None, &body)
}

fn whole(title: &str, live: Option<&str>, theme: Option<&str>, body: &Markup) -> String {
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
                @if live.is_some() { (PreEscaped(REFRESH)) }
            }
            body data-live=[live] { (body) }
        }
    };
    page.into_string()
}

/// Without a script the page is loaded again.
const REFRESH: &str = "<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>";

/// A failure as a sentence, with the command that helps.
pub(super) fn sentence(failure: &Failure) -> String {
    let message = shown(&failure.message);
    let help = failure.help.as_ref().map(|help| format!(" {}", shown(help)));
    format!("{}.{}", sentence_case(&message), help.unwrap_or_default())
}

/// A number and a noun: "1,204 jobs".
pub(super) fn many(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

/// The text as the beginning of a sentence.
pub(super) fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}
