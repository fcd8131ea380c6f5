//! Running stored jobs of a forward, beside the HTTP client alone on connections that are kept.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::accepts::Fresh;
use super::backlog::{ABREAST, Backlog};
use super::requests::Kind;
use super::table::{Bounds, Good, Table};

/// Jobs of one round: at 4,000 a second three seconds.
const JOBS: usize = 12_000;

pub(crate) fn measure(table: &Table) {
    let name = "forwards per second to a keep-alive endpoint, 8 at once";
    if !table.wants(name) {
        return;
    }
    let (fresh, jobs) = (Fresh::default(), JOBS / table.effort.divide);
    let endpoint = endpoint();
    let backlog = Backlog::of(&format!(r#"forward = "http://{endpoint}/""#));
    let bounds = Bounds { good: Good::High, floor: 0.4, aim: 0.6 };
    let ceiling = || client(endpoint, &fresh.take(Kind::GitHub, jobs), usize::MAX);
    let measured = || backlog.rate(&fresh.take(Kind::GitHub, jobs));
    table.compare(name, bounds, "/s", ceiling, measured);
    let single = client(endpoint, &fresh.take(Kind::GitHub, jobs), 1);
    table.remark(&format!("The client alone, on a connection for each request: {single:.0} /s."));
}

/// An endpoint that reads each request to its end and answers 204, in a thread of its own. It lives as
/// long as the process.
fn endpoint() -> SocketAddr {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                tokio::spawn(served);
            }
        })
    });
    told.recv().unwrap()
}

async fn answer(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    request.into_body().collect().await.unwrap();
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Sends the bodies of these requests to `endpoint`, so many on a connection: how many a second.
fn client(endpoint: SocketAddr, requests: &[Vec<u8>], kept: usize) -> f64 {
    let bodies: Vec<Bytes> = requests.iter().map(|request| body(request)).collect();
    let next = Cell::new(0);
    let take = || bodies.get(next.replace(next.get() + 1)).cloned();
    let send = async || {
        let mut body = take();
        while body.is_some() {
            let stream = TcpStream::connect(endpoint).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..kept {
                let Some(this) = body else { return };
                post(&mut sender, endpoint, this).await;
                body = take();
            }
        }
    };
    let begun = Instant::now();
    runtime().block_on(futures_util::future::join_all((0..ABREAST).map(|_| send())));
    requests.len() as f64 / begun.elapsed().as_secs_f64()
}

async fn post(sender: &mut SendRequest<Full<Bytes>>, endpoint: SocketAddr, body: Bytes) {
    let request = Request::post("/")
        .header(HOST, endpoint.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .unwrap();
    sender.ready().await.unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    response.into_body().collect().await.unwrap();
}

fn body(request: &[u8]) -> Bytes {
    let head = request.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    Bytes::copy_from_slice(&request[head..])
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
