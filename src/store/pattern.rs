//! Patterns: the words that payloads of one source and type have in common, so that each is stored as what is
//! its own. Half to two thirds of what a payload takes otherwise, and less work for the compressor.
//!
//! A pattern is learned from the first payloads of its type and never changes. What must stay true: a payload
//! refers only to a pattern whose own commit came before; and of the events' words a pattern has only those that
//! several have in common, since it outlives them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use zstd::zstd_safe::zstd_sys::{ZDICT_finalizeDictionary, ZDICT_params_t};
use zstd::zstd_safe::{CDict, DDict, get_frame_content_size};

use crate::model::{Digest, Headers, Name, Timestamp};
use crate::verify::Verified;

use super::queue::Lane;
use super::{Store, codec, lock};

/// Payloads whose common words make a pattern. Of two events nearly all words are the customer's; what eight in a
/// row have is the provider's, or says little.
const SAMPLES: usize = 8;

/// Sizes of payloads that are learned from. Shorter ones have nothing to gain; of longer ones the rest is their
/// own.
const SAMPLE_BYTES: std::ops::RangeInclusive<usize> = 512..=12 * 1024;

/// Types that are learned at once, the oldest given up for the next: samples are kept in memory, some 5 MiB at
/// most.
const LEARNING_COUNT: usize = PATTERNS_COUNT;

/// Patterns of one store. A prepared one takes some 100 KiB of memory once it is used.
const PATTERNS_COUNT: usize = 64;

/// With a pattern level 3 takes the time of level 1, and a tenth less space.
const LEVEL: i32 = 3;

/// What zstd writes before the words of a dictionary, at most.
const STATISTICS_BYTES: usize = 256;

/// One pattern.
pub(super) struct Pattern {
    pub(super) row: i64,
    words: Vec<u8>,
    encoder: OnceLock<Option<CDict<'static>>>,
    decoder: OnceLock<Option<DDict<'static>>>,
}

/// The patterns of a store, and what is being learned.
#[derive(Default)]
pub(super) struct Patterns {
    known: RwLock<Known>,
    learning: Mutex<VecDeque<Learning>>,
}

#[derive(Default)]
struct Known {
    by_type: HashMap<Name, HashMap<String, Arc<Pattern>>>,
    by_row: HashMap<i64, Arc<Pattern>>,
}

struct Learning {
    source: Name,
    event_type: String,
    /// Each with the digest of its body.
    samples: Vec<(Digest, Vec<u8>)>,
}

impl Patterns {
    /// Reads those of a file that was just opened.
    pub(super) fn load(&self, conn: &Connection) -> rusqlite::Result<()> {
        let mut select = conn.prepare("SELECT row, source, type, words FROM pattern")?;
        let found = select.query_map([], |row| {
            Ok((row.get(0)?, codec::text(row, 1)?, row.get(2)?, unpacked(row, 3)?))
        })?;
        for pattern in found {
            let (row, source, event_type, words) = pattern?;
            self.add(source, event_type, Pattern::new(row, words));
        }
        Ok(())
    }

    fn add(&self, source: Name, event_type: String, pattern: Pattern) {
        let mut known = self.known.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let pattern = Arc::new(pattern);
        known.by_row.insert(pattern.row, Arc::clone(&pattern));
        known.by_type.entry(source).or_default().insert(event_type, pattern);
    }

    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The pattern of a type.
    pub(super) fn of(&self, source: &Name, event_type: &str) -> Option<Arc<Pattern>> {
        self.known().by_type.get(source)?.get(event_type).cloned()
    }

    /// The pattern that a payload refers to.
    pub(super) fn at(&self, row: i64) -> Option<Arc<Pattern>> {
        self.known().by_row.get(&row).cloned()
    }

    /// Takes a sample of a type without a pattern. The samples where there are enough now, no two with the same
    /// body: what is common to copies of one event is that event.
    fn sample(&self, source: &Name, delivery: &Verified) -> Option<Vec<Vec<u8>>> {
        let (event_type, body) = (delivery.event_type().as_str(), delivery.body());
        if self.known().by_row.len() >= PATTERNS_COUNT {
            return None;
        }
        let headers = delivery.headers().to_wire();
        let bytes = headers.len() + body.len();
        if !SAMPLE_BYTES.contains(&bytes) {
            return None;
        }
        let mut learning = lock(&self.learning);
        let is_it = |one: &Learning| one.source == *source && one.event_type == event_type;
        let at = learning.iter().position(is_it).unwrap_or_else(|| {
            if learning.len() >= LEARNING_COUNT {
                learning.pop_front();
            }
            let (source, event_type) = (source.clone(), event_type.to_owned());
            learning.push_back(Learning { source, event_type, samples: Vec::new() });
            learning.len() - 1
        });
        let (samples, digest) = (&mut learning[at].samples, delivery.digest());
        if samples.iter().all(|(known, _)| *known != digest) {
            samples.push((digest, [&headers[..], body].concat()));
        }
        if samples.len() < SAMPLES {
            return None;
        }
        let learned = learning.remove(at)?;
        Some(learned.samples.into_iter().map(|(_, sample)| sample).collect())
    }
}

