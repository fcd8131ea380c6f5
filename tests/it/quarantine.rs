//! The quarantine: deliveries that fail with a wrong secret are kept, can be verified again, and are
//! accepted once.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::{PATIENCE, Receiver, SECRET, Site, hex, hmac, stripe_event};

/// The number of deliveries with the wrong secret.
const SENT: usize = 30;

/// The number of forged deliveries of a flood, and of the connections that bring them.
const FORGED: usize = 20_000;
const FLOODS: usize = 4;

const HANDLER: &str = r#"
[handlers.note]
source = ["github", "stripe"]
events = ["*"]
command = ["./note"]
concurrency = 8
"#;

/// A site with a wrong secret.
fn site(tables: &str) -> Site {
    let site = Site::with(tables, HANDLER);
    site.script("note", "echo \"$HOOKLATCH_EVENT_ID $HOOKLATCH_RECEIVED_AT\" >> \"$SITE/ran\"");
    fs::write(site.path("secret"), "the wrong secret\n").unwrap();
    site
}

fn correct_secret(site: &Site) {
    fs::write(site.path("secret"), format!("{SECRET}\n")).unwrap();
}

/// Sends genuine deliveries, which the receiver must refuse because its secret is wrong.
fn send(receiver: &Receiver) {
    for nth in 0..SENT {
        let body = format!("{{\"n\":{nth}}}");
        assert_eq!(receiver.github(&format!("guid-{nth}"), "push", &body).0, 401);
    }
}

fn verdicts(site: &Site, args: &[&str]) -> Value {
    site.json(&[&["quarantine"], args].concat())["sources"]["github"].clone()
}

/// Checks that every event ran exactly once.
fn each_ran_once(site: &Site) {
    site.all_jobs(SENT, "succeeded");
    let mut ran = site.lines("ran");
    ran.sort();
    ran.dedup();
    assert_eq!((ran.len(), site.lines("ran").len()), (SENT, SENT));
}

#[test]
fn deliveries_refused_for_a_wrong_secret_can_be_accepted_later() {
    let site = site("");
    let receiver = site.start();
    send(&receiver);
    assert_eq!(receiver.stripe(&stripe_event("evt_1", "a.b", ""), 0).0, 401);
    // A delivery without a signature cannot be proven later.
    let (code, _) = crate::support::post(receiver.address, "/github", "", b"{}");
    assert_eq!(code, 401);

    let kept = site.json(&["quarantine", "--source", "github"]);
    assert_eq!(kept["matching"], SENT as u64 + 1);
    let first = &kept["deliveries"][SENT];
    assert_eq!(first["unproven_event_id"], "guid-0");
    assert_eq!(
        (&first["address"], &first["reason"]),
        (&"127.0.0.1".into(), &"bad_signature".into())
    );
    assert_eq!(kept["deliveries"][0]["body_kept"], false);
    assert_eq!(site.json(&["events", "--rejected", "--source", "github"]), kept);
    let still = verdicts(&site, &["verify"]);
    assert_eq!((&still["good"], &still["bad"]["bad_signature"]), (&0.into(), &SENT.into()));
    assert_eq!(verdicts(&site, &["accept", "--yes"])["accepted"], 0);
    let screen = String::from_utf8(site.run(&["status"]).stdout).unwrap();
    assert!(screen.contains("30 in quarantine: see"), "{screen}");

    receiver.stop();
    correct_secret(&site);
    let receiver = site.start();
    let unasked = site.run(&["quarantine", "accept"]);
    assert_eq!(unasked.status.code(), Some(2), "without a terminal it needs --yes");
    let would = verdicts(&site, &["accept", "--dry-run"]);
    assert_eq!(
        (&would["good"], &would["accepted"], &would["bodiless"]),
        (&SENT.into(), &0.into(), &1.into())
    );
    assert_eq!(site.json(&["jobs"]), Value::Array(Vec::new()));

    let done = verdicts(&site, &["accept", "--yes", "--source", "github"]);
    assert_eq!((&done["accepted"], &done["duplicates"]), (&SENT.into(), &0.into()));
    each_ran_once(&site);
    assert_eq!(verdicts(&site, &["accept", "--yes"])["accepted"], 0);
    let repeat = receiver.github("guid-3", "push", "{\"n\":3}");
    assert_eq!((repeat.0, &repeat.1["status"]), (200, &"duplicate".into()));

    // The last command also accepted the Stripe delivery, which is judged at its arrival time.
    site.all_jobs(SENT + 1, "succeeded");
    assert_eq!(site.json(&["quarantine"])["matching"], 1);
    let dropped = site.json(&["quarantine", "drop", "--reason", "missing-signature", "--yes"]);
    assert_eq!(dropped["dropped"], 1);
    assert_eq!(site.json(&["quarantine"])["matching"], 0);
}

#[test]
fn without_a_receiver_the_command_verifies_and_accepts() {
    let site = site("");
    let receiver = site.start();
    send(&receiver);
    receiver.stop();
    assert_eq!(verdicts(&site, &["verify"])["good"], 0);
    correct_secret(&site);
    assert_eq!(verdicts(&site, &["verify"])["good"], SENT as u64);
    assert_eq!(verdicts(&site, &["accept", "--yes"])["accepted"], SENT as u64);
    let _receiver = site.start();
    each_ran_once(&site);
}

