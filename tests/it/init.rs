//! `init`: the files that it writes, the steps that it prints, and the files that it must not touch. Also
//! `config show`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hooklatch::provider::Scheme;
use serde_json::Value;

use crate::listing::is_root;
use crate::operator::text;
use crate::support::Site;

fn hooklatch(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
    command.current_dir(folder).env_remove("HOOKLATCH_CONFIG").args(args);
    command.output().unwrap()
}

fn init(folder: &Path, args: &[&str]) -> Value {
    let output = hooklatch(folder, &[&["init", "--dir", ".", "--json"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every file under `folder`, with its contents.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_source_with_a_generated_secret_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let report = init(here, &["--source", "github"]);
    let secret = fs::read_to_string(here.join("secrets/github")).unwrap();
    assert_eq!(secret.trim().len(), 64);
    assert_eq!(mode(&here.join("secrets/github")), 0o600);
    assert_eq!(mode(&here.join("secrets")), 0o700);
    let stanza = fs::read_to_string(here.join("conf.d/github.toml")).unwrap();
    assert!(stanza.contains("\non_redelivery = \"replay-dead\"\n"), "{stanza}");
    assert!(report["secret"].is_null(), "the secret is shown without --show-secret: {report}");
    assert_eq!(report["url"], "https://YOUR-HOST/hooks/github");
    assert_eq!(report["fields"][0]["name"], "Payload URL");
    let nginx = report["proxy"]["nginx"].as_str().unwrap();
    assert!(nginx.contains("client_max_body_size 25m;"), "{nginx}");
    let checked = hooklatch(here, &["config", "check", "--config", "hooklatch.toml"]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));

    let shown = hooklatch(
        here,
        &["init", "--dir", ".", "--source", "ci", "--provider", "github", "--show-secret"],
    );
    let second = fs::read_to_string(here.join("secrets/ci")).unwrap();
    assert!(text(&shown.stdout).contains(second.trim()), "{}", text(&shown.stdout));
    assert_ne!(secret, second);
}

#[test]
fn a_source_whose_provider_generates_the_secret_has_an_empty_secret_file() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let url = ["--public-url", "https://hooks.example.org", "--path", "/pay"];
    let report =
        init(here, &[&["--source", "shop", "--provider", "stripe"], url.as_slice()].concat());
    assert_eq!(report["url"], "https://hooks.example.org/pay");
    assert!(report["secret_from"].as_str().unwrap().contains("whsec_"), "{report}");
    assert_eq!(fs::read(here.join("secrets/shop")).unwrap(), b"");
    assert_eq!(mode(&here.join("secrets/shop")), 0o600);
    let check = || hooklatch(here, &["config", "check", "--config", "hooklatch.toml"]);
    let empty = check();
    assert_eq!(empty.status.code(), Some(0));
    assert!(text(&empty.stdout).contains("the secret is empty"), "{}", text(&empty.stdout));
    fs::write(here.join("secrets/shop"), "whsec_test\n").unwrap();
    assert!(check().status.success());
}

#[test]
fn no_secret_is_made_where_the_provider_has_a_public_key() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let said = hooklatch(here, &["init", "--dir", ".", "--source", "discord"]);
    let said = text(&said.stdout);
    assert_eq!(fs::read(here.join("secrets/discord")).unwrap(), b"");
    assert!(
        said.contains("put the public key into secrets/discord; it is at\nthe app's"),
        "{said}"
    );
    assert!(!said.contains("hooklatch send"), "{said}");
    let url = ["--public-url", "https://hooks.example.org"];
    init(here, &[&["--source", "google-pubsub"], url.as_slice()].concat());
    let stanza = fs::read_to_string(here.join("conf.d/google-pubsub.toml")).unwrap();
    assert!(
        stanza.contains(
            "\n# the email in the tokens meant for you: fill it in\nsender = \"FILL-IN\"\n"
        ),
        "{stanza}"
    );
}

#[test]
fn a_verify_token_is_made_unless_the_provider_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let report = init(here, &["--source", "meta"]);
    let file = here.join("secrets/meta.verify");
    assert_eq!((fs::read(&file).unwrap().len(), mode(&file)), (33, 0o600));
    let stanza = fs::read_to_string(here.join("conf.d/meta.toml")).unwrap();
    assert!(stanza.contains("\nverify_token = \"file:secrets/meta.verify\"\n"), "{stanza}");
    let line = format!("the line in {}", "secrets/meta.verify");
    assert!(report["fields"][1]["value"].as_str().unwrap().ends_with(&line), "{report}");

    init(here, &["--source", "fastly-logging"]);
    assert_eq!(fs::read(here.join("secrets/fastly-logging.verify")).unwrap(), b"");
    let check = hooklatch(here, &["config", "check", "--config", "hooklatch.toml"]);
    assert!(text(&check.stdout).contains("challenges are refused"), "{}", text(&check.stdout));

    let report = init(here, &["--source", "asana"]);
    assert!(!here.join("secrets/asana").exists(), "`register` makes it");
    assert!(report["next"].to_string().contains("hooklatch register asana"), "{report}");
}

