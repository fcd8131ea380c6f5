//! The load: clients with keep-alive connections, in one thread.
//!
//! [`flood`] sends the next request as soon as the last one is answered. [`pace`] sends at a fixed rate and
//! counts a delivery's time from the moment it was due, so that a stall also counts for the deliveries that
//! it delays.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The result of a load.
pub(crate) struct Outcome {
    /// The time from the first request to the last answer.
    pub(crate) took: Duration,
    /// The latency of each request, in no particular order.
    pub(crate) latencies: Vec<Duration>,
}

impl Outcome {
    /// The answered requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    /// The quantile `share` of the latencies, in milliseconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.latencies, share)
    }
}

/// The quantile `share` of `times`, in milliseconds.
pub(crate) fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len() - 1);
    sorted[at].as_secs_f64() * 1000.0
}

/// Sends all `requests` over the connections, each as soon as possible. Every answer must have `status`.
pub(crate) fn flood(
    address: SocketAddr,
    requests: &[Vec<u8>],
    connections: usize,
    status: u16,
) -> Outcome {
    run(address, requests, connections, status, None)
}

/// Sends `requests` at a fixed rate per second.
pub(crate) fn pace(
    address: SocketAddr,
    requests: &[Vec<u8>],
    connections: usize,
    status: u16,
    rate: f64,
) -> Outcome {
    run(address, requests, connections, status, Some(rate))
}

fn run(
    address: SocketAddr,
    requests: &[Vec<u8>],
    connections: usize,
    status: u16,
    rate: Option<f64>,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (next, latencies) = (Cell::new(0), RefCell::new(Vec::with_capacity(requests.len())));
    let took = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(Client::connect(address).await);
        }
        let begun = Instant::now();
        let due = |at: usize| rate.map(|rate| begun + Duration::from_secs_f64(at as f64 / rate));
        let all = clients.into_iter().map(|mut client| {
            let (next, latencies) = (&next, &latencies);
            async move {
                loop {
                    let at = next.replace(next.get() + 1);
                    let Some(request) = requests.get(at) else { return };
                    let free = Instant::now();
                    let mut from = free;
                    if let Some(due) = due(at) {
                        tokio::time::sleep_until(due.into()).await;
                        // If this client was free in time, a delay of up to a millisecond comes from its
                        // timer; otherwise the receiver delayed it.
                        from = if free > due { due } else { Instant::now() };
                    }
                    client.send(request, status).await;
                    latencies.borrow_mut().push(from.elapsed());
                }
            }
        });
        futures_util::future::join_all(all).await;
        begun.elapsed()
    });
    Outcome { took, latencies: latencies.into_inner() }
}

/// One connection.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::with_capacity(4096) }
    }

    /// Sends one request and reads its answer to the end.
    async fn send(&mut self, request: &[u8], status: u16) {
        self.stream.write_all(request).await.unwrap();
        self.buffer.clear();
        loop {
            assert_ne!(self.stream.read_buf(&mut self.buffer).await.unwrap(), 0, "no answer");
            if let Some(length) = answer_length(&self.buffer)
                && self.buffer.len() >= length
            {
                break;
            }
        }
        let got = std::str::from_utf8(&self.buffer[9..12]).unwrap();
        let answer = || String::from_utf8_lossy(&self.buffer);
        assert_eq!(got.parse::<u16>().unwrap(), status, "{}", answer());
    }
}

/// The length of the answer at the beginning of the buffer; `None` until its head is complete.
fn answer_length(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let body = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    Some(head + body.unwrap_or(0))
}
