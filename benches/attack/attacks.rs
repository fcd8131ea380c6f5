//! The attacks as data: a number of connections, each of which repeats one step at a fixed rate.

use std::time::Duration;

use super::receiver::PATH;

/// One attack.
#[derive(Clone)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The number of concurrent connections; one that the receiver closes is opened again.
    pub(crate) connections: u32,
    /// The pause between two steps of a connection.
    pub(crate) pause: Duration,
    /// Sent when a connection is opened.
    pub(crate) opening: Vec<u8>,
    /// Sent at each step.
    pub(crate) step: Vec<u8>,
    pub(crate) manner: Manner,
}

impl Attack {
    /// Whether it consists of connections only, whose memory must be bounded and returned.
    pub(crate) fn is_flood(&self) -> bool {
        self.pause == FLOOD
    }
}

/// What happens to a connection after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It stays, and answers are read.
    Stays,
    /// It stays, and no answer is read.
    Deaf,
    /// It is closed; the next step opens another.
    Closes,
}

const MIB: usize = 1024 * 1024;

/// The time in which all connections of a flood are opened.
const FLOOD: Duration = Duration::from_secs(5);

/// Every attack, each at a rate that one core can sustain against a sink.
pub(crate) fn all() -> Vec<Attack> {
    use Manner::{Closes, Deaf, Stays};
    let per_second = |steps: u32| Duration::from_secs(1) / steps;
    let attack = |name, connections, steps, opening: &[u8], step: Vec<u8>, manner| Attack {
        name,
        connections,
        pause: per_second(steps),
        opening: opening.to_vec(),
        step,
        manner,
    };
    let mass = |name, connections, opening: &[u8]| Attack {
        pause: FLOOD,
        ..attack(name, connections, 1, opening, Vec::new(), Stays)
    };
    let garbage = b"\x00\xff GARBAGE\r\n\r\n".repeat(100);
    vec![
        attack(
            "slow heads",
            2000,
            1,
            format!("POST {PATH} HTTP/1.1\r\nX-A: ").as_bytes(),
            b"a".to_vec(),
            Stays,
        ),
        attack("slow bodies", 2000, 1, &forged_head("Content-Length: 60000"), b"a".to_vec(), Stays),
        attack(
            "slow large bodies",
            2000,
            1,
            &forged_head("Content-Length: 20000000"),
            b"a".to_vec(),
            Stays,
        ),
        attack("forged bodies of 1 MiB", 20, 1, b"", forged(MIB), Stays),
        attack("forged bodies of 20 MiB", 2, 2, b"", forged(20 * MIB), Stays),
        attack("forged bodies of 2 KiB", 50, 10, b"", forged(2048), Stays),
        attack(
            "endless chunks",
            16,
            16,
            &forged_head("Transfer-Encoding: chunked"),
            chunk(65536),
            Stays,
        ),
        attack(
            "chunks of one byte",
            16,
            4,
            &forged_head("Transfer-Encoding: chunked"),
            b"1\r\nx\r\n".repeat(2000),
            Stays,
        ),
        attack("pipelined requests", 20, 2, b"", unknown().repeat(100), Stays),
        attack("pipelined garbage", 20, 2, b"", garbage, Stays),
        attack("heads of 190 lines", 20, 10, b"", head(&"X-Flood: a\r\n".repeat(190)), Closes),
        attack(
            "heads of 60 KiB",
            20,
            10,
            b"",
            head(&format!("X-Flood: {}\r\n", "a".repeat(60_000))),
            Closes,
        ),
        attack(
            "endless heads",
            100,
            10,
            format!("POST {PATH} HTTP/1.1\r\n").as_bytes(),
            flood(),
            Stays,
        ),
        attack("connections, opened and closed", 50, 10, b"", Vec::new(), Closes),
        attack("unknown paths", 20, 50, b"", unknown(), Stays),
        attack("answers never read", 200, 1, b"", unknown().repeat(20), Deaf),
        // Each of these connections is opened once in five seconds, and again if it was closed.
        mass("15,000 stalled bodies", 15_000, &stalled_head("")),
        mass("15,000 stalled bodies, 90 headers each", 15_000, &stalled_head(&lines(90, 1))),
        mass("6,000 endless heads of 60 KiB", 6_000, &head(&lines(90, 700))[..60_000]),
        mass(
            "6,000 stalled bodies, 90 headers of 700 bytes",
            6_000,
            &stalled_head(&lines(90, 700)),
        ),
    ]
}

/// A head with a well-formed but wrong signature.
fn forged_head(line: &str) -> Vec<u8> {
    let signature = "0".repeat(64);
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: attack\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: forged\r\n\
         X-Hub-Signature-256: sha256={signature}\r\n{line}\r\n\r\n"
    )
    .into_bytes()
}

/// A head without the body that it declares.
fn stalled_head(lines: &str) -> Vec<u8> {
    forged_head(&format!("{lines}Content-Length: 60000"))
}

/// `count` header lines with values of `bytes` bytes.
fn lines(count: usize, bytes: usize) -> String {
    (0..count).map(|n| format!("X-{n}: {}\r\n", "a".repeat(bytes))).collect()
}

/// A whole delivery that is not genuine.
fn forged(bytes: usize) -> Vec<u8> {
    [forged_head(&format!("Content-Length: {bytes}")), vec![b'x'; bytes]].concat()
}

fn chunk(bytes: usize) -> Vec<u8> {
    [format!("{bytes:x}\r\n").into_bytes(), vec![b'x'; bytes], b"\r\n".to_vec()].concat()
}

fn unknown() -> Vec<u8> {
    b"POST /nobody-is-here HTTP/1.1\r\nHost: attack\r\nContent-Length: 5\r\n\r\nhello".to_vec()
}

fn head(lines: &str) -> Vec<u8> {
    format!("POST {PATH} HTTP/1.1\r\nHost: attack\r\n{lines}\r\n").into_bytes()
}

/// Lines of a head without an end.
fn flood() -> Vec<u8> {
    format!("X-Flood: {}\r\n", "a".repeat(1000)).into_bytes()
}
