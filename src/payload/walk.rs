//! One pass over a JSON text: hands over the values at given pointers, and skips everything else, so that a
//! body of 25 MiB needs no tree.
//!
//! Must stay true: if two readers could read a text differently, no value is reported. A member that occurs twice
//! is [`Twice`], and a text with something after its JSON does not count as JSON. A skipped number or text
//! is not decoded, so one that fits no type (`1e999`) does not hide the values next to it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::Pointer;

/// A member, or one on the path to it, occurs twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Twice;

/// Walks `json` for numbered pointers, whose step `*` means any element of a list. `found` gets the pointer's number,
/// and a value exactly as written or [`Twice`]. False if the text is not exactly one JSON value: then the values handed
/// over do not count.
pub(crate) fn walk<'p>(
    json: &[u8],
    pointers: impl Iterator<Item = (usize, &'p Pointer)>,
    found: impl FnMut(usize, Result<&str, Twice>),
) -> bool {
    let targets = pointers.map(|(slot, pointer)| (slot, pointer.steps())).collect();
    let mut walk = Walk { rest: json, found };
    walk.value(targets).is_some() && walk.peek().is_none()
}

/// The one value at each pointer as it is written; `Ok(None)` where nothing or null stands. `None` if the text is
/// not exactly one JSON value.
pub(crate) fn written(
    json: &[u8],
    pointers: &[&Pointer],
) -> Option<Vec<Result<Option<String>, Twice>>> {
    let mut values = vec![Ok(None); pointers.len()];
    let is_json = walk(json, pointers.iter().copied().enumerate(), |slot, raw| {
        values[slot] = match (raw, &values[slot]) {
            (Ok("null"), Ok(None)) => Ok(None),
            (Ok(raw), Ok(None)) => Ok(Some(raw.to_owned())),
            // Two elements of a list, for a step `*`, leave open which is meant too.
            _ => Err(Twice),
        };
    });
    is_json.then_some(values)
}

/// Hands over the name and the text of each member that is `wanted`, as written. False if the text is not exactly one
/// JSON object: then the members handed over do not count.
pub(crate) fn members<'j>(
    json: &'j [u8],
    wanted: impl Fn(&str) -> bool,
    mut found: impl FnMut(&str, &'j str),
) -> bool {
    let mut walk = Walk { rest: json, found: () };
    let read = |walk: &mut Walk<'j, ()>| {
        let name = walk.name()?;
        if !wanted(&name) {
            return walk.read::<IgnoredAny>().map(drop);
        }
        found(&name, walk.read::<&RawValue>()?.get());
        Some(())
    };
    walk.peek() == Some(b'{') && walk.items(b'}', read).is_some() && walk.peek().is_none()
}

/// Hands over the elements of a list, each as written, and stops after `most`. False if the text begins with no such
/// list.
pub(crate) fn elements<'j>(json: &'j [u8], most: usize, mut found: impl FnMut(&'j str)) -> bool {
    let mut walk = Walk { rest: json, found: () };
    let mut left = most;
    let read = |walk: &mut Walk<'j, ()>| {
        left = left.checked_sub(1)?;
        found(walk.read::<&RawValue>()?.get());
        Some(())
    };
    walk.peek() == Some(b'[') && (walk.items(b']', read).is_some() || left == 0)
}

/// A pointer's number, and its remaining steps.
type Target<'p> = (usize, &'p [String]);

struct Walk<'j, F> {
    /// The unread rest of the text.
    rest: &'j [u8],
    found: F,
}

impl<'j, F: FnMut(usize, Result<&str, Twice>)> Walk<'j, F> {
    /// Reads a value for the targets that end at it or are in it. `None` if it is not JSON.
    fn value(&mut self, targets: Vec<Target<'_>>) -> Option<()> {
        let (here, inside): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|(_, steps)| steps.is_empty());
        if !here.is_empty() {
            let begin = self.rest;
            let raw: &RawValue = self.read()?;
            for (slot, _) in here {
                (self.found)(slot, Ok(raw.get()));
            }
            if inside.is_empty() {
                return Some(());
            }
            // Another pointer goes on into this value: it is read a second time.
            self.rest = begin;
        }
        let is_index = |step: &str| step == "*" || step.bytes().all(|byte| byte.is_ascii_digit());
        match self.peek() {
            Some(b'{') if !inside.is_empty() => self.object(&inside),
            Some(b'[') if !through(&inside, is_index).is_empty() => self.array(&inside),
            _ => self.read::<IgnoredAny>().map(drop),
        }
    }

    fn object(&mut self, targets: &[Target<'_>]) -> Option<()> {
        let mut seen: Vec<usize> = Vec::new();
        self.items(b'}', |walk| {
            let name = walk.name()?;
            let mut targets = through(targets, |step| step == name);
            targets.retain(|(slot, _)| {
                let is_new = !seen.contains(slot);
                if is_new {
                    seen.push(*slot);
                } else {
                    (walk.found)(*slot, Err(Twice));
                }
                is_new
            });
            walk.value(targets)
        })
    }

    fn array<'p>(&mut self, targets: &[Target<'p>]) -> Option<()> {
        // Read once: a list of a million elements must not cost a comparison of texts for each.
        let own = |(slot, steps): &Target<'p>| {
            let (first, rest) = steps.split_first()?;
            let index = match first.as_str() {
                "*" => None,
                text => Some(text.parse().ok().filter(|index: &usize| index.to_string() == text)?),
            };
            Some((index, (*slot, rest)))
        };
        let own: Vec<(Option<usize>, Target<'p>)> = targets.iter().filter_map(own).collect();
        let mut at = 0_usize;
        self.items(b']', |walk| {
            let here = own.iter().filter(|(index, _)| index.is_none_or(|index| index == at));
            let here: Vec<Target<'p>> = here.map(|(_, target)| *target).collect();
            at += 1;
            match here.is_empty() {
                true => walk.read::<IgnoredAny>().map(drop),
                false => walk.value(here),
            }
        })
    }
}

impl<'j, F> Walk<'j, F> {
    /// Reads an opening bracket, items between commas, and `close`.
    fn items(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.rest = self.rest.get(1..)?;
        if self.take(close) {
            return Some(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return self.take(close).then_some(());
            }
        }
    }

    /// Reads a member's name, and the colon behind it.
    fn name(&mut self) -> Option<String> {
        let name = self.read()?;
        self.take(b':').then_some(name)
    }

    /// Reads a value as serde_json does.
    fn read<T: Deserialize<'j>>(&mut self) -> Option<T> {
        let mut reader = serde_json::Deserializer::from_slice(self.rest).into_iter();
        let value = reader.next()?.ok()?;
        self.rest = &self.rest[reader.byte_offset()..];
        Some(value)
    }

    /// Reads `byte`, if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.rest = &self.rest[usize::from(is_next)..];
        is_next
    }

    /// The next byte that is not white space of JSON.
    fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }
}

/// The targets whose next step fits, without that step.
fn through<'p>(targets: &[Target<'p>], fits: impl Fn(&str) -> bool) -> Vec<Target<'p>> {
    let next = |(slot, steps): &Target<'p>| {
        let (_, rest) = steps.split_first().filter(|(first, _)| fits(first))?;
        Some((*slot, rest))
    };
    targets.iter().filter_map(next).collect()
}
