//! Readers of JSON text that build no tree: by pointer (`walk`, `written`), the members of an object, the elements of a
//! list.
//!
//! What is on a pointer's path is scanned once for each step, and the rest once. Must stay true: if a member on the path
//! occurs twice, so that two readers could read the text differently, `walk` and `written` say [`Twice`]; `members` hands
//! over each, and its caller compares them. A text with something after its JSON does not count as JSON. A skipped number
//! or text is not decoded, so one that fits no type (`1e999`) does not hide the values next to it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::{fmt, mem};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Pointer;

/// More than one value could be meant: a member, or one on the path to it, occurs twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Twice;

/// Calls `found` with the slot of a pointer, and each value at it as it is written, or [`Twice`]. In a list the step `*`
/// means every element. False if the text is not exactly one JSON value: then the values handed over do not count.
pub(crate) fn walk<'p>(
    json: &[u8],
    pointers: impl Iterator<Item = (usize, &'p Pointer)>,
    mut found: impl FnMut(usize, Result<&str, Twice>),
) -> bool {
    let targets: Vec<Target<'_>> =
        pointers.map(|(slot, pointer)| (slot, pointer.steps())).collect();
    let plain = plain(json);
    // The values of `plain` are at the same places in `json`.
    let mut is_text = true;
    let mut found = |slot, raw: Result<&str, Twice>| match raw {
        Ok(raw) => {
            let at = raw.as_ptr().addr() - plain.as_ptr().addr();
            let own = json.get(at..at + raw.len()).and_then(|own| std::str::from_utf8(own).ok());
            is_text &= own.is_some();
            own.into_iter().for_each(|own| found(slot, Ok(own)));
        }
        Err(Twice) => found(slot, Err(Twice)),
    };
    let is_json = match targets.iter().any(|(_, steps)| steps.is_empty()) {
        true => serde_json::from_slice::<&RawValue>(&plain)
            .is_ok_and(|raw| value(raw.get(), &targets, &mut found)),
        false => inside(&plain, &targets, &mut found),
    };
    is_json && is_text
}

/// The text with a DEL for each byte that is not UTF-8, so that one in a place that no pointer names hides nothing.
fn plain(json: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(json).is_ok() {
        return Cow::Borrowed(json);
    }
    let mut plain = Vec::with_capacity(json.len());
    for chunk in json.utf8_chunks() {
        plain.extend_from_slice(chunk.valid().as_bytes());
        plain.extend(chunk.invalid().iter().map(|_| b'\x7f'));
    }
    Cow::Owned(plain)
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

/// Hands over the decoded name of each member that is `wanted`, and its value as written. False if the text is not exactly one
/// JSON object: then the members handed over do not count.
pub(crate) fn members<'j>(
    json: &'j [u8],
    wanted: impl Fn(&str) -> bool,
    mut found: impl FnMut(&str, &'j str),
) -> bool {
    let own = |step: Step<'_>| match step {
        Step::Name(name) if wanted(name) => Some(name.to_owned()),
        _ => None,
    };
    begins_with(b'{', json)
        && items(json, own, |name, raw| {
            found(&name, raw);
            true
        })
}

/// Hands over the elements of a list, each as written. True if the text is exactly one list, or once `most`, which is at
/// least 1, are handed over: the rest is not read. After false the elements do not count.
pub(crate) fn elements<'j>(json: &'j [u8], most: usize, mut found: impl FnMut(&'j str)) -> bool {
    let mut left = most;
    let take = |(), raw| {
        found(raw);
        left = left.saturating_sub(1);
        left > 0
    };
    begins_with(b'[', json) && (items(json, |_| Some(()), take) || left == 0)
}

/// A pointer's slot, and its remaining steps.
type Target<'p> = (usize, &'p [String]);

