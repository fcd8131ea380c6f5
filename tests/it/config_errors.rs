//! Every folder of `tests/data/config` is a configuration, and its `expected.txt` all that `config
//! check` says of it, so that a worse message is a visible difference. After a wanted change run
//! with `UPDATE_GOLDEN=1` and read the difference.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hooklatch::cmd::config_check;
use hooklatch::config::{self, Environment};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config")
}

fn environment() -> Environment {
    Environment::empty()
        .with("HOME", "/")
        .with("SECRET", "whsec_only-for-tests")
        .with("OTHER_SECRET", "whsec_only-for-tests-too")
        .with("SHARED", "whsec_b25seSBmb3IgdGVzdHM=")
        .with("EMPTY", "\n")
}

/// What `config check` prints of the file, and whether it calls it good.
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

/// What a repository cannot hold.
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
        "secret-too-large" => fs::write(folder.join("secret"), vec![b'x'; 4097]).unwrap(),
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
fn every_message_is_the_expected_one() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut cases: Vec<_> =
        fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    cases.sort();
    assert!(cases.len() > 20, "the cases are not where they are looked for");
    let mut different = Vec::new();
    for case in cases {
        let case = case.to_str().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        copy(&golden().join(case), scratch.path());
        prepare(case, scratch.path());
        let (good, found) = check(&scratch.path().join("hooklatch.toml"), &environment(), false);
        // What the cases write where a secret would stand.
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
fn the_samples_of_the_repository_are_good() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for sample in ["examples/quickstart/hooklatch.toml", "packaging/hooklatch.toml"] {
        let (good, found) = check(&root.join(sample), &environment(), false);
        assert!(good, "{found}");
    }
}

#[test]
fn the_report_for_programs_has_every_problem() {
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
fn a_file_that_permissions_close_is_named_with_the_mend() {
    let scratch = tempfile::tempdir().unwrap();
    let (config, secret) = (scratch.path().join("hooklatch.toml"), scratch.path().join("secret"));
    fs::write(&config, "[sources.a]\nprovider = \"stripe\"\nsecrets = \"file:secret\"\n").unwrap();
    fs::write(&secret, "only-for-tests\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser reads it all the same.
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
    // The current folder of a test is the package's.
    assert!(config::load(Path::new("examples/quickstart/hooklatch.toml")).is_ok());
}

#[test]
fn a_shell_finds_credentials_where_the_units_have_them_from() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hooklatch.toml");
    let text = "[sources.shop]\nprovider = \"github\"\nsecrets = [\"credential:shop\"]\n\
                [handlers.ship]\nsource = \"shop\"\nevents = [\"*\"]\ncommand = [\"/bin/sh\"]\n\
                env = { TOKEN = \"credential:api\" }\n";
    fs::write(&file, text).unwrap();
    let lacks = |secret: &str| {
        let (good, told) = check(&file, &Environment::empty(), false);
        assert_eq!(good, !told.contains("error"), "{told}");
        told.contains(secret)
    };
    assert!(lacks("credential:shop") && lacks("credential:api"));
    // Each process has a folder of its own: what is in the other's is not found.
    for (place, name) in [("secrets", "shop"), ("secrets", "api"), ("runner-secrets", "shop")] {
        fs::create_dir_all(folder.path().join(place)).unwrap();
        fs::write(folder.path().join(place).join(name), "a secret of this test\n").unwrap();
        assert!(lacks("credential:api"), "{place}/{name}");
    }
    assert!(!lacks("credential:shop"));
    fs::write(folder.path().join("runner-secrets/api"), "another\n").unwrap();
    assert!(!lacks("credential:api") && !lacks("error"));
}
