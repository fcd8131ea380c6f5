//! The endpoint of a forward. Messages print it without its query, which may hold a token.

use std::fmt;
use std::path::PathBuf;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;

/// A local HTTP endpoint. Build one with [`Target::parse`].
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(super) server: Server,
    /// Path and query, at least `/`.
    path: String,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Server {
    /// `HOST:PORT` as written; the port is 80 where none is.
    Http(String),
    /// The socket's absolute path.
    Unix(PathBuf),
}

/// Longest path of a Unix socket in bytes: `sun_path` of unix(7) has 108 with its final zero.
const SOCKET_MAX_BYTES: usize = 107;

impl Target {
    /// Parses `http://HOST:PORT/PATH` or `unix:/SOCKET:/PATH`. The error is written after
    /// "cannot forward to …:".
    pub fn parse(text: &str) -> Result<Target, String> {
        if text.contains('#') {
            return Err("a fragment ('#') is never sent to a server: leave it out".into());
        }
        match text.split_once(':') {
            Some(("unix", rest)) => unix(rest),
            Some(("http", _)) => http(text),
            Some(("https", _)) => {
                Err("https is not supported: a forward goes to a local endpoint, \
                 so write http:// or unix:, with a proxy in between for a remote one"
                    .into())
            }
            _ => Err("expected http://HOST:PORT/PATH or unix:/SOCKET:/PATH".into()),
        }
    }

    /// Path and query as the request line has them.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Host and port, or the socket: what no value may stand in.
    pub fn place(&self) -> &str {
        match &self.server {
            Server::Http(authority) => authority,
            Server::Unix(socket) => socket.to_str().unwrap_or_default(),
        }
    }

    /// The target with this path, for an operator. A query may hold a secret and is not shown.
    pub fn shown(&self, path: &str) -> String {
        let (path, query) = path.split_once('?').map_or((path, ""), |(path, _)| (path, "?…"));
        match &self.server {
            Server::Http(authority) => format!("http://{authority}{path}{query}"),
            Server::Unix(socket) => format!("unix:{}:{path}{query}", socket.display()),
        }
    }

    /// The value of the Host header.
    pub fn host(&self) -> &str {
        match &self.server {
            Server::Http(authority) => authority,
            // RFC 9110, section 7.2 requires the header also for a target without a host.
            Server::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown(self.path()))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn http(text: &str) -> Result<Target, String> {
    let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    let authority = uri.authority().ok_or("the host is missing")?;
    if authority.as_str().contains('@') {
        return Err("a user or password in the URL is not supported".into());
    }
    if authority.host().is_empty() {
        return Err("the host is missing".into());
    }
    let after_host = authority.as_str().trim_start_matches(authority.host());
    if !after_host.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(format!("'{}' is not a port", after_host.trim_start_matches(':')));
    }
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(Target { server: Server::Http(authority.to_string()), path: format!("{slash}{path}") })
}

fn unix(rest: &str) -> Result<Target, String> {
    // The first ":/" ends the socket's path: the request's path begins with its slash.
    let (socket, path) = match rest.find(":/") {
        Some(colon) => (&rest[..colon], &rest[colon + 1..]),
        None => (rest, "/"),
    };
    if socket.contains('?') {
        return Err("a query belongs behind the path, as in unix:/run/app.sock:/PATH?QUERY".into());
    }
    if !socket.starts_with('/') {
        return Err(format!(
            "the socket's path must be absolute, as in unix:/run/app.sock:/PATH, \
             and '{socket}' is not"
        ));
    }
    if socket.len() > SOCKET_MAX_BYTES {
        let bytes = socket.len();
        return Err(format!(
            "the socket's path has {bytes} bytes; {SOCKET_MAX_BYTES} is the limit"
        ));
    }
    if socket.contains('\0') {
        return Err("the socket's path has a zero byte".into());
    }
    let path: PathAndQuery =
        path.parse().map_err(|error| format!("not a URL's path behind the socket's: {error}"))?;
    Ok(Target { server: Server::Unix(socket.into()), path: path.to_string() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written_and_shown_without_their_query() {
        for (text, host, path, shown) in [
            (
                "http://127.0.0.1:3000/hooks",
                "127.0.0.1:3000",
                "/hooks",
                "http://127.0.0.1:3000/hooks",
            ),
            ("http://localhost", "localhost", "/", "http://localhost/"),
            ("http://[::1]:8080/a?b=c&d", "[::1]:8080", "/a?b=c&d", "http://[::1]:8080/a?…"),
            ("http://app:80?x", "app:80", "/?x", "http://app:80/?…"),
            (
                "unix:/run/app.sock:/hooks?a=b:/c",
                "localhost",
                "/hooks?a=b:/c",
                "unix:/run/app.sock:/hooks?…",
            ),
            ("unix:/run/app.sock", "localhost", "/", "unix:/run/app.sock:/"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.host(), target.path()), (host, path), "{text}");
            assert_eq!((target.to_string(), format!("{target:?}")), (shown.into(), shown.into()));
        }
        let target = Target::parse("unix:/a:b/c.sock:/x").unwrap();
        assert!(target.server == Server::Unix("/a:b/c.sock".into()));
    }

    #[test]
    fn an_invalid_target_is_refused_with_the_reason() {
        let long = format!("unix:/{}:/", "s".repeat(107));
        for (text, part) in [
            ("https://127.0.0.1/", "https is not supported"),
            ("ftp://127.0.0.1/", "expected http://"),
            ("127.0.0.1:3000", "expected http://"),
            ("", "expected http://"),
            ("http:///hooks", "not a URL"),
            ("http://:80/", "host is missing"),
            ("http://user:secret@app/", "user or password"),
            ("http://app:99999/", "99999"),
            ("http://app:0/", "'0' is not a port"),
            ("http://app/a b", "not a URL"),
            ("http://app/#x", "fragment"),
            ("unix:run/app.sock:/", "must be absolute"),
            ("unix:/run/app.sock:/a b?secret", "not a URL's path"),
            ("unix:/run/app.sock?secret", "a query belongs behind the path"),
            (long.as_str(), "108 bytes; 107 is the limit"),
        ] {
            let error = Target::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
