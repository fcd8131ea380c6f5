//! The metrics of a real receiver with real deliveries, scraped over TCP as Prometheus does. Also compares
//! the documents and the alert rules with the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::made;
use crate::support::{PATIENCE, Receiver, Site, needs, post};
use hooklatch::limits::METRICS_CONNECTIONS;
use hooklatch::metrics::{FAMILIES, Kind};

const LISTEN: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\n";

const HANDLER: &str =
    "[handlers.work]\nsource = \"github\"\nevents = [\"push\"]\ncommand = [\"./work\"]\n";

/// Starts a receiver, and returns it with the address of its metrics.
pub(crate) fn start(site: &Site) -> (Receiver, SocketAddr) {
    let receiver = site.start();
    let line = receiver.log_when(|line| line["message"] == "serving metrics");
    let address = line["address"].as_str().unwrap().parse().unwrap();
    (receiver, address)
}

/// Sends `request` and reads to the end of the connection.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.get(9..12).unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

pub(crate) fn page(address: SocketAddr) -> String {
    let (status, page) = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status, 200, "{page}");
    page
}

/// Every sample by its series.
pub(crate) fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

fn find_family(name: &str) -> Option<&'static str> {
    let found = FAMILIES.iter().find(|family| match family.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| name.strip_suffix(suffix) == Some(family.name)),
        _ => family.name == name,
    });
    found.map(|family| family.name)
}

/// The family that a sample's name belongs to.
fn family(name: &str) -> &'static str {
    find_family(name).unwrap_or_else(|| panic!("{name} is of no family"))
}

/// Whether the page has a family or a sample of this name.
pub(crate) fn exists(name: &str) -> bool {
    find_family(name).is_some() || FAMILIES.iter().any(|family| family.name == name)
}

/// Runs promtool on `input`, which it must accept.
fn promtool(what: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(what).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return needs::missing("promtool", "apt install prometheus");
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {what:?}: {said}");
}

