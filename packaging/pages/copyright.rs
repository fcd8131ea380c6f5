//! Generates the package's `copyright` file: the product's licence, and the licence of each library in the
//! binary with its text, from cargo's metadata and the libraries' files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// One linked library.
struct Library {
    name: String,
    licence: String,
    folder: PathBuf,
}

/// Code that libraries include from other projects, which cargo does not know.
const EMBEDDED: &str = "\
libsqlite3-sys has SQLite in it, which is in the public domain; zstd-sys has Zstandard, under the
BSD-3-Clause licence that stands below.
";

/// The whole text of the file; `ours` is the product's licence.
pub(crate) fn text(ours: &str) -> io::Result<String> {
    let libraries = linked()?;
    let mut text = format!(
        "Hooklatch\n\n{ours}\n\nThe binary is linked with these libraries. Where there is a choice of licences, it is\n\
         used under MIT where that is one of them.\n\n{EMBEDDED}\n"
    );
    let mut said: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for library in &libraries {
        text.push_str(&format!("  {}: {}\n", library.name, library.licence));
        for licence in texts(library)? {
            said.entry(licence).or_default().insert(&library.name);
        }
    }
    for (licence, names) in said {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        text.push_str(&format!("\n{}\n{names}:\n\n{licence}\n", "-".repeat(79)));
    }
    Ok(text)
}

/// Every package that is linked into the binary: without build dependencies, macros and test dependencies.
fn linked() -> io::Result<Vec<Library>> {
    let metadata = metadata()?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let needs: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node["deps"].clone()))
        .collect();
    let is_macro = |id: &String| {
        let targets = packages.get(id).map(|package| list(&package["targets"])).unwrap_or_default();
        targets.iter().any(|target| list(&target["kind"]).contains(&"proc-macro".into()))
    };
    let mut found = BTreeSet::new();
    let mut open = vec![text(&metadata["resolve"]["root"])];
    while let Some(id) = open.pop() {
        for needed in needs.get(&id).map(list).unwrap_or_default() {
            let runs = list(&needed["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let id = text(&needed["pkg"]);
            if runs && !is_macro(&id) && found.insert(id.clone()) {
                open.push(id);
            }
        }
    }
    let library = |id: &String| {
        let package = packages.get(id)?;
        Some(Library {
            name: format!("{} {}", text(&package["name"]), text(&package["version"])),
            licence: text(&package["license"]),
            folder: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
        })
    };
    Ok(found.iter().filter_map(library).collect())
}

fn metadata() -> io::Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("cargo metadata: {said}")));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The licence texts of a library; if there is a choice, that of the MIT licence.
fn texts(library: &Library) -> io::Result<Vec<String>> {
    let mut files: Vec<(String, PathBuf)> = fs::read_dir(&library.folder)?
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_file())
        .map(|entry| (entry.file_name().to_string_lossy().to_uppercase(), entry.path()))
        .filter(|(name, _)| {
            ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|word| name.starts_with(word))
        })
        .collect();
    files.sort();
    let mit = |(name, _): &(String, PathBuf)| name.contains("MIT");
    if !library.licence.contains("AND") && files.iter().any(mit) {
        files.retain(mit);
    }
    let text = |(_, path)| Ok(by_reference(fs::read_to_string(path)?.trim()));
    files.into_iter().map(text).collect()
}

/// Replaces the Apache licence by a reference: every Debian machine has it, and the policy wants a reference.
fn by_reference(text: &str) -> String {
    match text.contains("TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION") {
        true => "Apache License, Version 2.0: /usr/share/common-licenses/Apache-2.0".to_owned(),
        false => text.to_owned(),
    }
}