impl Pattern {
    fn new(row: i64, words: Vec<u8>) -> Self {
        Pattern { row, words, encoder: OnceLock::new(), decoder: OnceLock::new() }
    }

    /// Headers and body in one frame.
    pub(super) fn compress(&self, headers: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
        let whole = [headers, body].concat();
        let encoder = self.encoder.get_or_init(|| CDict::try_create(&self.words, LEVEL));
        let encoder = encoder.as_ref().ok_or_else(unprepared)?;
        codec::compressed(whole.len(), |compressor, frame| {
            compressor.compress_using_cdict(frame, &whole, encoder)
        })
    }

    /// The headers and the body of `bytes` bytes behind them.
    pub(super) fn decompress(&self, frame: &[u8], bytes: usize) -> io::Result<(Headers, Vec<u8>)> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let size = get_frame_content_size(frame).ok().flatten();
        let size = size.and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| wrong("the stored payload does not say its size"))?;
        let most = bytes.saturating_add(HEADERS_BYTES);
        if size < bytes || size > most {
            return Err(wrong("the stored payload is not as long as its event says"));
        }
        let decoder = self.decoder.get_or_init(|| DDict::try_create(&self.words));
        let decoder = decoder.as_ref().ok_or_else(unprepared)?;
        let mut whole = codec::decompressed(size, |decompressor, whole| {
            decompressor.decompress_using_ddict(whole, frame, decoder)
        })?;
        let body = whole.split_off(size - bytes);
        Ok((Headers::from_wire(&whole), body))
    }
}

/// Most headers of a payload in bytes: twice what may be kept of them at most, which counts no line ends.
const HEADERS_BYTES: usize = 512 * 1024;

/// zstd has refused a dictionary, for lack of memory.
fn unprepared() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}

impl Store {
    /// Learns from an event that was just accepted, where its type has no pattern. Nothing depends on it.
    pub(super) fn learn(&self, source: &Name, delivery: &Verified) {
        let Some(samples) = self.inner.patterns.sample(source, delivery) else { return };
        let event_type = delivery.event_type().as_str().to_owned();
        let (store, source) = (self.clone(), source.clone());
        tokio::spawn(async move {
            let made = tokio::task::spawn_blocking(move || {
                let words = dictionary(common(&samples), &samples)?;
                zstd::bulk::compress(&words, zstd::DEFAULT_COMPRESSION_LEVEL)
            });
            let Ok(Ok(stored)) = made.await else { return };
            let now = store.inner.clock.now();
            let (of, named) = (source.clone(), event_type.clone());
            let insert = move |tx: &Connection| insert(tx, &of, &named, &stored, now);
            if let Ok((row, words)) = store.submit(Lane::Verb, insert).await {
                store.inner.patterns.add(source, event_type, Pattern::new(row, words));
            }
        });
    }
}

/// Returns the pattern as it is stored: where a commit that was called lost has one, that.
fn insert(
    tx: &Connection,
    source: &Name,
    event_type: &str,
    words: &[u8],
    now: Timestamp,
) -> rusqlite::Result<(i64, Vec<u8>)> {
    tx.prepare_cached(
        "INSERT INTO pattern (source, type, made_at, words) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (source, type) DO NOTHING",
    )?
    .execute(params![source.as_str(), event_type, now.0, words])?;
    // By the unique (source, type).
    tx.prepare_cached("SELECT row, words FROM pattern WHERE source = ?1 AND type = ?2")?
        .query_row(params![source.as_str(), event_type], |row| Ok((row.get(0)?, unpacked(row, 1)?)))
}