#[test]
fn a_kill_between_accepting_and_removing_causes_duplicates_and_no_loss() {
    let site = site("");
    let receiver = site.start();
    send(&receiver);
    receiver.stop();
    correct_secret(&site);
    let token = site.path("died");
    let crash = format!("accept.commit.after 7 {}", token.display());
    let receiver = site.start_with(&[("HOOKLATCH_CRASH", &crash)]);
    let cut = site.run(&["quarantine", "accept", "--yes"]);
    assert_eq!(cut.status.code(), Some(69), "{}", String::from_utf8_lossy(&cut.stderr));
    assert!(token.exists());
    receiver.ended();
    let _receiver = site.start();
    let done = verdicts(&site, &["accept", "--yes"]);
    assert_eq!((&done["accepted"], &done["duplicates"]), (&(SENT - 7).into(), &7.into()));
    each_ran_once(&site);
}

/// A connection from another address of this machine.
fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &format!("{from}:0").parse::<SocketAddr>().unwrap()).unwrap();
    connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends so many forged deliveries over one connection, one after the other, and counts those that are answered.
fn forge(to: SocketAddr, count: usize, answered: &AtomicUsize) {
    let mut stream = connect_from("127.0.0.2", to);
    let mut answer = [0; 4096];
    for nth in 0..count {
        // Random letters, which do not compress well.
        let body = hex(&hmac("noise", &nth.to_be_bytes())).repeat(8);
        let signature = hex(&hmac("a guess", body.as_bytes()));
        let request = format!(
            "POST /github HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nX-GitHub-Delivery: f-{nth}\r\n\
             X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut read = 0;
        while !answer[..read].ends_with(b"\r\n\r\n") {
            read += stream.read(&mut answer[read..]).unwrap();
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_evicts_itself_and_costs_genuine_deliveries_little() {
    // The rate limit keeps every delivery, so that only the limit in bytes evicts.
    let tables = "[limits]\nquarantine_bytes = \"1 MiB\"\nquarantine_rate_bytes_per_second = \"1 GiB\"\n\
         [sources.other]\nprovider = \"stripe\"\nsecrets = [\"file:other\"]\n";
    let site = site(tables);
    fs::write(site.path("other"), SECRET).unwrap();
    let receiver = site.start();
    send(&receiver);
    let (to, answered) = (receiver.address, AtomicUsize::new(0));
    let mut behind = Vec::new();
    std::thread::scope(|scope| {
        let floods: Vec<_> =
            (0..FLOODS).map(|_| scope.spawn(|| forge(to, FORGED / FLOODS, &answered))).collect();
        while floods.iter().any(|flood| !flood.is_finished()) || behind.len() < 10 {
            let body = stripe_event(&format!("evt_{}", behind.len()), "a.b", "");
            let header = crate::support::stripe_header(&body, 0);
            let before = answered.load(Ordering::Relaxed);
            let (code, _) = crate::support::post(to, "/hooks/other", &header, body.as_bytes());
            behind.push(answered.load(Ordering::Relaxed) - before);
            assert_eq!(code, 200);
        }
    });
    behind.sort_unstable();
    let (median, worst) = (behind[behind.len() / 2], behind[behind.len() - 1]);
    // In forged deliveries, because a load on the machine delays them alike. A genuine one also waits for its flush, and
    // a busy disk may delay a single one.
    assert!(median < FORGED / 50, "genuine deliveries are answered behind {median} forged ones");
    assert!(worst < FORGED / 4 * 3, "a genuine delivery was answered behind {worst} forged ones");

    let kept = site.json(&["quarantine", "--limit", "100000"]);
    let from = |address: &str| {
        let deliveries = kept["deliveries"].as_array().unwrap().iter();
        deliveries.filter(|delivery| delivery["address"] == address).count()
    };
    assert_eq!(from("127.0.0.1"), SENT);
    assert!(from("127.0.0.2") > 50, "{}", from("127.0.0.2"));
    assert!(kept["bytes"].as_u64().unwrap() <= 1 << 20);
    let left_out = kept["left_out"]["github"].as_object().unwrap();
    let left_out: u64 = left_out.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(left_out as usize + from("127.0.0.2"), FORGED, "{kept:#}");

    receiver.stop();
    correct_secret(&site);
    let _receiver = site.start();
    let done = verdicts(&site, &["accept", "--yes"]);
    assert_eq!(done["accepted"], SENT as u64);
    assert_eq!(
        done["bad"]["bad_signature"],
        from("127.0.0.2") as u64,
        "the forgeries still do not verify"
    );
}

#[test]
fn the_client_address_is_taken_from_a_trusted_proxy_only() {
    let site = site("");
    let config = fs::read_to_string(site.config()).unwrap();
    let listen = "listen = \"127.0.0.1:0\"";
    let trusting = format!("{listen}\ntrusted_proxies = [\"127.0.0.2\"]");
    site.write_config(config.replace(listen, &trusting));
    let receiver = site.start();
    for from in ["127.0.0.1", "127.0.0.2"] {
        let mut stream = connect_from(from, receiver.address);
        let request = "POST /github HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\
             X-Forwarded-For: 192.0.2.9, 198.51.100.7\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    let kept = site.json(&["quarantine"]);
    assert_eq!(kept["deliveries"][0]["address"], "198.51.100.7");
    assert_eq!(kept["deliveries"][1]["address"], "127.0.0.1");
}
