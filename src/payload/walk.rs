//! One pass over a JSON text: hands over the values at given pointers, and skips everything else, so that a
//! body of 25 MiB needs no tree.
//!
//! Must stay true: if two readers could read a text differently, no value is reported. A member that occurs twice
//! is [`Sink::twice`], and a text with something after its JSON does not count as JSON.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Pointer;

/// Takes what a walk finds; `slot` is the pointer's place among those that were asked for.
pub(crate) trait Sink {
    /// A value, exactly as written. A pointer with a step `*` may have several.
    fn value(&mut self, slot: usize, raw: &str);
    /// The member, or one on the path to it, occurs twice.
    fn twice(&mut self, slot: usize);
}

/// Walks `json` for `pointers`, whose step `*` means any element of a list. False if the text is not exactly one
/// JSON value; what was found until then means nothing.
pub(crate) fn walk<'p>(
    json: &[u8],
    pointers: impl IntoIterator<Item = &'p Pointer>,
    sink: &mut impl Sink,
) -> bool {
    let target = |(slot, pointer): (usize, &'p Pointer)| Target { slot, steps: pointer.steps() };
    let targets = pointers.into_iter().enumerate().map(target).collect();
    let mut reader = serde_json::Deserializer::from_slice(json);
    Walk { targets, sink }.deserialize(&mut reader).is_ok() && reader.end().is_ok()
}

/// The remaining steps of a pointer.
#[derive(Clone, Copy)]
struct Target<'p> {
    slot: usize,
    steps: &'p [String],
}

/// Reads one JSON value for the targets that are in it or end at it.
struct Walk<'p, 's, S> {
    targets: Vec<Target<'p>>,
    sink: &'s mut S,
}

impl<'p, S> Walk<'p, '_, S> {
    /// The targets whose next step fits, with that step removed.
    fn through(&self, fits: impl Fn(&str) -> bool) -> Vec<Target<'p>> {
        let take = |target: &Target<'p>| match target.steps {
            [first, rest @ ..] if fits(first) => Some(Target { slot: target.slot, steps: rest }),
            _ => None,
        };
        self.targets.iter().filter_map(take).collect()
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for Walk<'_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.targets.iter().all(|target| !target.steps.is_empty()) {
            return reader.deserialize_any(self);
        }
        // At least one pointer ends here. If another continues into this value, its text is parsed
        // a second time.
        let raw: &RawValue = serde::Deserialize::deserialize(reader)?;
        let (here, deeper): (Vec<_>, Vec<_>) =
            self.targets.into_iter().partition(|target| target.steps.is_empty());
        for target in here {
            self.sink.value(target.slot, raw.get());
        }
        if !deeper.is_empty() {
            let mut reader = serde_json::Deserializer::from_str(raw.get());
            Walk { targets: deeper, sink: self.sink }
                .deserialize(&mut reader)
                .map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}

impl<'de, S: Sink> Visitor<'de> for Walk<'_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: Vec<usize> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let targets = self.through(|step| step == name);
            let repeated: Vec<usize> = targets
                .iter()
                .map(|target| target.slot)
                .filter(|slot| seen.contains(slot))
                .collect();
            if targets.is_empty() || !repeated.is_empty() {
                repeated.into_iter().for_each(|slot| self.sink.twice(slot));
                map.next_value::<IgnoredAny>()?;
            } else {
                seen.extend(targets.iter().map(|target| target.slot));
                map.next_value_seed(Walk { targets, sink: &mut *self.sink })?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let is_index = |step: &str| step == "*" || step.bytes().all(|byte| byte.is_ascii_digit());
        if self.through(is_index).is_empty() {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        for index in 0usize.. {
            let number = index.to_string();
            let targets = self.through(|step| step == "*" || step == number);
            let more = if targets.is_empty() {
                seq.next_element::<IgnoredAny>()?.is_some()
            } else {
                seq.next_element_seed(Walk { targets, sink: &mut *self.sink })?.is_some()
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
