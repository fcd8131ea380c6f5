//! Small parts of pages: icons, states, times, buttons, lists.
//!
//! Must stay true: every text goes through [`maud`]'s escaping, and what a text would hide is shown ([`shown`]).

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use crate::clock::Clock;
use crate::cmd::output::zoned;
use crate::traffic::RecentTraffic;

use super::assets::ICONS;

pub(super) use super::request::link;
/// A text from outside is [`shown`]: control and formatting characters are escapes.
pub(super) use crate::cmd::output::{escape as shown, size, span, thousands};
pub(super) use crate::exit::{Exit, Failure};
pub(super) use crate::model::{Name, State, Timestamp};
pub(super) use maud::{Markup, Render, html};

/// One of `assets/icons.svg`; each state has its own.
pub(super) fn icon(name: &str) -> Markup {
    html! { svg.icon aria-hidden="true" { use href=(format!("{}#{name}", ICONS.path)) {} } }
}

/// A state's colour and glyph, with a word.
pub(super) fn state(state: State, word: impl Render) -> Markup {
    html! { span class={"st " (state)} { (icon(state.as_str())) span { (word) } } }
}

/// How many jobs are in a state.
pub(super) fn in_state((of, jobs): (&State, &u64)) -> Markup {
    state(*of, format!("{} {of}", thousands(*jobs)))
}

/// A time in the server's zone: without the date if that is today's.
pub(super) fn time(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at) { (clock(at, now)) } }
}

/// A time for a sentence, in the server's zone: without the date if that is today's.
pub(super) fn said(at: Timestamp) -> String {
    clock(at, Clock::system().now())
}

/// Hour and minute.
pub(super) fn minute(at: Timestamp) -> String {
    clock(at, at).chars().take(5).collect()
}

/// The name of the server's zone.
pub(super) fn zone() -> String {
    let zone = TimeZone::system();
    zone.iana_name().unwrap_or("the server's zone").to_owned()
}

fn clock(at: Timestamp, now: Timestamp) -> String {
    match (zoned(at), zoned(now)) {
        (Some(at), Some(now)) if at.date() == now.date() => at.strftime("%H:%M:%S").to_string(),
        (Some(at), _) => at.strftime("%d %b %Y, %H:%M:%S").to_string(),
        (None, _) => at.to_string(),
    }
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
    html! { span.src { span.tile aria-hidden="true" { (&name.as_str()[..1]) } (name) } }
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

/// A link to a change; the script shows its page as a dialog.
pub(super) fn change(to: &str, class: &str, glyph: &str, word: impl Render) -> Markup {
    html! { a class={"btn small " (class)} href=(to) data-dialog { (icon(glyph)) (word) } }
}

/// An item of a list or a timeline: a glyph, a heading, what stands at its right, and what belongs to it.
pub(super) fn item(
    class: &str,
    glyph: &str,
    what: impl Render,
    right: impl Render,
    why: impl Render,
) -> Markup {
    html! {
        li class=(class) {
            (icon(glyph))
            div.line { span.what { (what) } (right) }
            div.why { (why) }
        }
    }
}

/// A card with a heading, and what stands beside that.
pub(super) fn card(id: &str, title: &str, beside: impl Render, content: impl Render) -> Markup {
    html! {
        section.card aria-labelledby=(id) data-part=(id) {
            header { h2 id=(id) { (title) } span.end { (beside) } }
            (content)
        }
    }
}

/// What was counted in a slot of 15 minutes, from the foot of its bar up: good, other, bad.
pub(super) type Bar = (Timestamp, [u64; 3]);

/// A bar for each slot of the last day, the highest as high as the picture. `label` says what they are.
pub(super) fn bars(recent: &RecentTraffic, label: &str, bars: impl Iterator<Item = Bar>) -> Markup {
    let mut slots: BTreeMap<i64, [u64; 3]> = BTreeMap::new();
    for (at, counts) in bars {
        let slot = slots.entry(at.0 / recent.slot_millis as i64).or_default();
        for (sum, count) in slot.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let most = slots.values().map(|counts| counts.iter().sum());
    let most = most.max().unwrap_or(1);
    let last = recent.now.0 / recent.slot_millis as i64;
    let mut paths = ["ok", "warn", "bad"].map(|class| (class, String::new()));
    for (slot, counts) in slots {
        let mut top = 32;
        for ((_, path), count) in paths.iter_mut().zip(counts) {
            let height = (32 * count).div_ceil(most);
            top -= height as i64;
            path.push_str(&format!("M{} {top}h2v{height}h-2z", 3 * (95 - last + slot)));
        }
    }
    html! {
        svg.bars viewBox="0 -2 287 34" preserveAspectRatio="none" role="img" aria-label=(label) {
            @for (class, path) in &paths { path class=(class) d=(path) {} }
        }
    }
}

/// Where there is nothing to show.
pub(super) fn empty(glyph: &str, text: &str) -> Markup {
    html! { div.empty { (icon(glyph)) p { (text) } } }
}

pub(super) fn banner(class: &str, glyph: &str, text: impl Render) -> Markup {
    html! { div class={"banner " (class)} { (icon(glyph)) span { (text) } } }
}

/// Commands that do the same.
pub(super) fn shell<const N: usize>(commands: [String; N]) -> Markup {
    let lines = html! { div.pad { pre.term tabindex="0" aria-label="Commands" {
        @for command in commands { span { (command) } }
    } } };
    card("shell", "The same in a shell", "", lines)
}

/// The choice of a word for a filter.
pub(super) fn choice<T: ToString>(
    name: &str,
    label: &str,
    chosen: Option<&str>,
    words: impl IntoIterator<Item = T>,
) -> Markup {
    html! { select name=(name) aria-label=(label) {
        option value="" { (label) }
        @for word in words.into_iter().map(|word| word.to_string()) {
            option value=(word) selected[chosen == Some(&word)] { (word) }
        }
    } }
}

/// A failure as a sentence, with the command that helps.
pub(super) fn sentence(failure: &Failure) -> String {
    let said = sentence_case(&failure.message);
    match &failure.help {
        Some(help) => format!("{said} {}", shown(help)),
        None => said,
    }
}

/// A text from outside as a sentence.
pub(super) fn sentence_case(text: &str) -> String {
    let text = shown(text);
    let (first, rest) = text.split_at(text.ceil_char_boundary(1));
    format!("{}{rest}.", first.to_uppercase())
}

/// A number and a noun: "1,204 jobs".
pub(super) fn many(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}
