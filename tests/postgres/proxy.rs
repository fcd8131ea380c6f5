//! A proxy that knows the frames of PostgreSQL's protocol (version 3): it counts and names the messages of both
//! sides, and cuts, holds or changes the one that a test chooses.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::server::{PATIENCE, Server};

/// The largest frame that passes.
const FRAME_BYTES: usize = 64 << 20;

/// `length` and `code` of the messages that have no type byte: a client's first one.
const SSL_REQUEST: u32 = 80_877_103;
const CANCEL_REQUEST: u32 = 80_877_102;
const STARTUP: u32 = 196_608;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What happens at the chosen message.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// It passes, and both connections are closed behind it. With message 0 they are closed before the first.
    Break,
    /// It passes, and the client's connection is closed as with [`Act::Break`], while the server reads to the end what
    /// was sent and can answer it all.
    Cut,
    /// It waits in the proxy until [`Proxy::release`]. All later messages of its side wait behind it.
    Hold,
    /// These bytes of it are replaced by others of the same length.
    Replace(&'static [u8], &'static [u8]),
}

struct Rule {
    side: Side,
    /// The number of the message, from 1.
    number: usize,
    act: Act,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    /// What passed of each side since [`Proxy::arm`].
    passed: [Vec<String>; 2],
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    /// How many times a rule has held a message, and how many of them were released.
    held: watch::Sender<(u32, u32)>,
    cut: watch::Sender<u32>,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Shared,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// A proxy on a loopback port, in front of the server's Unix socket.
    pub(crate) async fn start(server: &Server) -> Self {
        let socket = server.folder().join(format!(".s.PGSQL.{}", server.port));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared {
            state: Arc::default(),
            held: watch::Sender::new((0, 0)),
            cut: watch::Sender::new(0),
        };
        let task = tokio::spawn(serve(listener, socket, shared.clone()));
        Proxy { port, shared, task }
    }

    /// Counts from now on, and does `act` at message `number` of `side`, from 1.
    pub(crate) fn arm(&self, side: Side, number: usize, act: Act) {
        let mut state = self.shared.state.lock().unwrap();
        state.passed = Default::default();
        if number == 0 {
            state.rule = None;
            self.shared.cut.send_modify(|cut| *cut += 1);
        } else {
            state.rule = Some(Rule { side, number, act });
        }
    }

    /// Whether the connections that it was to close have been closed.
    pub(crate) fn has_cut(&self) -> bool {
        let state = self.shared.state.lock().unwrap();
        let has_passed = |rule: &Rule| state.passed[rule.side as usize].len() >= rule.number;
        state.rule.as_ref().is_some_and(has_passed)
    }

    /// Counts from now on, and lets everything pass.
    pub(crate) fn watch(&self) {
        *self.shared.state.lock().unwrap() = State::default();
    }

    /// The names of the messages that passed since the last [`Proxy::arm`] or [`Proxy::watch`].
    pub(crate) fn passed(&self, side: Side) -> Vec<String> {
        self.shared.state.lock().unwrap().passed[side as usize].clone()
    }

    /// Waits until a message is held.
    pub(crate) async fn holds(&self) {
        let mut held = self.shared.held.subscribe();
        let reached = held.wait_for(|(held, released)| held > released);
        tokio::time::timeout(PATIENCE, reached).await.expect("no message was held").unwrap();
    }

    /// Lets a held message and all behind it pass.
    pub(crate) fn release(&self) {
        self.shared.held.send_modify(|(held, released)| *released = *held);
    }
}

