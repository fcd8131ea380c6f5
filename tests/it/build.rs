//! What `Cargo.toml` promises of builds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use toml::Table;

#[test]
fn every_shipped_profile_checks_overflows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest: Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let profiles = manifest["profile"].as_table().unwrap();
    assert_eq!(profiles["release"]["overflow-checks"].as_bool(), Some(true));
    for (name, profile) in profiles {
        let checks =
            profile.get("overflow-checks").is_none_or(|checks| checks.as_bool() == Some(true));
        assert!(checks, "the profile {name} switches them off");
    }
    assert_eq!(profiles["dist"]["inherits"].as_str(), Some("release"));
}

/// Each package that is linked or run in a build, with its features.
fn features(edges: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix=none", "--no-dedupe", "--format={p} {f}"])
        .args(["--edges", edges])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Otherwise `cargo test` would build what `cargo run -- demo` has built, for minutes.
#[test]
fn tests_use_the_dependencies_as_the_program_has_them() {
    let (program, tests) = (features("normal,build"), features("normal,build,dev"));
    let other: Vec<_> = program.difference(&tests).collect();
    assert!(other.is_empty(), "a dev-dependency adds features to {other:?}");
}