#[test]
fn the_metrics_page_counts_deliveries_and_has_every_documented_family() {
    let site = Site::with(LISTEN, HANDLER);
    site.script("work", "exit 0");
    let (receiver, address) = start(&site);
    assert_eq!(receiver.github("d-1", "push", "{}").0, 200);
    assert_eq!(receiver.github("d-1", "push", "{}").0, 200);
    assert_eq!(receiver.stripe(&crate::support::stripe_event("evt_1", "x", ""), 9_999).0, 401);
    assert_eq!(post(receiver.address, "/nobody", "", b"").0, 404);
    let mut stream = TcpStream::connect(receiver.address).unwrap();
    stream.write_all(b"no request at all\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    site.all_jobs(1, "succeeded");
    site.json(&["pause", "work"]);
    receiver.github("d-2", "push", "{\"n\":2}");

    // The metrics read the store once a second, so the page shows the job a little later.
    let mut text = page(address);
    let end = Instant::now() + PATIENCE;
    while samples(&text)[r#"hooklatch_jobs{handler="work",state="ready"}"#] < 1.0 {
        assert!(Instant::now() < end, "{text}");
        text = page(address);
    }
    let all = samples(&text);
    for (series, wanted) in [
        (r#"hooklatch_deliveries_total{source="github",answer="accepted"}"#, 2.0),
        (r#"hooklatch_deliveries_total{source="github",answer="duplicate"}"#, 1.0),
        (r#"hooklatch_deliveries_total{source="stripe",answer="rejected"}"#, 1.0),
        (r#"hooklatch_deliveries_total{source="stripe",answer="accepted"}"#, 0.0),
        (
            r#"hooklatch_refusals_total{source="stripe",answer="rejected",reason="stale_timestamp"}"#,
            1.0,
        ),
        ("hooklatch_unknown_path_requests_total", 1.0),
        ("hooklatch_unreadable_requests_total", 1.0),
        (r#"hooklatch_accept_duration_seconds_count{source="github"}"#, 3.0),
        (r#"hooklatch_accept_deadline_ratio_bucket{source="github",le="+Inf"}"#, 3.0),
        (r#"hooklatch_jobs{handler="work",state="held"}"#, 0.0),
        (r#"hooklatch_jobs_settled_total{handler="work",state="succeeded"}"#, 1.0),
        (r#"hooklatch_attempts_total{handler="work",outcome="succeeded"}"#, 1.0),
        (r#"hooklatch_attempt_duration_seconds_count{handler="work"}"#, 1.0),
        (r#"hooklatch_handler_paused{handler="work"}"#, 1.0),
        (r#"hooklatch_handler_broken{handler="work"}"#, 0.0),
        (r#"hooklatch_runner_connected{runner="default"}"#, 1.0),
        ("hooklatch_ready", 1.0),
    ] {
        assert_eq!(all.get(series), Some(&wanted), "{series}\n{text}");
    }
    for series in [
        r#"hooklatch_secret_last_match_timestamp_seconds{source="github",secret="file:secret"}"#,
        r#"hooklatch_last_delivery_timestamp_seconds{source="github"}"#,
        "hooklatch_start_time_seconds",
        "hooklatch_store_database_bytes",
        "hooklatch_disk_free_bytes",
        "hooklatch_writer_batch_items_count",
    ] {
        assert!(all.get(series).is_some_and(|value| *value > 0.0), "{series}\n{text}");
    }
    let stripe = r#"hooklatch_secret_last_match_timestamp_seconds{source="stripe""#;
    assert!(!text.contains(stripe), "it never matched");
    as_documented(&text);
    promtool(&["check", "metrics"], &text);
}

#[test]
fn requests_with_keys_are_counted_by_their_result() {
    let source = "[sources.pay]\nprovider = \"bearer\"\nsecrets = \"file:token\"\nreply = \"handler\"\n\
                  requests_per_minute = 5\n";
    let handler = "[handlers.pay]\nsource = \"pay\"\nevents = [\"*\"]\ncommand = [\"./pay\"]\n";
    let site = Site::with(&format!("{LISTEN}{source}"), handler);
    fs::write(site.config().with_file_name("token"), "a token of this test").unwrap();
    site.script("pay", r#"test "$HOOKLATCH_EVENT_ID" != broken && echo '{"paid":true}'"#);
    let (receiver, address) = start(&site);
    let pay = |key: &str, body: &[u8]| {
        let headers =
            format!("Authorization: Bearer a token of this test\r\nIdempotency-Key: {key}\r\n");
        post(receiver.address, "/hooks/pay", &headers, body).0
    };
    assert_eq!([pay("k", b"1"), pay("k", b"1"), pay("k", b"2")], [200, 200, 422]);
    assert_eq!([pay("broken", b"1"), pay("broken", b"1"), pay("k", b"1")], [502, 502, 429]);
    let text = page(address);
    let all = samples(&text);
    for (result, wanted) in
        [("created", 1.0), ("reused", 1.0), ("conflict", 1.0), ("failed", 2.0), ("limited", 1.0)]
    {
        let series =
            format!("hooklatch_keyed_requests_total{{source=\"pay\",result=\"{result}\"}}");
        assert_eq!(all[&series], wanted, "{series}");
    }
    for (answer, wanted) in
        [("accepted", 2.0), ("duplicate", 2.0), ("conflict", 1.0), ("limited", 1.0)]
    {
        let series = format!("hooklatch_deliveries_total{{source=\"pay\",answer=\"{answer}\"}}");
        assert_eq!(all[&series], wanted, "{series}");
    }
    assert!(!text.contains("hooklatch_keyed_requests_total{source=\"github\""), "{text}");
    as_documented(&text);
    let line = receiver.log_when(|line| line["result"] == "created");
    let said = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    assert_eq!([said("source"), said("answer"), said("key")], ["pay", "answered", "k"]);
    assert!(line["job"].is_string() && line["millis"].is_number(), "{line}");
}

/// Checks that the page has the families of [`FAMILIES`] in order, and each sample its family's labels.
fn as_documented(text: &str) {
    let types: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let wanted: Vec<_> =
        FAMILIES.iter().map(|family| format!("{} {}", family.name, family.kind)).collect();
    assert_eq!(types, wanted);
    for series in samples(text).keys() {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let family = FAMILIES.iter().find(|one| one.name == family(name)).unwrap();
        let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
        let labels: Vec<_> = labels.map(|label| label.split_once('=').unwrap().0).collect();
        let labels: Vec<_> = labels.into_iter().filter(|label| *label != "le").collect();
        assert_eq!(labels, family.labels, "{series}");
    }
}

#[test]
fn invalid_requests_add_no_series() {
    let site = Site::with(LISTEN, "");
    let (receiver, address) = start(&site);
    let deliveries = receiver.address;
    let strange = |from: u32, to: u32| {
        let mut stream = TcpStream::connect(deliveries).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for n in from..to {
            let request = match n % 4 {
                0 => format!("GET /wp-{n}.php?n={n} HTTP/1.1\r\nHost: h{n}\r\n\r\n"),
                1 => format!("M{n} /github HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
                2 => format!(
                    "POST /github HTTP/1.1\r\nHost: x\r\nX-GitHub-Delivery: d-{n}\r\nX-GitHub-Event: t{n}\r\n\
                     X-Hub-Signature-256: sha256={n:064x}\r\nContent-Length: 0\r\n\r\n"
                ),
                _ => format!(
                    "POST /stripe HTTP/1.1\r\nHost: x\r\nStripe-Signature: t={n},v1={n:064x}\r\n\
                     X-{n}: {n}\r\nContent-Length: 0\r\n\r\n"
                ),
            };
            stream.write_all(request.as_bytes()).unwrap();
            let (mut answer, mut block) = (Vec::new(), [0; 4096]);
            // A sender without a source gets JSON, all others an empty body.
            let is_whole = |answer: &[u8]| match n % 4 {
                0 => answer.ends_with(b"}"),
                _ => answer.ends_with(b"\r\n\r\n"),
            };
            while !is_whole(&answer) {
                let read = stream.read(&mut block).unwrap();
                assert!(read > 0, "{request}: {}", String::from_utf8_lossy(&answer));
                answer.extend_from_slice(&block[..read]);
            }
        }
    };
    strange(0, 4);
    let series = |page: &str| samples(page).into_keys().collect::<BTreeSet<_>>();
    let before = series(&page(address));
    std::thread::scope(|scope| {
        for nth in 0..4 {
            scope.spawn(move || strange(nth * 2_500 + 4, (nth + 1) * 2_500 + 4));
        }
    });
    let after = page(address);
    assert_eq!(series(&after), before);
    assert_eq!(samples(&after)["hooklatch_unknown_path_requests_total"], 2_501.0);
}

#[test]
fn the_metrics_port_serves_only_the_metrics_page() {
    let site = Site::with(LISTEN, "");
    let (receiver, address) = start(&site);
    let get = |address, path: &str, host: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(address, &request).0
    };
    assert_eq!(get(receiver.address, "/metrics", "localhost"), 404);
    assert_eq!(get(address, "/metrics", "127.0.0.1"), 200);
    assert_eq!(get(address, "/metrics", "rebound.example"), 403);
    assert_eq!(get(address, "/healthz", "localhost"), 404);
    assert_eq!(post(address, "/github", "", b"{}").0, 404);
    assert_eq!(post(address, "/metrics", "", b"{}").0, 405);
}

#[test]
fn stalled_scrapers_keep_no_other_waiting() {
    let site = Site::with(LISTEN, "");
    let (receiver, address) = start(&site);
    let half = |count: usize| -> Vec<TcpStream> {
        let connect = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: l").unwrap();
            stream
        };
        (0..count).map(connect).collect()
    };
    let answer = |mut stream: TcpStream| {
        let mut answer = Vec::new();
        // It may be reset.
        let _closed = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    let is_open = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = stream.peek(&mut [0; 1]).map_err(|error| error.kind());
        stream.set_nonblocking(false).unwrap();
        read == Err(std::io::ErrorKind::WouldBlock)
    };
    // As many as are served at once: the page waits for none of their heads, which are 408 in the end.
    let stalled = half(METRICS_CONNECTIONS);
    page(address);
    assert!(stalled.iter().all(is_open), "it has waited for them");
    assert_eq!(receiver.github("d-1", "push", "{}").0, 200);
    for stream in stalled {
        let answer = answer(stream);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    // More than there is room for: the first is closed for a later one, before its time is over.
    let mut stalled = half(2 * METRICS_CONNECTIONS);
    page(address);
    assert_eq!(answer(stalled.remove(0)), "");
}

#[test]
fn a_public_metrics_address_is_a_warning_and_the_deliveries_address_an_error() {
    let site = Site::with("[metrics]\nlisten = \"0.0.0.0:9464\"\n", "");
    let said = String::from_utf8(site.run(&["config", "check"]).stdout).unwrap();
    assert!(said.contains("warning: ") && said.contains("can be read by other machines"), "{said}");
    let text = fs::read_to_string(site.config()).unwrap();
    let (here, both) = ("127.0.0.1:0\"\n[storage]", "127.0.0.1:9464\"\n[storage]");
    let text = text.replace(here, both).replace("0.0.0.0:9464", "127.0.0.1:9464");
    site.write_config(text);
    let output = site.run(&["config", "check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("is where deliveries come in"), "{said}");
}

#[test]
fn conditions_are_counted_by_their_result_for_new_events_alone() {
    let when = "when = { \"/n\" = { above = 1 } }\n";
    let plain = "[handlers.all]\nsource = \"github\"\nevents = [\"*\"]\ncommand = [\"./work\"]\n";
    let handlers = format!("{HANDLER}{when}{plain}");
    let site = Site::with(LISTEN, &handlers);
    site.script("work", "true");
    let (receiver, metrics) = start(&site);
    let counts = || {
        let samples = samples(&page(metrics));
        let of = |result| {
            samples[&format!("hooklatch_conditions_total{{handler=\"work\",result=\"{result}\"}}")]
        };
        assert!(!samples.keys().any(|series| series.contains("conditions_total{handler=\"all\"")));
        ["true", "false", "failed"].map(of)
    };
    assert_eq!(counts(), [0.0, 0.0, 0.0]);
    for (id, body) in [("d-1", "{\"n\":2}"), ("d-2", "{\"n\":1}"), ("d-3", "{\"n\":\"x\"}")] {
        assert_eq!(receiver.github(id, "push", body).0, 200);
        assert_eq!(receiver.github(id, "push", body).0, 200);
        assert_eq!(receiver.github(&format!("{id}-other"), "issues", body).0, 200);
    }
    assert_eq!(counts(), [1.0, 1.0, 1.0]);
    // A reload keeps them.
    site.configure(LISTEN, &handlers.replace("above = 1", "above = 0"));
    assert!(site.run(&["reload"]).status.success());
    assert_eq!(receiver.github("d-4", "push", "{\"n\":1,\"m\":0}").0, 200);
    assert_eq!(counts(), [2.0, 1.0, 1.0]);
}

#[test]
fn the_documentation_has_every_metric_family() {
    let mut table = String::from("| name | type | labels | |\n|---|---|---|---|\n");
    for family in FAMILIES {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels) = (family.name, family.kind, labels.join(", "));
        table.push_str(&format!("| `{name}` | {kind} | {labels} | {} |\n", family.help));
    }
    made::holds("metrics.md", "families", &table);
}

#[test]
fn alert_rules_name_existing_metrics_and_a_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/alerts.yml");
    let text = fs::read_to_string(&path).unwrap();
    let rules: Vec<_> = text.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 10);
    for rule in rules {
        let line = |key: &str| {
            let found = rule.lines().find_map(|line| line.trim().strip_prefix(key));
            found.unwrap_or_else(|| panic!("no {key} in {rule}"))
        };
        let expression = line("expr: ");
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<_> = words.filter(|word| word.starts_with("hooklatch_")).collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            family(metric);
        }
        assert!(line("summary: ").len() > 10 && line("run: ").contains("hooklatch "), "{rule}");
    }
    promtool(&["check", "rules", path.to_str().unwrap()], "");
}
