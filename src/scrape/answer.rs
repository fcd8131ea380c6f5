//! The answers on the metrics port.

use actix_web::HttpResponse;
use actix_web::dev::RequestHead;
use actix_web::http::Method;
use actix_web::http::header::{ALLOW, HOST, HeaderMap};

use crate::model::host;

/// The only path.
const PATH: &str = "/metrics";

/// The refusal of a request that does not get the page.
pub(super) fn refusal(head: &RequestHead) -> Option<HttpResponse> {
    let (mut response, detail) = if !is_this_machine(&head.headers) {
        // A web page can give this machine any name, and would read the metrics through a browser.
        (HttpResponse::Forbidden(), "ask by an address or as localhost\n")
    } else if head.uri.path() != PATH {
        (HttpResponse::NotFound(), "there is /metrics and nothing else\n")
    } else if head.method != Method::GET {
        let mut response = HttpResponse::MethodNotAllowed();
        response.insert_header((ALLOW, "GET"));
        (response, "GET only\n")
    } else {
        return None;
    };
    Some(response.content_type("text/plain; charset=utf-8").body(detail))
}

/// Whether the one Host is an IP address or `localhost`, with or without a port.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST);
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    host::is_this_machine(host.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn asked(method: &str, path: &str, hosts: &[&str]) -> u16 {
        let mut head = RequestHead::default();
        head.method = method.parse().unwrap();
        head.uri = path.parse().unwrap();
        for host in hosts {
            head.headers.append(HOST, HeaderValue::from_str(host).unwrap());
        }
        refusal(&head).map_or(200, |response| response.status().as_u16())
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
