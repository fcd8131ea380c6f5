//! `hooklatch providers test`: checks a provider file and runs its vectors.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::ProvidersTest;
use crate::config;
use crate::document::{Problem, Problems};
use crate::exit::{Exit, Failure};
use crate::limits::{CONFIG_BYTES, VECTORS_BYTES};
use crate::provider::Scheme;
use crate::verify::vectors::{self, Expect, Vector};

use super::super::config_check::{as_json, lines};
use super::super::input;
use super::super::output::{self, count, escape, good_or_bad, thousands};

/// Prints the file's mistakes, or what is wrong with its vectors.
pub(super) fn run(args: &ProvidersTest) -> Result<Exit, Failure> {
    let file = args.file.display().to_string();
    let (problems, warnings) = (Problems::new(), Problems::new());
    let text = input::text(&args.file, CONFIG_BYTES)?;
    let scheme = config::provider_file(&file, &text, &problems, &warnings);
    let (problems, warnings) = (problems.into_sorted(), warnings.into_sorted());
    let found = match &scheme {
        Some(scheme) => judge(scheme, &vectors_of(args, scheme)?),
        None => Found::default(),
    };
    output::either(&args.format, &found.json(&file, &problems, &warnings), || {
        lines(&warnings, &problems, &mut anstream::stdout().lock())?;
        match &scheme {
            Some(_) => found.print(&file),
            None => output::line(format!("{file}: {}", count(problems.len() as u64, "error"))),
        }
    })?;
    Ok(if scheme.is_some() { Exit::answer(found.is_good()) } else { Exit::Config })
}

/// The provider's own vectors in the file that the command line or the provider file names.
fn vectors_of(args: &ProvidersTest, scheme: &Scheme) -> Result<Vec<Vector>, Failure> {
    let named = |name: &str| args.file.parent().unwrap_or(Path::new("")).join(name);
    let path = args.vectors.clone().or_else(|| scheme.setup().vectors.as_deref().map(named));
    let path: PathBuf = path.ok_or_else(|| {
        let message = format!("{} names no vectors", args.file.display());
        Exit::Usage.failure(message).help("give --vectors FILE, or add vectors = \"FILE\" to it")
    })?;
    let wrong = |why| Exit::WrongState.failure(format!("{}: {why}", path.display()));
    let mut all = vectors::read(&input::text(&path, VECTORS_BYTES)?).map_err(wrong)?;
    all.retain(|vector| vector.provider == scheme.name());
    Ok(all)
}

/// What the vectors have shown.
#[derive(Default)]
struct Found {
    accepted: u64,
    refused: u64,
    changed: u64,
    /// Names of vectors, with what is wrong.
    wrong: Vec<(String, String)>,
}

fn judge(scheme: &Scheme, vectors: &[Vector]) -> Found {
    let mut found = Found::default();
    for vector in vectors {
        match vector.expect {
            Expect::Accept => found.accepted += 1,
            Expect::Reject => found.refused += 1,
        }
        if let Some(wrong) = vector.wrong(scheme) {
            found.wrong.push((vector.name.clone(), wrong));
        } else if vector.expect == Expect::Accept && vector.kind != "handshake" {
            let mutations = vector.mutations(scheme);
            found.changed += mutations.tried as u64;
            let accepted = |change| (vector.name.clone(), format!("still accepted: {change}"));
            found.wrong.extend(mutations.accepted.into_iter().map(accepted));
        }
    }
    found
}

impl Found {
    /// Vectors that accept nothing prove nothing.
    fn is_good(&self) -> bool {
        self.wrong.is_empty() && self.accepted > 0
    }

    fn json(&self, file: &str, problems: &[Problem], warnings: &[Problem]) -> Value {
        let list = |all: &[Problem]| all.iter().map(as_json).collect::<Vec<_>>();
        let wrong = self.wrong.iter().map(|(name, wrong)| json!({ "name": name, "wrong": wrong }));
        json!({
            "file": file,
            "ok": problems.is_empty() && self.is_good(),
            "errors": list(problems),
            "warnings": list(warnings),
            "to_accept": self.accepted,
            "to_refuse": self.refused,
            "changed": self.changed,
            "wrong": wrong.collect::<Vec<_>>(),
        })
    }

    fn print(&self, file: &str) -> Result<(), Failure> {
        for (name, wrong) in &self.wrong {
            output::line(format!("{}: {}", escape(name), escape(wrong)))?;
        }
        let verdict = match (self.is_good(), self.accepted) {
            (true, _) => "all as expected".to_owned(),
            (false, 0) => "no vector is to be accepted, so nothing is proven".to_owned(),
            (false, _) => format!("{} wrong", thousands(self.wrong.len() as u64)),
        };
        let style = good_or_bad(self.is_good()).on_default();
        output::line(format!(
            "{file}: {} to accept, {} to refuse, {} changed requests: {style}{verdict}{style:#}",
            self.accepted,
            self.refused,
            thousands(self.changed),
        ))?;
        Ok(())
    }
}