async fn serve(listener: TcpListener, socket: PathBuf, shared: Shared) {
    // Ends all pumps with the proxy.
    let mut pumps = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = UnixStream::connect(&socket).await else { continue };
        let shared = shared.clone();
        pumps.spawn(async move {
            let mut cut = shared.cut.subscribe();
            cut.mark_unchanged();
            // Whichever ends first closes both connections.
            tokio::select! {
                _ = pass(client, server, &shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn pass(client: TcpStream, server: UnixStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (client_read, mut client_write) = client.into_split();
    let (server_read, mut server_write) = server.into_split();
    let (mut client_read, mut server_read) =
        (BufReader::new(client_read), BufReader::new(server_read));
    loop {
        let (code, frame) = first_frame(&mut client_read).await?;
        let name = match code {
            STARTUP => "Startup",
            SSL_REQUEST => "SSLRequest",
            CANCEL_REQUEST => "CancelRequest",
            _ => return Err(io::Error::other(format!("first message of code {code}"))),
        };
        shared.forward(Side::Client, name.to_owned(), frame, &mut server_write).await?;
        match code {
            STARTUP => break,
            SSL_REQUEST => {
                // One byte, and TLS if it is an S: a Unix socket has none.
                let answer = server_read.read_u8().await?;
                assert_eq!(answer, b'N', "the server has TLS on its Unix socket");
                let name = "N of TLS".to_owned();
                shared.forward(Side::Server, name, vec![answer], &mut client_write).await?;
            }
            _ => return Ok(()),
        }
    }
    let ended = tokio::select! {
        ended = pump(Side::Client, &mut client_read, &mut server_write, shared) => ended,
        ended = pump(Side::Server, &mut server_read, &mut client_write, shared) => ended,
    };
    drop((client_read, client_write));
    let cause = ended.err().and_then(io::Error::into_inner).and_then(|end| end.downcast().ok());
    if let Some(Ended(Act::Cut)) = cause.as_deref() {
        server_write.shutdown().await?;
        tokio::io::copy(&mut server_read, &mut tokio::io::sink()).await?;
    }
    Ok(())
}

/// The act that ended a connection.
#[derive(Debug, thiserror::Error)]
#[error("ended by {0:?}")]
struct Ended(Act);

async fn pump(
    side: Side,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
) -> io::Result<()> {
    loop {
        let kind = from.read_u8().await?;
        let length = from.read_u32().await?;
        // The length counts itself.
        let body = read_body(&mut from, length, 4).await?;
        let name = name(side, kind, &body);
        let frame = [&[kind][..], &length.to_be_bytes(), &body].concat();
        shared.forward(side, name, frame, &mut to).await?;
    }
}

/// A frame without a type byte.
async fn first_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(u32, Vec<u8>)> {
    let length = from.read_u32().await?;
    let code = from.read_u32().await?;
    let body = read_body(from, length, 8).await?;
    Ok((code, [&length.to_be_bytes()[..], &code.to_be_bytes(), &body].concat()))
}

/// What follows the `head` bytes of a frame that are read already and counted by its length.
async fn read_body(
    from: &mut (impl AsyncRead + Unpin),
    length: u32,
    head: usize,
) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).unwrap();
    let body = length.checked_sub(head).filter(|body| *body <= FRAME_BYTES);
    let mut body =
        vec![0; body.ok_or_else(|| io::Error::other(format!("frame of {length} bytes")))?];
    from.read_exact(&mut body).await?;
    Ok(body)
}

impl Shared {
    async fn forward(
        &self,
        side: Side,
        name: String,
        mut frame: Vec<u8>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let act = {
            let state = self.state.lock().unwrap();
            let number = state.passed[side as usize].len() + 1;
            let rule =
                state.rule.as_ref().filter(|rule| (rule.side, rule.number) == (side, number));
            rule.map(|rule| rule.act.clone())
        };
        match &act {
            Some(Act::Hold) => {
                self.held.send_modify(|(held, _)| *held += 1);
                let mut held = self.held.subscribe();
                held.wait_for(|(held, released)| released >= held)
                    .await
                    .map_err(io::Error::other)?;
            }
            Some(Act::Replace(old, new)) => {
                assert_eq!(old.len(), new.len());
                let at = frame.windows(old.len()).position(|window| window == *old);
                let at = at.unwrap_or_else(|| panic!("{name} does not have the bytes to replace"));
                frame[at..at + new.len()].copy_from_slice(new);
            }
            Some(Act::Break | Act::Cut) | None => {}
        }
        to.write_all(&frame).await?;
        to.flush().await?;
        self.state.lock().unwrap().passed[side as usize].push(name);
        match act {
            Some(act @ (Act::Break | Act::Cut)) => Err(io::Error::other(Ended(act))),
            _ => Ok(()),
        }
    }
}

/// The message's name, with the text that tells it from others of its type.
fn name(side: Side, kind: u8, body: &[u8]) -> String {
    let text = |body: &[u8]| {
        let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
        String::from_utf8_lossy(&body[..end.min(40)]).into_owned()
    };
    match (side, kind) {
        (Side::Client, b'Q') => format!("Query {}", text(body)),
        (Side::Client, b'P') => "Parse".to_owned(),
        (Side::Client, b'B') => "Bind".to_owned(),
        (Side::Client, b'D') => "Describe".to_owned(),
        (Side::Client, b'E') => "Execute".to_owned(),
        (Side::Client, b'S') => "Sync".to_owned(),
        (Side::Client, b'C') => "Close".to_owned(),
        (Side::Client, b'X') => "Terminate".to_owned(),
        (Side::Client, b'p') => "Password".to_owned(),
        (Side::Client, b'd') => "CopyData".to_owned(),
        (Side::Client, b'c') => "CopyDone".to_owned(),
        (Side::Client, b'f') => "CopyFail".to_owned(),
        (Side::Server, b'G') => "CopyInResponse".to_owned(),
        (Side::Server, b'R') => "Authentication".to_owned(),
        (Side::Server, b'S') => "ParameterStatus".to_owned(),
        (Side::Server, b'K') => "BackendKeyData".to_owned(),
        (Side::Server, b'Z') => "ReadyForQuery".to_owned(),
        (Side::Server, b'C') => format!("CommandComplete {}", text(body)),
        (Side::Server, b'T') => "RowDescription".to_owned(),
        (Side::Server, b't') => "ParameterDescription".to_owned(),
        (Side::Server, b'D') => "DataRow".to_owned(),
        (Side::Server, b'n') => "NoData".to_owned(),
        (Side::Server, b'1') => "ParseComplete".to_owned(),
        (Side::Server, b'2') => "BindComplete".to_owned(),
        (Side::Server, b'3') => "CloseComplete".to_owned(),
        (Side::Server, b'I') => "EmptyQueryResponse".to_owned(),
        (Side::Server, b'E') => "ErrorResponse".to_owned(),
        (Side::Server, b'N') => "NoticeResponse".to_owned(),
        (Side::Server, b'A') => "NotificationResponse".to_owned(),
        _ => panic!("{side:?} sent a message of unknown type {kind}"),
    }
}
