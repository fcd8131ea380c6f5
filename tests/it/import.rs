//! `import adnanh`, beside the program that it imports from (Debian's package `webhook`).

mod oracle;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha1::Sha1;
use sha2::Sha512;

use crate::operator::{fails, text};
use crate::recorded::recorded;
use crate::support::{Site, hex, hmac as hmac_sha256, needs};

const JSON: &str = include_str!("import/hooks.json");
const YAML: &str = include_str!("import/hooks.yaml");

/// The hooks that cannot come along.
const LEFT_OUT: &str = "open open-main address scalr either-proof not-signed never letters other-secrets decoded \
    address-argument";

/// Hook, body, and whether it fires. A body of another kind than JSON, headers and queries are in [`request`].
#[rustfmt::skip]
const ASKED: &[(&str, &str, bool)] = &[
    ("deploy", r#"{"ref":"refs/heads/main","head_commit":{"id":"3f1c2a9d0b7e4c5a8f6d1e2b3c4a5f6e7d8c9b0a"},"pusher":{"name":"ann"}}"#, true),
    ("deploy", r#"{"ref":"refs/heads/next"}"#, false),
    ("deploy ping", r#"{"ref":"refs/heads/main"}"#, false),
    ("deploy forged", r#"{"ref":"refs/heads/main"}"#, false),
    ("hub-sha1", r#"{"a":1}"#, true),
    ("hub-sha1 forged", r#"{"a":2}"#, false),
    ("sha512", r#"{"a":1}"#, true),
    ("sha512 forged", r#"{"a":2}"#, false),
    ("gitea", r#"{"pusher":{"login":"ann"}}"#, true),
    ("gitea", r#"{"pusher":{"login":"robot"}}"#, false),
    ("gitea", r#"{"pusher":{}}"#, false),
    ("gitea ping", r#"{"pusher":{"login":"bob"}}"#, false),
    ("gitea forged", r#"{"pusher":{"login":"cid"}}"#, false),
    ("gitlab", r#"{"object_kind":"push"}"#, true),
    ("gitlab", r#"{"object_kind":"push"}"#, true),
    ("gitlab", r#"{"object_kind":"tag"}"#, false),
    ("gitlab forged", r#"{"object_kind":"push"}"#, false),
    ("caller", "{}", true),
    ("caller forged", "{}", false),
    ("caller bare", "{}", false),
    ("button GET", "", true),
    ("button", "{}", true),
    ("button ping", "{}", false),
    ("button forged", "{}", false),
    ("tags", r#"{"ref":"refs/tags/v1"}"#, true),
    ("tags", r#"{"ref":"refs/heads/v1"}"#, false),
    ("tags", r#"{"r":"refs/tags/v1"}"#, false),
    ("tags forged", r#"{"ref":"refs/tags/v2"}"#, false),
    ("people", r#"{"sender":{"type":"User"}}"#, true),
    ("people", r#"{"sender":{"type":"Bot"}}"#, false),
    ("people", r#"{"sender":{"type":"App"}}"#, false),
    ("people", r#"{"sender":{}}"#, false),
    ("branches", r#"{"ref":"refs/heads/main"}"#, true),
    ("branches", r#"{"ref":"refs/heads/next"}"#, true),
    ("branches", r#"{"ref":"refs/heads/else"}"#, false),
    ("rotated first", r#"{"a":1}"#, true),
    ("rotated second", r#"{"a":2}"#, true),
    ("rotated", r#"{"a":3}"#, false),
    ("first-commit", r#"{"commits":[{"author":{"name":"ann"}},{"author":{"name":"bob"}}]}"#, true),
    ("first-commit", r#"{"commits":[{"author":{"name":"bob"}},{"author":{"name":"ann"}}]}"#, false),
    ("first-commit", r#"{"commits":[]}"#, false),
    ("list", r#"[{"kind":"sale"}]"#, true),
    ("list", r#"[{"kind":"return"},{"kind":"sale"}]"#, false),
    ("number", r#"{"count":42}"#, true),
    ("number", r#"{"count":"42"}"#, true),
    ("number", r#"{"count":43}"#, false),
    ("truth", r#"{"forced":true}"#, true),
    ("truth", r#"{"forced":"true"}"#, true),
    ("truth", r#"{"forced":false}"#, false),
    ("not-both", r#"{"a":"1","b":"2"}"#, false),
    ("not-both", r#"{"a":"1","b":"3"}"#, true),
    ("not-both", r#"{"a":"2","b":"2"}"#, true),
    ("not-both", r#"{"a":"1"}"#, false),
    ("not-both", r#"{"a":"2"}"#, true),
    ("not-either", r#"{"a":"x"}"#, false),
    ("not-either", r#"{"a":"z","b":"y"}"#, false),
    ("not-either", r#"{"a":"z","b":"z"}"#, true),
    ("not-either", r#"{}"#, true),
    ("two-of-one", r#"{"ref":"refs/heads/next"}"#, true),
    ("two-of-one", r#"{"ref":"refs/heads/main"}"#, false),
    ("two-of-one", r#"{"ref":"refs/tags/main"}"#, false),
    ("two-of-one", r#"{}"#, false),
    ("deep", r#"{"a":"x","b":"y","c":"q"}"#, true),
    ("deep", r#"{"a":"x","b":"zz","c":"q"}"#, true),
    ("deep", r#"{"a":"x","b":"n","c":"q"}"#, false),
    ("deep", r#"{"a":"n","b":"y","c":"q"}"#, false),
    ("deep", r#"{"c":"r"}"#, true),
    ("deep", r#"{}"#, true),
    ("deep forged", r#"{"c":"s"}"#, false),
    ("chat", "command=%2Fdeploy&user=ann", true),
    ("chat", "command=%2Fstop&user=ann", false),
    ("form", "payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%7D", true),
    ("form", "payload=%7B%22ref%22%3A%22refs%2Fheads%2Fnext%22%7D", false),
    ("form forged", "payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%2C%22a%22%3A1%7D", false),
    ("variables", r#"{"note":"two words","order":{"id":7}}"#, true),
    ("variables forged", r#"{"note":"three","order":{"id":7}}"#, false),
    ("file", r#"{"all":"of it"}"#, true),
    ("Deploy%20Site", r#"{"a":1}"#, true),
    ("Deploy%20Site forged", r#"{"a":2}"#, false),
    ("from-environment", r#"{"a":1}"#, true),
    ("from-environment forged", r#"{"a":2}"#, false),
];

/// A request of the hook, as (method, target, headers): `how` says what of it is otherwise.
fn request(nth: usize, hook: &str, how: &str, body: &str) -> (&'static str, String, String) {
    let secret = match (hook, how) {
        (_, "forged") => "another secret".to_owned(),
        ("from-environment", _) => "secret of the environment".to_owned(),
        ("rotated", "first" | "second") => format!("{how} secret of rotated"),
        ("Deploy%20Site", _) => "secret of Deploy Site".to_owned(),
        _ => format!("secret of {hook}"),
    };
    let mut target = format!("/hooks/{hook}");
    let in_query = secret.replace(' ', "%20");
    let sha256 = hex(&hmac_sha256(&secret, body.as_bytes()));
    let header = match hook {
        "deploy" | "form" => {
            format!("X-Hub-Signature-256: sha256={sha256}\r\nX-GitHub-Delivery: d{nth}\r\n")
        }
        "hub-sha1" => format!("X-Hub-Signature: sha1={}\r\n", sha1_of(&secret, body)),
        "sha512" => format!("X-Sum: {}\r\n", sha512_of(&secret, body)),
        "gitea" => format!("X-Gitea-Signature: {sha256}\r\n"),
        "gitlab" => format!("X-Gitlab-Token: {secret}\r\n"),
        "caller" if how == "bare" => String::new(),
        "caller" => {
            target.push_str(&format!("?token={in_query}"));
            String::new()
        }
        "button" => {
            target.push_str(&format!("?key={in_query}"));
            format!("X-Floor: {}\r\n", if how == "ping" { 3 } else { 2 })
        }
        _ => format!("X-Signature: {sha256}\r\nX-Part: fourth\r\n"),
    };
    let event = if how == "ping" { "ping" } else { "push" };
    let kind = if body.starts_with(['{', '[']) {
        "application/json"
    } else {
        "application/x-www-form-urlencoded"
    };
    let headers = format!(
        "{header}X-GitHub-Event: {event}\r\nX-Gitea-Event: {event}\r\nContent-Type: {kind}\r\n"
    );
    (if how == "GET" { "GET" } else { "POST" }, target, headers)
}

fn sha1_of(secret: &str, body: &str) -> String {
    let mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).unwrap().chain_update(body);
    hex(&mac.finalize().into_bytes())
}

fn sha512_of(secret: &str, body: &str) -> String {
    let mac = Hmac::<Sha512>::new_from_slice(secret.as_bytes()).unwrap().chain_update(body);
    hex(&mac.finalize().into_bytes())
}

/// Sends it and returns the body of the answer.
fn ask(
    address: SocketAddr,
    (method, target, headers): &(&str, String, String),
    body: &str,
) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Debian's `webhook`; each hook answers with what its command prints.
struct Webhook(Child, SocketAddr);

impl Webhook {
    /// Starts it with the text of a file of hooks.
    fn start(site: &Site, hooks: &str) -> Option<Self> {
        fs::write(site.path("theirs"), hooks).unwrap();
        // It cannot be asked for a port of its own choice.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let started = Command::new("webhook")
            .args([
                "-verbose",
                "-template",
                "-ip",
                "127.0.0.1",
                "-port",
                &address.port().to_string(),
            ])
            .arg("-hooks")
            .arg(site.path("theirs"))
            .env("HOOK_SECRET", "secret of the environment")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            needs::missing("webhook", "apt install webhook");
            return None;
        };
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("serving hooks")), "webhook does not serve");
        std::thread::spawn(move || log.for_each(drop));
        Some(Webhook(child, address))
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hooks of [`JSON`] as webhook gets them.
fn theirs(site: &Site) -> String {
    let mut hooks: Value = serde_json::from_str(JSON).unwrap();
    for hook in hooks.as_array_mut().unwrap() {
        hook["include-command-output-in-response"] = true.into();
        hook["command-working-directory"] = site.path("").display().to_string().into();
    }
    hooks.to_string()
}

/// A site with the imported hooks, some of which are left out, and what the import printed.
fn imported(file: &str, hooks: &str) -> (Site, String) {
    let site = Site::new("");
    fs::write(site.path(file), hooks.replace("DIR", &site.path("").display().to_string())).unwrap();
    let out = site.path("made");
    let said = site.run(&[
        "import",
        "adnanh",
        site.path(file).to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(said.status.code(), Some(1), "{}", text(&said.stderr));
    for folder in ["conf.d", "providers", "secrets"] {
        // A folder in which nothing would be is not made.
        if out.join(folder).exists() {
            fs::rename(out.join(folder), site.path(folder)).unwrap();
        }
    }
    let said = text(&said.stdout).replace(site.path("").to_str().unwrap(), "DIR/");
    (site, said)
}

#[test]
fn the_same_requests_fire_the_same_commands_in_both() {
    let (site, _) = imported("hooks.json", JSON);
    site.script(
        "ran",
        r#"[ -n "$ALL_FILE" ] && ALL=$(cat "$ALL_FILE")
line="ran $* $PUSHER $NOTE $FIXED $ALL $PART"
[ -n "$HOOKLATCH_JOB" ] && echo "$line" >> "$SITE/ours"
echo "$line""#,
    );
    let Some(webhook) = Webhook::start(&site, &theirs(&site)) else { return };
    let receiver = site.start_with(&[("HOOK_SECRET", "secret of the environment")]);
    let mut theirs = Vec::new();
    for (nth, (hook, body, fires)) in ASKED.iter().enumerate() {
        let (hook, how) = hook.split_once(' ').unwrap_or((hook, ""));
        let mut request = request(nth, hook, how, body);
        let answer = ask(webhook.1, &request, body);
        assert_eq!(answer.starts_with("ran "), *fires, "webhook: {hook} {how} {body}: {answer}");
        theirs.extend(fires.then(|| answer.trim_end().to_owned()));
        request.1 = request.1.replace("Deploy%20Site", "deploy_site");
        let answer = ask(receiver.address, &request, body);
        let jobs = site.json(&["jobs", "--limit", "200"]).as_array().unwrap().len();
        assert_eq!(jobs, theirs.len(), "{hook} {how} {body}: {answer}");
    }
    site.all_jobs(theirs.len(), "succeeded");
    let mut ours: Vec<String> =
        site.lines("ours").iter().map(|line| line.trim_end().to_owned()).collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    for hook in LEFT_OUT.split(' ') {
        let request = request(0, hook, "", "{}");
        let answer = ask(receiver.address, &request, "{}");
        assert_eq!(answer, r#"{"status":"not_found"}"#, "{hook}");
    }
}

#[test]
fn json_and_yaml_become_the_same_files_and_say_what_was_left() {
    let (json, said) = imported("hooks.json", JSON);
    recorded("import-adnanh.txt", &said).unwrap();
    let (yaml, _) = imported("hooks.yaml", YAML);
    let files = |site: &Site, folder: &str| {
        let mut files: Vec<(String, String)> = fs::read_dir(site.path(folder))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap();
                let text =
                    text.replace(site.path("").to_str().unwrap(), "").replace(".yaml", ".json");
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        files.sort();
        files
    };
    for folder in ["conf.d", "providers", "secrets"] {
        assert_eq!(files(&json, folder), files(&yaml, folder), "{folder}");
    }
    assert!(!said.contains("secret of"), "a secret is printed: {said}");
    for (file, text) in files(&json, "conf.d").iter().chain(&files(&json, "providers")) {
        assert!(!text.contains("secret of"), "a secret is in {file}");
    }
    let left_out: Vec<&str> = LEFT_OUT.split(' ').collect();
    for (file, text) in files(&json, "conf.d") {
        let is_open = text.lines().any(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(is_open, !left_out.contains(&file.trim_end_matches(".toml")), "{file}");
    }
}

#[test]
fn what_is_not_hooks_is_refused_and_nothing_is_written() {
    let site = Site::new("");
    let out = site.path("made");
    let refused = |hooks: &str, says: &str| {
        fs::write(site.path("hooks"), hooks).unwrap();
        let (code, said) = fails(
            &site,
            &[
                "import",
                "adnanh",
                site.path("hooks").to_str().unwrap(),
                "--out",
                out.to_str().unwrap(),
            ],
        );
        assert!(said.contains(says), "{said}");
        assert!(!out.exists());
        code
    };
    assert_eq!(refused("{}", "expected a list of hooks"), Some(78));
    assert_eq!(refused("[1]", "hook 1 is not an object"), Some(78));
    assert_eq!(refused("[{\"id\":\"a\"", "as JSON"), Some(78));
    assert_eq!(refused("- id: [a\n", "as YAML"), Some(78));
    assert_eq!(refused(&format!("[{}]", vec!["{}"; 1001].join(",")), "1001 hooks"), Some(78));
    assert_eq!(
        refused(&format!("[{}{}]", "[".repeat(40), "]".repeat(40)), "levels deep"),
        Some(78)
    );
    assert_eq!(refused(&" ".repeat(1024 * 1024 + 1), "more than 1048576 bytes"), Some(78));
    // Each level repeats the one before nine times.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 9].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert_eq!(refused(&bomb, "as YAML"), Some(78));
    fs::create_dir(&out).unwrap();
    fs::write(site.path("hooks"), "[]").unwrap();
    let (code, said) = fails(
        &site,
        &["import", "adnanh", site.path("hooks").to_str().unwrap(), "--out", out.to_str().unwrap()],
    );
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("is there already"), "{said}");
}

#[test]
fn an_error_in_the_hooks_names_its_place_and_quotes_no_text() {
    let site = Site::new("");
    let file = site.path("hooks");
    let (file, out) = (file.to_str().unwrap(), site.path("made"));
    for hooks in [
        "- id: a\n  secret: only-for-tests\n  rules: [\n- id: b\n",
        "- id: a\n  secret: only-for-tests\n  rules: *only-for-tests\n",
        "- id: a\n  secret: \"only-for-tests \\q\"\n",
        "[{\"id\": \"a\", \"secret\": \"only-for-tests\", ]}]",
    ] {
        fs::write(file, hooks).unwrap();
        let args = ["import", "adnanh", file, "--out", out.to_str().unwrap()];
        let (code, said) = fails(&site, &args);
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains("it cannot be read at line "), "{said}");
        assert!(!said.contains("only-for-tests"), "a secret is printed: {said}");
    }
}