/// Finds what the targets name in the text of one value. False if it is not JSON.
fn value(
    raw: &str,
    targets: &[Target<'_>],
    found: &mut impl FnMut(usize, Result<&str, Twice>),
) -> bool {
    let (here, deeper): (Vec<_>, Vec<_>) =
        targets.iter().copied().partition(|(_, steps)| steps.is_empty());
    here.into_iter().for_each(|(slot, _)| found(slot, Ok(raw)));
    deeper.is_empty() || inside(raw.as_bytes(), &deeper, found)
}

/// Finds what the targets name inside an object or a list; each target has a step left at least. False if the text is not
/// exactly one JSON value.
fn inside(
    json: &[u8],
    targets: &[Target<'_>],
    found: &mut impl FnMut(usize, Result<&str, Twice>),
) -> bool {
    if !begins_with(b'{', json) && !begins_with(b'[', json) {
        return serde_json::from_slice::<IgnoredAny>(json).is_ok();
    }
    // Grouped: an item is compared once with each different step, and not with each target.
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for (slot, steps) in targets {
        if let Some((step, rest)) = steps.split_first() {
            groups.entry(step).or_default().targets.push((*slot, rest));
        }
    }
    if begins_with(b'[', json) {
        return in_list(json, groups, found);
    }
    let (names, mut groups): (Vec<&str>, Vec<Group<'_>>) = groups.into_iter().unzip();
    let wanted = |step: Step<'_>| match step {
        // Mostly few, and of different lengths: faster than a search that compares texts.
        Step::Name(name) => names.iter().position(|own| *own == name),
        Step::Index(_) => None,
    };
    items(json, wanted, |at, raw| {
        let group = &mut groups[at];
        if mem::replace(&mut group.is_seen, true) {
            group.targets.iter().for_each(|(slot, _)| found(*slot, Err(Twice)));
            return true;
        }
        value(raw, &group.targets, found)
    })
}

/// The targets that have the same next step.
#[derive(Default)]
struct Group<'p> {
    targets: Vec<Target<'p>>,
    /// Whether an object had a member of this name already.
    is_seen: bool,
}

/// Finds what the targets name in a list. A step that is neither an index nor `*` names nothing.
fn in_list(
    json: &[u8],
    groups: BTreeMap<&str, Group<'_>>,
    found: &mut impl FnMut(usize, Result<&str, Twice>),
) -> bool {
    let range = |step: &str| match step {
        "*" => Some(0..=usize::MAX),
        text => text.parse().ok().filter(|at: &usize| at.to_string() == text).map(|at| at..=at),
    };
    let own: Vec<(RangeInclusive<usize>, Group<'_>)> =
        groups.into_iter().filter_map(|(step, group)| Some((range(step)?, group))).collect();
    // The largest index that is wanted.
    let last = own.iter().map(|(range, _)| *range.end()).max();
    let wanted = |step: Step<'_>| match step {
        Step::Index(at) if last.is_some_and(|last| at <= last) => Some(at),
        _ => None,
    };
    items(json, wanted, |at, raw| {
        let mut named = own.iter().filter(|(range, _)| range.contains(&at));
        named.all(|(_, group)| value(raw, &group.targets, found))
    })
}

/// What an item of an object or a list is called.
#[derive(Clone, Copy)]
enum Step<'n> {
    Name(&'n str),
    Index(usize),
}

/// Reads an object or a list. Each item for whose step `wanted` returns something is given to `item` with that, as it is
/// written; the others are skipped. False if `item` returned false, which ends the reading, or if the text is not exactly
/// one object or one list.
fn items<'j, T>(
    json: &'j [u8],
    wanted: impl FnMut(Step<'_>) -> Option<T>,
    item: impl FnMut(T, &'j str) -> bool,
) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let items = Items { wanted, item };
    reader.deserialize_any(items).is_ok() && reader.end().is_ok()
}

struct Items<W, I> {
    wanted: W,
    item: I,
}

impl<'j, T, W, I> Visitor<'j> for Items<W, I>
where
    W: FnMut(Step<'_>) -> Option<T>,
    I: FnMut(T, &'j str) -> bool,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'j>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(wanted) = map.next_key_seed(Named(&mut self.wanted))? {
            match wanted {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(wanted) => {
                    let raw: &RawValue = map.next_value()?;
                    go_on((self.item)(wanted, raw.get()))?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'j>>(mut self, mut list: A) -> Result<(), A::Error> {
        for at in 0.. {
            let is_item = match (self.wanted)(Step::Index(at)) {
                None => list.next_element::<IgnoredAny>()?.is_some(),
                Some(wanted) => {
                    let raw = list.next_element::<&RawValue>()?;
                    raw.map(|raw| go_on((self.item)(wanted, raw.get()))).transpose()?.is_some()
                }
            };
            if !is_item {
                break;
            }
        }
        Ok(())
    }
}

/// Fails where the reading is to end.
fn go_on<E: Error>(goes_on: bool) -> Result<(), E> {
    if goes_on { Ok(()) } else { Err(E::custom("stopped")) }
}

/// Passes a member's decoded name on without a copy of it.
struct Named<W>(W);

impl<'j, T, W: FnMut(Step<'_>) -> Option<T>> DeserializeSeed<'j> for Named<W> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'j>>(self, name: D) -> Result<Option<T>, D::Error> {
        name.deserialize_str(self)
    }
}

impl<T, W: FnMut(Step<'_>) -> Option<T>> Visitor<'_> for Named<W> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E: Error>(mut self, name: &str) -> Result<Option<T>, E> {
        Ok((self.0)(Step::Name(name)))
    }
}

/// Whether this is the first byte behind white space of JSON.
fn begins_with(byte: u8, json: &[u8]) -> bool {
    json.iter().find(|first| !b" \n\r\t".contains(first)) == Some(&byte)
}
