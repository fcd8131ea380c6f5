//! An HTTP/1.1 client that writes raw bytes, so that a test can send requests that no library sends.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait for the server: a test that reaches it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// One parsed answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// The value of the header `name`, if it is there.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Whether the server announced that it closes the connection.
    pub(crate) fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The JSON string at `key`, if it is there.
    pub(crate) fn json(&self, key: &str) -> Option<String> {
        let value: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        value.get(key).and_then(|value| value.as_str()).map(str::to_owned)
    }

    /// What the receiver says happened: the headers `Hooklatch-NAME`, as `name=value`, sorted.
    pub(crate) fn facts(&self) -> Vec<String> {
        let fact = |(name, value): &(String, String)| {
            let name = name.to_lowercase();
            Some(format!("{}={value}", name.strip_prefix("hooklatch-")?))
        };
        let mut facts: Vec<String> = self.headers.iter().filter_map(fact).collect();
        facts.sort();
        facts
    }

    /// The value of the header `Hooklatch-NAME`.
    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        self.header(&format!("Hooklatch-{name}"))
    }
}

/// One connection.
pub(crate) struct Raw(BufReader<TcpStream>);

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Raw(BufReader::new(stream))
    }

    /// Sends all of `bytes`.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.unwrap();
    }

    /// Sends `bytes`; fails if the server has closed the connection.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        timeout(PATIENCE, self.0.write_all(bytes)).await.expect("the server reads")
    }

    /// Closes the sending side of the connection; answers can still be read.
    pub(crate) async fn half_close(&mut self) {
        self.0.shutdown().await.unwrap();
    }

    /// Reads one answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("an answer")
    }

    /// Sends a byte at each interval until the server answers.
    pub(crate) async fn answer_to_a_trickle(&mut self, every: Duration) -> Answer {
        let mut beat = tokio::time::interval(every);
        let trickle = async {
            loop {
                tokio::select! {
                    answered = self.0.get_ref().readable() => return answered.unwrap(),
                    _ = beat.tick() => {}
                }
                self.0.write_all(b"x").await.unwrap();
            }
        };
        timeout(PATIENCE, trickle).await.expect("an answer in time");
        self.answer().await
    }

    /// Reads one answer; `None` if the connection ends instead.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        timeout(PATIENCE, self.read_answer()).await.expect("an answer in time")
    }

    async fn read_answer(&mut self) -> Option<Answer> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: String::new() };
        if status >= 200 {
            let length =
                answer.header("content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).await.ok()?;
            answer.body = String::from_utf8(body).unwrap();
        }
        Some(answer)
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).await.ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Waits for the server to end the connection, by closing or by a reset.
    pub(crate) async fn ended(&mut self) {
        let mut rest = Vec::new();
        let _ =
            timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the server hangs up");
        assert!(rest.is_empty(), "unexpected: {}", String::from_utf8_lossy(&rest));
    }
}

/// A request's head with `Host` and these headers.
pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// A whole POST request with its `Content-Length`.
pub(crate) fn post(path: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let mut all = headers.to_vec();
    all.push(("Content-Length", length.as_bytes()));
    let mut bytes = head("POST", path, &all);
    bytes.extend_from_slice(body);
    bytes
}
