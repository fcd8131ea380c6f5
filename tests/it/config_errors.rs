//! Every folder of `tests/data/config` has a configuration and, in `expected.txt`, the whole output of
//! `config check` for it, so that every changed message shows in a diff. After a deliberate change run
//! with `UPDATE_GOLDEN=1` and read the diff.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hooklatch::cmd::config_check;
use hooklatch::config::{self, Environment};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config")
}

fn environment() -> Environment {
    Environment::default()
        .with("HOME", "/")
        .with("SECRET", "whsec_only-for-tests")
        .with("OTHER_SECRET", "whsec_only-for-tests-too")
        .with("SHARED", "whsec_b25seSBmb3IgdGVzdHM=")
        .with("EMPTY", "\n")
        .with("SPACED", " whsec_only-for-tests\n\n")
        .with("LONG", "0123456789012345678901234567890123456789")
        .with("LONG_TOO", "0123456789012345678901234567890123456789")
}

/// Whether `config check` accepts the file, and what it prints.
fn check(file: &Path, environment: &Environment, json: bool) -> (bool, String) {
    let mut out = Vec::new();
    let good = config_check::run(file, environment, json, &mut out).unwrap();
    (good, String::from_utf8(out).unwrap())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Makes the files of a case that a repository cannot contain.
fn prepare(case: &str, folder: &Path) {
    match case {
        "file-not-utf8" => {
            fs::create_dir(folder.join("conf.d")).unwrap();
            fs::write(folder.join("conf.d/latin.toml"), b"# one\n# caf\xe9\n").unwrap();
        }
        "file-too-large" => {
            fs::create_dir(folder.join("conf.d")).unwrap();
            fs::write(folder.join("conf.d/large.toml"), vec![b'#'; 1024 * 1024 + 1]).unwrap();
        }
        "too-many-files" => {
            fs::create_dir(folder.join("conf.d")).unwrap();
            for nth in 0..=1000 {
                fs::write(folder.join(format!("conf.d/{nth}.toml")), "# nothing\n").unwrap();
            }
        }
        "secret-too-large" => fs::write(folder.join("secret"), vec![b'x'; 32 * 1024 + 1]).unwrap(),
        "secret-permissions" => {
            for (file, mode) in [("all", 0o644), ("writable", 0o620), ("own", 0o600)] {
                let path = folder.join(file);
                fs::write(&path, "only-for-tests\n").unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        _ => {}
    }
}

#[test]
fn every_case_has_the_expected_output() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut cases: Vec<_> =
        fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    cases.sort();
    assert!(cases.len() > 20, "the cases were not found");
    let mut different = Vec::new();
    for case in cases {
        let case = case.to_str().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        copy(&golden().join(case), scratch.path());
        prepare(case, scratch.path());
        let (good, found) = check(&scratch.path().join("hooklatch.toml"), &environment(), false);
        // The cases have these texts as secrets.
        for secret in ["only-for-tests", "c2VjcmV0"] {
            assert!(!found.contains(secret), "{case} shows a secret: {found}");
        }
        let found = found.replace(scratch.path().to_str().unwrap(), "DIR");
        let expected = golden().join(case).join("expected.txt");
        if update {
            fs::write(&expected, &found).unwrap();
        }
        let wanted = fs::read_to_string(&expected).unwrap_or_default();
        if found != wanted {
            different.push(format!("== {case}\n-- expected\n{wanted}-- found\n{found}"));
        }
        assert_eq!(good, case.starts_with("good-") || case == "secret-permissions", "{case}");
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn the_sample_configurations_pass_the_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for sample in ["examples/quickstart/hooklatch.toml", "packaging/hooklatch.toml"] {
        let (good, found) = check(&root.join(sample), &environment(), false);
        assert!(good, "{found}");
    }
}

#[test]
fn the_json_report_has_every_problem() {
    let case = golden().join("unknown-keys/hooklatch.toml");
    let (good, report) = check(&case, &environment(), true);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(!good);
    assert_eq!(report["ok"], false);
    assert_eq!(report["sources"], serde_json::Value::Null);
    let first = &report["errors"][0];
    assert_eq!(
        (&first["line"], &first["key"], &first["help"]),
        (&1.into(), &"servers".into(), &"did you mean 'server'?".into())
    );
}

#[test]
fn an_unreadable_file_is_reported_with_the_fix() {
    let scratch = tempfile::tempdir().unwrap();
    let (config, secret) = (scratch.path().join("hooklatch.toml"), scratch.path().join("secret"));
    fs::write(&config, "[sources.a]\nprovider = \"stripe\"\nsecrets = \"file:secret\"\n").unwrap();
    fs::write(&secret, "only-for-tests\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    // Root can read every file, so the test proves nothing then.
    if fs::File::open(&secret).is_ok() {
        return;
    }
    let (good, found) = check(&config, &environment(), false);
    assert!(!good);
    assert!(found.contains("secret: permission denied"), "{found}");
    assert!(found.contains("readable by the user that hooklatch runs as"), "{found}");
}

#[test]
fn a_relative_configuration_path_needs_no_folder() {
    // The current folder of a test is that of the package.
    assert!(config::load(Path::new("examples/quickstart/hooklatch.toml")).is_ok());
}

#[test]
fn outside_a_unit_credentials_are_read_from_the_folders_that_units_load() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hooklatch.toml");
    let text = "[sources.shop]\nprovider = \"github\"\nsecrets = [\"credential:shop\"]\n\
                [handlers.ship]\nsource = \"shop\"\nevents = [\"*\"]\ncommand = [\"/bin/sh\"]\n\
                env = { TOKEN = \"credential:api\" }\n";
    fs::write(&file, text).unwrap();
    let lacks = |secret: &str| {
        let (good, report) = check(&file, &Environment::default(), false);
        assert_eq!(good, !report.contains("error"), "{report}");
        report.contains(secret)
    };
    assert!(lacks("credential:shop") && lacks("credential:api"));
    // Each process has a separate folder, and does not find files in the other's.
    for (place, name) in [("secrets", "shop"), ("secrets", "api"), ("runner-secrets", "shop")] {
        fs::create_dir_all(folder.path().join(place)).unwrap();
        fs::write(folder.path().join(place).join(name), "a secret of this test\n").unwrap();
        assert!(lacks("credential:api"), "{place}/{name}");
    }
    assert!(!lacks("credential:shop"));
    fs::write(folder.path().join("runner-secrets/api"), "another\n").unwrap();
    assert!(!lacks("credential:api") && !lacks("error"));
}
