//! Measures running stored jobs of a forward, compared with its HTTP client alone, which sends requests from
//! memory and does not store.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::handler::{Cancellation, ForwardSettings, Target};
use hooklatch::model::{EventType, Facts, Headers, Outcome};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::accepts::Fresh;
use super::backlog::{ABREAST, Backlog};
use super::requests::Kind;
use super::table::{Bounds, Good, REPORTED_HIGH, Table};

/// The jobs of one round: three seconds at 4,000 per second.
const JOBS: usize = 12_000;

/// The longest time of a forward before the bench fails.
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) fn measure(table: &Table) {
    let name = "forwards per second, 8 at once";
    if !table.wants(name) {
        return;
    }
    let (fresh, jobs) = (Fresh::default(), JOBS / table.effort.divide);
    let endpoint = endpoint();
    let backlog = Backlog::of(&format!(r#"forward = "http://{endpoint}/""#));
    let bounds = Bounds { good: Good::High, floor: REPORTED_HIGH, aim: 0.6 };
    let ceiling = || client(endpoint, &fresh.take(Kind::GitHub, jobs));
    let measured = || backlog.rate(&fresh.take(Kind::GitHub, jobs));
    table.compare(name, bounds, "/s", ceiling, measured);
}

/// Starts an endpoint in a separate thread, which reads each request to its end and answers 204. It runs as
/// long as the process.
pub(crate) fn endpoint() -> SocketAddr {
    let (started, address) = mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            started.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                tokio::spawn(served);
            }
        })
    });
    address.recv().unwrap()
}

async fn answer(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    request.into_body().collect().await.unwrap();
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Sends the requests from memory with the forwards' client alone. Returns the requests per second.
fn client(endpoint: SocketAddr, requests: &[Vec<u8>]) -> f64 {
    let settings = ForwardSettings {
        resigners: std::sync::Arc::default(),
        target: Target::parse(&format!("http://{endpoint}/")).unwrap(),
        timeout: LONGEST,
        connect_timeout: LONGEST,
        answer_bytes: 0,
        whole_answer_bytes: None,
        request: None,
    };
    let stop = Cancellation::default();
    let clock = Clock::system();
    let all: Vec<Facts> = requests.iter().map(|request| facts(request)).collect();
    let next = Cell::new(0);
    let send = async || {
        while let Some(facts) = all.get(next.replace(next.get() + 1)) {
            let report = settings.run(facts, &stop, &clock).await;
            assert_eq!(report.outcome, Outcome::Succeeded);
        }
    };
    let begun = Instant::now();
    runtime().block_on(futures_util::future::join_all((0..ABREAST).map(|_| send())));
    requests.len() as f64 / begun.elapsed().as_secs_f64()
}

/// The facts that an attempt gets about this delivery.
fn facts(request: &[u8]) -> Facts {
    let end = request.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    let mut headers = Headers::new();
    for line in std::str::from_utf8(&request[..end]).unwrap().split("\r\n").skip(1) {
        let (name, value) = line.split_once(": ").unwrap();
        if name.starts_with("X-") || name == "Content-Type" {
            headers.push(name, value);
        }
    }
    let delivery = headers.all("X-GitHub-Delivery").next().unwrap();
    let delivery = std::str::from_utf8(delivery).unwrap().parse().unwrap();
    let now = Clock::system().now();
    Facts {
        handler: "job".parse().unwrap(),
        job: hooklatch::random::job_id(now),
        attempt: 1,
        replays: 0,
        source: "github".parse().unwrap(),
        caller: None,
        event_id: delivery,
        event_type: EventType::from_raw("push"),
        received_at: now,
        headers,
        body: Bytes::copy_from_slice(&request[end + 4..]),
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
