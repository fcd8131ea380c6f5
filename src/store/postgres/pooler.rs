//! Recognises a pooler that is not in session mode, before anything is set on a connection (N10).
//!
//! Settings, prepared statements and LISTEN would reach other clients of such a pooler. So until the mode is proven,
//! this program only reads, and prepares no statement.
//!
//! - A server names its backend's process at the login. A pooler names a random number (PgBouncer 1.18 and 1.25,
//!   proto.c), as any of its connections may serve the client. Where the backend is the named process, no pooler is in
//!   front. The server itself compares the two, in the statement that makes the settings.
//! - In session mode a client has its backend to itself until it disconnects: each keeps its own, and no two open
//!   clients have the same. In transaction and statement mode an idle client has none. A pool that no other program
//!   uses gives the next client the backend that was used last, or with `server_round_robin` gives the same client
//!   another one. Clients of other programs make both a matter of chance, so this program looks often.
//! - Several poolers may have one address. Among more connections than there are poolers, two meet at one.

use std::future::{Ready, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage, SimpleQueryRow};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::mutex::lock;

/// Connections that are opened in addition, one after the other, and closed at the end: as many as there may be
/// poolers behind one address.
const PARTNERS: usize = 4;

/// Rounds of three looks with each partner. Where others keep all of a pool's backends busy, each look meets any of
/// them. If it meets each of two equally often, a round misses the mode once in 8, and all rounds once in 8^12.
const ROUNDS: usize = 3;

/// How long a partner waits for a backend before the pool counts as used up. PgBouncer opens a connection to the
/// server in milliseconds.
const WAIT: Duration = Duration::from_secs(1);

/// The process of the backend that serves this client until it disconnects. `None` if the pooler gives it to others.
pub(super) async fn find_backend(
    host: &Config,
    tls: &MakeRustlsConnect,
    client: &Client,
) -> Result<Option<i32>, Error> {
    let own = backend(client).await?;
    let (mut partners, mut backends) = (Vec::new(), vec![own]);
    for _ in 0..PARTNERS {
        let (partner, connection) = host.connect(tls.clone()).await?;
        // It ends with its client.
        tokio::spawn(connection);
        let Some(found) = first_backend(&partner, client).await? else {
            // Not in session mode, their pooler serves those first that have waited for longer.
            return Ok(Some(own));
        };
        if backends.contains(&found) {
            return Ok(None);
        }
        for _ in 0..ROUNDS {
            // Twice, since a partner in between may give each of two backends in turn to the same client.
            for (client, expected) in [(client, own), (client, own), (&partner, found)] {
                if backend(client).await? != expected {
                    return Ok(None);
                }
            }
        }
        backends.push(found);
        partners.push(partner);
    }
    Ok(Some(own))
}

/// The partner's backend. `None` if it waits for one while `client` is served.
async fn first_backend(partner: &Client, client: &Client) -> Result<Option<i32>, Error> {
    let mut answer = pin!(backend(partner));
    if let Ok(found) = timeout(WAIT, answer.as_mut()).await {
        return found.map(Some);
    }
    for _ in 0..ROUNDS {
        backend(client).await?;
    }
    answer.now_or_never().transpose()
}

/// The process that serves this client now. In the simple protocol nothing stays prepared.
async fn backend(client: &Client) -> Result<i32, Error> {
    let said = client.simple_query("SELECT pg_backend_pid()").await?;
    let process = said.into_iter().find_map(row).and_then(|row| row.try_get(0).ok()??.parse().ok());
    Ok(process.unwrap_or_default())
}

pub(super) fn row(message: SimpleQueryMessage) -> Option<SimpleQueryRow> {
    match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    }
}

/// The process that the server named at the login. The driver shows it only in a request to cancel, which is therefore
/// written into memory.
pub(super) fn login_process(client: &Client) -> Option<i32> {
    let sent = Memory::default();
    let request = client.cancel_token();
    request.cancel_query_raw(sent.clone(), sent.clone()).now_or_never()?.ok()?;
    let sent = lock(&sent.0);
    // At the end of the request: the process and its key, of four bytes each.
    let [process @ .., _, _, _, _] = sent.last_chunk::<8>()?;
    Some(i32::from_be_bytes(*process))
}

/// Stands for a server that agrees to TLS, and keeps what it receives in clear text.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl AsyncRead for Memory {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for Memory {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl TlsConnect<Memory> for Memory {
    type Stream = Memory;
    type Error = io::Error;
    type Future = Ready<io::Result<Memory>>;

    fn connect(self, stream: Memory) -> Self::Future {
        ready(Ok(stream))
    }
}