#[test]
fn built_in_and_custom_providers_can_be_set_up() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir(here.join("providers")).unwrap();
    let own = "name = \"ferry\"\n[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\n\
               signed = \"{body}\"\n[secret]\nencoding = \"base64\"\nprefix = \"fs_\"\n[event]\nid = \"json:/id\"\n";
    fs::write(here.join("providers/ferry.toml"), own).unwrap();
    let certificates = |name: &&str| *name == "certificate";
    for provider in Scheme::embedded_names().filter(|name| !certificates(name)).chain(["ferry"]) {
        init(here, &["--source", provider, "--public-url", "https://hooks.example.org"]);
        let secret = here.join("secrets").join(provider);
        // Only the provider has the other half of a public key: its file stays empty.
        let public =
            Scheme::embedded(provider).is_some_and(|scheme| scheme.proof().has_public_key());
        if !public && secret.exists() && fs::read(&secret).unwrap().is_empty() {
            let text = match provider {
                "adyen" | "adyen-platform" => "00ff17".to_owned(),
                "airtable" | "teams-outgoing" => "AAECAwQF".to_owned(),
                _ => "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".to_owned(),
            };
            fs::write(&secret, text).unwrap();
        }
    }
    assert!(fs::read_to_string(here.join("secrets/ferry")).unwrap().starts_with("fs_"));
    let checked = hooklatch(here, &["config", "check", "--config", "hooklatch.toml"]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

#[test]
fn a_source_with_client_certificates_needs_a_trusted_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let said =
        hooklatch(here, &["init", "--dir", ".", "--source", "till", "--provider", "certificate"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let said = text(&said.stdout);
    assert!(said.contains("https://YOUR-HOST/hooks/till"), "{said}");
    assert!(said.contains("server.trusted_proxies") && said.contains("conf.d/till.toml"), "{said}");
    assert!(!said.contains("hooklatch send") && !here.join("secrets").exists(), "{said}");
    let check = || hooklatch(here, &["config", "check", "--config", "hooklatch.toml"]);
    assert!(check().status.success());

    let stanza = here.join("conf.d/till.toml");
    let written = fs::read_to_string(&stanza).unwrap();
    assert!(!written.contains("allow_unsigned"), "{written}");
    // Without the comment signs it is complete except for the proxy.
    let is_toml = |line: &&str| line.starts_with('[') || line.contains(" = ");
    let lines = written.lines().map(|line| line.trim_start_matches("# ")).filter(is_toml);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("forward")).collect();
    fs::write(&stanza, lines.join("\n").replace("/usr/local/bin/on-till", "/bin/true")).unwrap();
    let lacking = check();
    assert!(
        text(&lacking.stdout).contains("add server.trusted_proxies"),
        "{}",
        text(&lacking.stdout)
    );
    let main = here.join("hooklatch.toml");
    let proxied = fs::read_to_string(&main).unwrap();
    let proxied = proxied.replace("[server]\n", "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    fs::write(&main, proxied).unwrap();
    let checked = check();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

#[test]
fn existing_files_are_not_changed_and_a_failure_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    init(here, &["--source", "github"]);
    fs::write(here.join("secrets/shop"), "mine").unwrap();
    let before = files(here);
    let refused = |args: &[&str], code: i32, wanted: &str| {
        let output = hooklatch(here, &[&["init", "--dir", "."], args].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
        assert!(output.stdout.is_empty());
        assert!(files(here) == before, "{args:?} changed files");
    };
    refused(&["--source", "github"], 65, "source github");
    refused(&["--source", "shop", "--provider", "stripe"], 65, "secrets/shop is there already");
    refused(&["--source", "ci"], 2, "--provider");
    refused(&["--source", "ci", "--provider", "githup"], 2, "github");
    // The loader refuses a path that is in use, and a text that is not a path.
    refused(
        &["--source", "ci", "--provider", "github", "--path", "/hooks/github"],
        78,
        "/hooks/github",
    );
    refused(&["--source", "ci", "--provider", "github", "--path", "\"\n[x]"], 78, "does not start");
    refused(
        &["--source", "ci", "--provider", "github", "--public-url", "ftp://x"],
        78,
        "does not start with https://",
    );
    for url in ["https://name:only-for-tests@h.example", "https://h.example/x?a=1"] {
        let args = ["--source", "ci", "--provider", "square", "--public-url", url];
        refused(&args, 2, "must not contain a user name");
    }
    fs::write(here.join("conf.d/broken.toml"), "= 1").unwrap();
    let broken = hooklatch(here, &["init", "--dir", ".", "--source", "stripe"]);
    assert_eq!(broken.status.code(), Some(78));
    assert!(!here.join("secrets/stripe").exists());
}

#[test]
fn a_secret_made_by_root_belongs_to_the_owner_of_the_store() {
    use std::os::unix::fs::{MetadataExt, chown};
    if !is_root() {
        return;
    }
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    chown(here, Some(NOBODY), Some(NOBODY)).unwrap();
    init(here, &["--source", "github"]);
    let owner = |name: &str| fs::metadata(here.join(name)).unwrap().uid();
    assert_eq!(
        [owner("secrets"), owner("secrets/github"), owner("hooklatch.toml")],
        [NOBODY, NOBODY, 0]
    );
}

/// The store's owner keeps replacing the new secret with a link to a file of root's.
#[test]
fn root_gives_ownership_only_of_files_that_it_made() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};
    const NOBODY: u32 = 65534;
    if !is_root() {
        return;
    }
    let (folder, roots) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (here, target) = (folder.path(), roots.path().join("shadow"));
    fs::write(&target, crate::support::SECRET).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    chown(here, Some(NOBODY), Some(NOBODY)).unwrap();
    init(here, &["--source", "github"]);
    let (link, done) = (here.join("secrets/link"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                let secret = here.join(format!("secrets/s{round}"));
                while fs::symlink_metadata(&secret).is_err() {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
                symlink(&target, &link).unwrap();
                fs::rename(&link, &secret).unwrap();
            }
        });
        for round in 0..5 {
            let (source, path) = (format!("s{round}"), format!("/{round}"));
            let args = ["--source", &source, "--provider", "github", "--path", &path];
            hooklatch(here, &[&["init", "--dir", "."], args.as_slice()].concat());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::metadata(&target).unwrap().uid(), 0);

    // An existing folder keeps its owner, and a link to a folder is not followed.
    let (folder, others) = (tempfile::tempdir().unwrap(), roots.path().join("others"));
    let here = folder.path();
    fs::create_dir(&others).unwrap();
    chown(here, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::create_dir(here.join("secrets")).unwrap();
    init(here, &["--source", "github"]);
    let owner = |name: &str| fs::metadata(here.join(name)).unwrap().uid();
    assert_eq!([owner("secrets"), owner("secrets/github")], [0, 0]);
    let folder = tempfile::tempdir().unwrap();
    symlink(&others, folder.path().join("secrets")).unwrap();
    let refused = hooklatch(folder.path(), &["init", "--dir", ".", "--source", "github"]);
    assert!(!refused.status.success());
    assert_eq!(fs::read_dir(&others).unwrap().count(), 0);
}

#[test]
fn config_show_prints_the_effective_configuration_without_secrets() {
    let site = Site::with(
        "[limits]\nbatch_count = 7\n",
        "[handlers.quiet]\nsource = \"github\"\nevents = [\"push\"]\ncommand = [\"/bin/true\"]\n\
         env = { DATABASE_URL = \"postgres://app:hidden@db\", TZ = \"UTC\", LC_ALL = \"C\", DB = \"file:secret\" }\n\
         [handlers.app]\nsource = \"github\"\nevents = [\"*\"]\nforward = \"http://127.0.0.1:9/x?token=hidden\"\n",
    );
    let shown = site.json(&["config", "show"]);
    let limit = |key: &str| {
        let limits = shown["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["key"] == key).unwrap().clone()
    };
    let batch = limit("limits.batch_count");
    assert_eq!((batch["value"].as_str(), batch["default"].as_str()), (Some("7"), Some("512")));
    assert_eq!((batch["least"].as_str(), batch["most"].as_str()), (Some("1"), Some("10000")));
    assert_eq!(limit("storage.keep_ids")["value"], "90d");
    assert_eq!(shown["sources"][0]["secrets"][0]["reference"], "file:secret");
    assert_eq!(shown["handlers"][1]["max_attempts"], 5);
    let table = text(&site.run(&["config", "show"]).stdout);
    for wanted in [
        "server.listen",
        "limits.batch_count",
        "/github",
        "file:secret ***",
        "TZ=UTC",
        "LC_ALL=C",
        "DATABASE_URL=***",
        "http://127.0.0.1:9/x?…",
    ] {
        assert!(table.contains(wanted), "no {wanted}: {table}");
    }
    for all in [table, shown.to_string()] {
        assert!(!all.contains(crate::support::SECRET) && !all.contains("hidden"), "{all}");
    }
}
