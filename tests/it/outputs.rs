//! The output of a command is stored with its attempt.

use serde_json::Value;

use crate::support::{Site, stripe_event};

const HANDLER: &str = r#"
[handlers.prints]
source = "stripe"
events = ["*"]
command = ["./prints"]
concurrency = 4
"#;

/// Prints as many bytes as the event's id says: all but the last to standard output, the last to standard
/// error.
const SCRIPT: &str = r#"
bytes=${HOOKLATCH_EVENT_ID##*_}
[ "$bytes" = 0 ] || printf "%0$((bytes - 1))d" 0
[ "$bytes" = 0 ] || printf '%s' "$bytes" | tail -c 1 >&2"#;

#[test]
fn output_of_any_size_is_stored_with_its_attempt() {
    let site = Site::new(HANDLER);
    site.script("prints", SCRIPT);
    let receiver = site.start();
    let sizes = [0_usize, 2, 4096, 15_000];
    for bytes in sizes {
        let (status, _) = receiver.stripe(&stripe_event(&format!("evt_{bytes}"), "a.b", ""), 0);
        assert_eq!(status, 200);
    }
    site.all_jobs(sizes.len(), "succeeded");
    for bytes in sizes {
        let shown = site.json(&["show", &format!("evt_{bytes}")]);
        let record = &shown[0]["jobs"][0]["attempts"][0]["record"];
        let text = |stream: &str| match &record[stream]["head"]["text"] {
            Value::String(text) => text.clone(),
            other => panic!("{bytes}: {other} in {record}"),
        };
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        assert_eq!(stdout, "0".repeat(bytes.saturating_sub(1)));
        let last = bytes.to_string().pop().map(String::from);
        assert_eq!(stderr, last.filter(|_| bytes > 0).unwrap_or_default());
        for (stream, printed) in [("stdout", stdout), ("stderr", stderr)] {
            assert_eq!(record[stream]["total"], printed.len(), "{bytes}: {record}");
        }
    }
    assert_eq!(receiver.stop(), Some(0));
}
