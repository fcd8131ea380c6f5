//! Runs the fuzz targets with the committed inputs: unchanged, cut, and randomly changed.
//!
//! `fuzz/run` searches for new inputs; after a fix, the input that found the error is kept as a file in
//! `fuzz/corpus/TARGET/`. `HOOKLATCH_SHAKES=100000` tries more random changes, without a fuzzer.

#[allow(dead_code, reason = "shared with the simulation, which chooses in more ways")]
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::random::Random;
use crate::targets;

/// The most bytes of all corpora together.
const MOST_BYTES: u64 = 300 * 1024;

/// How many random changes of each input are tried without `HOOKLATCH_SHAKES`.
const SHAKES: u64 = 60;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(corpus().join(target)).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn replay(target: &str) {
    let (_, check) = targets::ALL.iter().find(|(name, _)| *name == target).unwrap();
    let shakes = std::env::var("HOOKLATCH_SHAKES").map_or(SHAKES, |shakes| shakes.parse().unwrap());
    check(b"");
    let inputs = inputs(target);
    assert!(inputs.len() >= 3, "{target} has hardly any corpus");
    for (path, input) in &inputs {
        // The harness shows this only if the test fails: it names the file.
        println!("{}", path.display());
        check(input);
        for cut in 1..=8 {
            check(&input[..input.len() * cut / 9]);
        }
        let mut random = Random::new(input.len() as u64);
        for _ in 0..shakes {
            check(&shaken(input, &inputs, &mut random));
        }
    }
}

/// An input with some bytes changed, removed or inserted, perhaps from another input.
fn shaken(input: &[u8], all: &[(PathBuf, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, [0, b'\n', b'"', b'.', b'9', 0x80, 0xff][random.below(7)]),
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let other = &all[random.below(all.len())].1;
                let (from, to) = (random.below(other.len() + 1), random.below(other.len() + 1));
                bytes.splice(at..at, other[from.min(to)..from.max(to)].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn every_part_of_a_request_is_bounded_before_the_decoder() {
    use targets::sizes::{PARTS, sizes};
    let (_, check) = targets::ALL.iter().find(|(name, _)| *name == "pipeline").unwrap();
    for (number, part) in PARTS.iter().enumerate() {
        for (which, size) in sizes().enumerate() {
            println!("{part:?} {size}");
            for step in [0, 255] {
                check(&[0, number as u8, which as u8, step]);
            }
        }
    }
}

macro_rules! replayed {
    ($($target:ident)+) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })+

        #[test]
        fn every_target_is_replayed_and_the_corpora_are_small() {
            let replayed = BTreeSet::from([$(stringify!($target).to_owned()),+]);
            assert_eq!(targets::ALL.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), replayed);
            let folders = fs::read_dir(corpus()).unwrap();
            let folders = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
            assert_eq!(folders.collect::<BTreeSet<_>>(), replayed, "a corpus of no target");
            let bytes: usize = replayed.iter().flat_map(|name| inputs(name)).map(|(_, i)| i.len()).sum();
            assert!((bytes as u64) < MOST_BYTES, "{bytes} bytes of corpora; {MOST_BYTES} is the limit");
        }
    };
}

replayed! {
    answers captured challenges conditions configuration facts ledger names parameters pipeline provider quantities references
    runner signature since template tokens values
}
