//! Who is answered on the metrics port, and how.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::metrics;
use crate::model::host;

/// The only path there is.
const PATH: &str = "/metrics";

/// Why `request` gets no page, or nothing where it gets one.
pub(super) fn refusal<B>(request: &Request<B>) -> Option<Response<Full<Bytes>>> {
    if !is_this_machine(request.headers()) {
        // A page in a browser can be given any name for this machine, and would read what is here.
        let told = "ask by an address or as localhost\n";
        return Some(text(StatusCode::FORBIDDEN, told));
    }
    if request.uri().path() != PATH {
        return Some(text(StatusCode::NOT_FOUND, "there is /metrics and nothing else\n"));
    }
    if request.method() != Method::GET {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return Some(response);
    }
    None
}

/// The page itself.
pub(super) fn page(page: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(page));
    let media = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

/// Whether the one Host is an IP address or `localhost`, with or without a port.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    host::is_this_machine(host.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn asked(method: &str, path: &str, hosts: &[&str]) -> u16 {
        let mut request = Request::builder().method(method).uri(path);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        refusal(&request.body(()).unwrap()).map_or(200, |response| response.status().as_u16())
    }

    #[test]
    fn only_a_get_of_the_page_from_this_machine_is_answered() {
        for host in
            ["127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:9464", "10.1.2.3:1", "LocalHost:9464"]
        {
            assert_eq!(asked("GET", "/metrics", &[host]), 200, "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9464",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::1",
            "[::1",
            "[127.0.0.1]",
            "[localhost]",
            "127.0.0.1:",
            "127.0.0.1:x",
            "localhost:99999",
        ] {
            assert_eq!(asked("GET", "/metrics", &[host]), 403, "{host}");
        }
        assert_eq!(asked("GET", "/metrics", &[]), 403);
        assert_eq!(asked("GET", "/metrics", &["localhost", "evil.example"]), 403);
        assert_eq!(asked("GET", "/metrics?x=1", &["localhost"]), 200);
        for path in ["/", "/metrics/", "/healthz", "/github"] {
            assert_eq!(asked("GET", path, &["localhost"]), 404, "{path}");
        }
        for method in ["POST", "HEAD", "DELETE", "OPTIONS"] {
            assert_eq!(asked(method, "/metrics", &["localhost"]), 405, "{method}");
        }
    }
}
