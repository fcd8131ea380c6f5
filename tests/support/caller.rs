//! A caller of a source with stored answers: it sends a request with an idempotency key and reads the
//! answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::PATIENCE;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// `created` or `reused` for a handler's answer; otherwise `None`.
    pub(crate) result: Option<String>,
    /// All other header lines, sorted, without `Date`, `Connection` and `Content-Length`.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Answered {
    /// The answer as a repeated request gets it.
    pub(crate) fn reused(self) -> Self {
        Answered { result: Some("reused".to_owned()), ..self }
    }

    /// Whether the answer has this status, result and body.
    pub(crate) fn is(&self, status: u16, result: &str, body: &str) -> bool {
        (self.status, self.result.as_deref(), &*self.body) == (status, Some(result), body)
    }

    /// The value of a header line, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let begin = format!("{name}: ");
        self.headers.iter().find_map(|line| line.strip_prefix(&begin))
    }
}

/// Sends a request to `/pay`; [`answer`] reads the answer.
pub(crate) fn send(address: SocketAddr, headers: &str, body: &str) -> std::io::Result<TcpStream> {
    send_to(address, "/pay", headers, body)
}

/// Sends a request to another target.
pub(crate) fn send_to(
    address: SocketAddr,
    target: &str,
    headers: &str,
    body: &str,
) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let request = format!(
        "POST {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads the answer; `None` if the connection ends without a complete one.
pub(crate) fn answer(mut stream: TcpStream) -> Option<Answered> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok()?;
    let all = String::from_utf8(all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let (mut result, mut headers, mut length) = (None, Vec::new(), None);
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        match name.to_ascii_lowercase().as_str() {
            "idempotency-result" => result = Some(value.to_owned()),
            "date" | "connection" => {}
            "content-length" => length = Some(value.parse::<usize>().unwrap()),
            name => headers.push(format!("{name}: {value}")),
        }
    }
    headers.sort();
    // Ignores an incomplete answer: the receiver may be killed while it writes.
    (length == Some(body.len())).then(|| Answered {
        status,
        result,
        headers,
        body: body.to_owned(),
    })
}

/// The header lines of a caller, whose token is its name followed by `-token`.
pub(crate) fn by(caller: &str, key: &str) -> String {
    format!("Authorization: Bearer {caller}-token\r\nIdempotency-Key: {key}\r\n")
}
