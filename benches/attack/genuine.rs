//! Genuine deliveries at a fixed rate, each on a new connection, as providers make them.
//!
//! A delivery's time counts from the moment it was due, so that a stall also counts for the deliveries that
//! it delays.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::receiver::{PATH, SECRET};

/// Deliveries per second.
pub(crate) const RATE: u32 = 200;

/// The number of threads that deliver: a stalled thread does not delay the others.
const THREADS: u32 = 20;

/// The longest wait of a provider; after that the delivery has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A body's size: GitHub's push events have some KiB.
const BODY_BYTES: usize = 4096;

/// The rate of deliveries that are too large for the reserve for small bodies. Only their success counts.
const LARGE_RATE: u32 = 4;
const LARGE_BODY_BYTES: usize = 200 * 1024;

/// The latencies of the deliveries.
pub(crate) struct Latencies {
    sorted: Vec<Duration>,
    /// The number of deliveries without a 200.
    pub(crate) failed: usize,
}

impl Latencies {
    /// Joins the latencies of several rounds.
    pub(crate) fn of_all<'a>(rounds: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let mut sorted: Vec<Duration> =
            rounds.clone().flat_map(|round| round.sorted.clone()).collect();
        sorted.sort();
        Self { sorted, failed: rounds.map(|round| round.failed).sum() }
    }

    pub(crate) fn p50(&self) -> f64 {
        self.share(0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.share(0.99)
    }

    /// The latency that this share of the deliveries does not exceed, in milliseconds; infinite without a delivery.
    fn share(&self, share: f64) -> f64 {
        let at = (self.sorted.len() as f64 * share) as usize;
        let time = self.sorted.get(at.min(self.sorted.len().saturating_sub(1)));
        time.map_or(f64::INFINITY, |time| time.as_secs_f64() * 1000.0)
    }
}

/// Delivers for `length`.
pub(crate) fn deliver(receiver: SocketAddr, length: Duration) -> Latencies {
    let start = Instant::now() + Duration::from_millis(50);
    let deliver = move |first, step, rate, bytes| -> Vec<io::Result<Duration>> {
        let due = (first..rate * length.as_secs() as u32).step_by(step);
        due.map(|number| one(receiver, start + Duration::from_secs(1) * number / rate, bytes))
            .collect()
    };
    let large = std::thread::spawn(move || deliver(0, 1, LARGE_RATE, LARGE_BODY_BYTES));
    let thread =
        |first| std::thread::spawn(move || deliver(first, THREADS as usize, RATE, BODY_BYTES));
    let threads: Vec<_> = (0..THREADS).map(thread).collect();
    let all = threads.into_iter().flat_map(|thread| thread.join().unwrap());
    let (well, bad): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
    let mut sorted: Vec<Duration> = well.into_iter().flatten().collect();
    sorted.sort();
    let large = large.join().unwrap().into_iter().filter(Result::is_err).count();
    Latencies { sorted, failed: bad.len() + large }
}

/// Makes one delivery, and returns the time until it is answered 200.
fn one(receiver: SocketAddr, due: Instant, bytes: usize) -> io::Result<Duration> {
    let request = request(bytes);
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    let mut stream = TcpStream::connect_timeout(&receiver, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&request)?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    match &status {
        b"HTTP/1.1 200" => Ok(due.elapsed()),
        _ => Err(io::Error::other(String::from_utf8_lossy(&status).into_owned())),
    }
}

/// A delivery of a new event, as GitHub makes it.
fn request(bytes: usize) -> Vec<u8> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let filling = "x".repeat(bytes);
    let body = format!(r#"{{"number":{number},"filling":"{filling}"}}"#);
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signature = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\n\
         X-GitHub-Delivery: genuine-{number}\r\nX-Hub-Signature-256: sha256={signature}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