fn unpacked(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<u8>> {
    let words = row.get_ref(column)?.as_blob()?;
    zstd::stream::decode_all(words).map_err(|error| codec::unreadable(column, Type::Blob, error))
}

/// The words of the first sample that all others have too, and what stands between them, in their order.
fn common(samples: &[Vec<u8>]) -> Vec<u8> {
    let Some((first, others)) = samples.split_first() else { return Vec::new() };
    let others: Vec<HashSet<&[u8]>> = others.iter().map(|other| words(other).collect()).collect();
    let has_all = |word: &&[u8]| others.iter().all(|other| other.contains(word));
    let words = words(first).filter(has_all).flatten().copied();
    // What begins with zstd's own mark would be read as a dictionary of its own making.
    std::iter::once(b'\n').chain(words).collect()
}

/// The words as a dictionary of zstd's own form (RFC 8878, section 5), which says how often each byte and each
/// length came in the samples: else every payload is counted anew, and brings its counts with it. The words alone
/// where the samples take no less with that.
fn dictionary(words: Vec<u8>, samples: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let bytes = |pattern: Pattern| -> io::Result<usize> {
        samples.iter().map(|sample| Ok(pattern.compress(b"", sample)?.len())).sum()
    };
    let whole = with_statistics(&words, samples);
    if whole.is_empty() {
        return Ok(words);
    }
    let [with, without] = [&whole, &words].map(|words| bytes(Pattern::new(0, words.clone())));
    Ok(if with? < without? { whole } else { words })
}

/// The words behind what zstd finds in the samples; nothing where it cannot.
#[allow(unsafe_code)]
fn with_statistics(words: &[u8], samples: &[Vec<u8>]) -> Vec<u8> {
    // No piece may be longer than zstd's window, for which it takes the words' length and half a KiB, and 1 KiB at
    // least; it leaves out what is.
    let pieces = samples.iter().flat_map(|sample| sample.chunks(words.len().max(1024)));
    let sizes: Vec<usize> = pieces.map(<[u8]>::len).collect();
    let count = u32::try_from(sizes.len()).unwrap_or(0);
    let (all, mut made) = (samples.concat(), vec![0; STATISTICS_BYTES + words.len()]);
    // The number stands in each frame, and a small one takes a byte.
    let how = ZDICT_params_t { compressionLevel: LEVEL, notificationLevel: 0, dictID: 1 };
    let (to, room) = (made.as_mut_ptr().cast(), made.len());
    let (from, length) = (words.as_ptr().cast(), words.len());
    let (text, sizes) = (all.as_ptr().cast(), sizes.as_ptr());
    // SAFETY: every pointer is to as much as is said with it, and `sizes` has the lengths of the pieces of `all`.
    let bytes =
        unsafe { ZDICT_finalizeDictionary(to, room, from, length, text, sizes, count, how) };
    // An error is a number larger than any length.
    made.truncate(if bytes > made.len() { 0 } else { bytes });
    made
}

/// Runs of letters, digits and underscores, and every other byte by itself.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
    text.chunk_by(move |a, b| in_word(a) && in_word(b))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sha2::{Digest as _, Sha256};

    /// The mark of a dictionary that zstd has made (RFC 8878, section 6).
    const MARK: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];

    #[test]
    fn words_are_never_taken_for_a_dictionary_of_zstd_s_own_making() {
        let sample = [&MARK[..], b" what every payload says, ", &[b'x'; 600]].concat();
        let pattern = Pattern::new(1, common(&vec![sample; SAMPLES]));
        let frame = pattern.compress(b"", b"what every payload says").unwrap();
        let (_, body) = pattern.decompress(&frame, 23).unwrap();
        assert_eq!(body, b"what every payload says");
    }

    /// Of a usual form: words that each has, and numbers of its own.
    fn sample(number: u64) -> Vec<u8> {
        let own = |n: u64| (number * 1000 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let member =
            |n: u64| format!(r#""member_{n}":{},"charge_{n}":"{:x}","#, own(n), own(n + 1));
        (0..20).map(member).collect::<String>().into_bytes()
    }

    #[test]
    fn with_statistics_a_payload_takes_less_and_comes_back() {
        let samples: Vec<_> = (0..SAMPLES as u64).map(sample).collect();
        let (words, payload) = (common(&samples), sample(77));
        let whole = dictionary(words.clone(), &samples).unwrap();
        assert!(whole.starts_with(&MARK) && whole.ends_with(&words));
        let [plain, pattern] = [words, whole].map(|words| Pattern::new(1, words));
        let frame = pattern.compress(b"A: b\r\n", &payload).unwrap();
        let without = plain.compress(b"A: b\r\n", &payload).unwrap();
        assert!(frame.len() + 20 < without.len(), "{} and {}", frame.len(), without.len());
        let (headers, body) = pattern.decompress(&frame, payload.len()).unwrap();
        assert_eq!((headers.to_wire().as_slice(), &body), (&b"A: b\r\n"[..], &payload));
        assert!(plain.decompress(&frame, payload.len()).is_err(), "of another dictionary");
    }

    #[test]
    fn where_statistics_are_of_no_use_there_are_none() {
        let noise = |number: u8| -> Vec<u8> {
            let block = |n: u8| Sha256::digest([number, n]);
            (0..60).flat_map(block).collect()
        };
        let samples: Vec<_> = (0..SAMPLES as u8).map(noise).collect();
        let words = common(&samples);
        assert_eq!(dictionary(words.clone(), &samples).unwrap(), words);
        assert_eq!(dictionary(words.clone(), &[]).unwrap(), words);
    }
}
