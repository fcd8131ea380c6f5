//! Measures stored answers: repeats of requests that were answered before.

use super::ceiling::UNSTORED;
use super::load::flood;
use super::requests::SECRET;
use super::site::Site;
use super::table::{Bounds, Good, Table};

const REUSED: &str = "stored answers of 1 KB to requests of 2.5 KB, 64 connections";

/// A source of callers with a token, with or without `reply`, and a handler that prints 1 KB.
const SOURCE: &str = r#"
[sources.callers]
provider = "bearer"
path = "/callers"
secrets = ["file:secret"]
REPLY
[handlers.answer]
source = "callers"
events = ["*"]
command = ["/usr/bin/head", "-c", "1024", "/dev/zero"]
concurrency = 4
"#;

/// The number of different keys; each is answered once before the measurement.
const KEYS: usize = 1_000;

/// The requests of one round.
const REQUESTS: usize = 200_000;

pub(crate) fn measure(table: &Table) {
    if !table.wants(REUSED) {
        return;
    }
    let with = |reply: &str, limits: &str| Site::new(&(SOURCE.replace("REPLY", reply) + limits));
    let plain = with("", "\n[limits]\ndisk_floor_bytes = \"1 PiB\"\n");
    let site = with("reply = \"handler\"\nrequests_per_minute = 0", "");
    let (verifier, receiver) = (plain.start(), site.start());
    let keys: Vec<Vec<u8>> = (0..KEYS / table.effort.divide).map(request).collect();
    flood(receiver.address, &keys, 4, 200);
    let count = REQUESTS / table.effort.divide;
    let requests: Vec<Vec<u8>> = keys.iter().cycle().take(count).cloned().collect();
    let bounds = Bounds { good: Good::High, floor: 0.5, aim: 0.8 };
    let ceiling = || flood(verifier.address, &requests, 64, UNSTORED).rate();
    let measured = || flood(receiver.address, &requests, 64, 200).rate();
    table.compare(REUSED, bounds, "/s", ceiling, measured);
}

fn request(number: usize) -> Vec<u8> {
    let body =
        format!(r#"{{"order":{number},"note":"{}"}}"#, "a note of the caller's ".repeat(108));
    format!(
        "POST /callers HTTP/1.1\r\nHost: internal.example.com\r\nAuthorization: Bearer {SECRET}\r\n\
         Idempotency-Key: \"order-{number}\"\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
