//! The example handlers of `examples/alerts/`, run by a receiver, with hostile text in their input.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;

use crate::support::{Site, stripe_event};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/alerts");

/// Accepts one HTTP request, answers 200, and returns the request's path and body.
fn request(listener: TcpListener) -> (String, Value) {
    let mut stream = listener.accept().unwrap().0;
    let mut read = Vec::new();
    let (head, body_at) = loop {
        let mut more = [0; 4096];
        let bytes = stream.read(&mut more).unwrap();
        assert_ne!(bytes, 0, "the request ends early");
        read.extend_from_slice(&more[..bytes]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        break (head.to_owned(), head.len() + 4);
    };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = read.split_off(body_at);
    let missing = length.parse::<usize>().unwrap() - body.len();
    let mut rest = vec![0; missing];
    stream.read_exact(&mut rest).unwrap();
    body.extend(rest);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), serde_json::from_slice(&body).unwrap())
}

#[test]
fn hostile_text_stays_text_in_slack_and_in_mail() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/services/T/B/x", listener.local_addr().unwrap());
    let site = Site::new("");
    let path = format!("{}:/usr/bin:/bin", site.path("bin").display());
    site.configure(
        "",
        &format!(
            "[handlers.work]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./work\"]\n\
             [handlers.slack]\nsource = \"hooklatch\"\nevents = [\"*\"]\ncommand = [\"{FOLDER}/slack\"]\n\
             env = {{ SLACK_URL = \"file:slack\" }}\n\
             [handlers.mail]\nsource = \"hooklatch\"\nevents = [\"*\"]\ncommand = [\"{FOLDER}/mail\"]\n\
             env = {{ MAIL_TO = \"ops@example.com\", PATH = \"{path}\" }}\n"
        ),
    );
    std::fs::write(site.path("slack"), &url).unwrap();
    let hostile = r#"","text":"forged" $(touch pwned) `touch pwned` <!channel> \ %s & 'x'"#;
    std::fs::write(site.path("said"), format!("first\n{hostile}\n")).unwrap();
    site.script("work", "cat \"$SITE/said\" >&2; exit 65");
    std::fs::create_dir(site.path("bin")).unwrap();
    site.script("bin/sendmail", "echo \"$*\" > \"$SITE/arguments\"; cat > \"$SITE/mail\"");
    let receiver = site.start();
    let event = r#"evt_\"$(touch\tpwned)\\,\"count\":7"#.replace("\\t", "$IFS");
    receiver.stripe(&stripe_event(&event, "a.b", ""), 0);

    let (path, sent) = request(listener);
    assert_eq!(path, "/services/T/B/x");
    let fields = sent.as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["text"], "{sent:#}");
    let text = fields["text"].as_str().unwrap();
    assert!(text.starts_with("*job.dead* on "), "{text}");
    assert!(text.contains("&lt;!channel&gt;") && !text.contains('<'), "{text}");
    let escaped = |text: &str| serde_json::to_string(text).unwrap();
    site.jobs_when(|jobs| {
        let sent = jobs.iter().filter(|job| job["state"] == "succeeded");
        sent.count() == 2
    });
    let mail = std::fs::read_to_string(site.path("mail")).unwrap();
    let (head, body) = mail.split_once("\n\n").unwrap();
    assert!(head.starts_with("To: ops@example.com\nSubject: hooklatch job.dead on "), "{mail}");
    assert_eq!(head.lines().count(), 4, "{mail}");
    assert!(body.contains(&format!("\nstderr: {}\n", escaped(hostile))), "{mail}");
    assert!(body.contains("\ncount: 1\n") && body.contains("\nexit_code: 65\n"), "{mail}");
    assert_eq!(body.matches("\ncount: ").count(), 1, "{mail}");
    assert_eq!(site.lines("arguments"), ["-i -t"]);
    let pwned =
        std::process::Command::new("find").arg(site.path(".")).args(["-name", "pwned*"]).output();
    assert!(pwned.unwrap().stdout.is_empty());
}

#[test]
fn the_example_configuration_passes_the_check() {
    let alerts = std::fs::read_to_string(format!("{FOLDER}/hooklatch.toml")).unwrap();
    let site = Site::new("");
    let folder = site.path("bin");
    std::fs::create_dir(&folder).unwrap();
    for name in ["slack", "mail"] {
        std::fs::copy(format!("{FOLDER}/{name}"), folder.join(name)).unwrap();
    }
    std::fs::write(site.path("slack"), "http://127.0.0.1:1/").unwrap();
    let here = alerts
        .replace("/usr/local/lib/hooklatch", folder.to_str().unwrap())
        .replace("/etc/hooklatch/runner-secrets/slack", site.path("slack").to_str().unwrap());
    site.configure("", &here);
    let checked = site.run(&["config", "check"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
