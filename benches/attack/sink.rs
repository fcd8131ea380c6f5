//! The target of the control run: a listener that accepts every connection and discards its data.
//!
//! It is a separate process, because the two ends of 15,000 connections are more files than one process may
//! open on many machines.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::attacker::take_own_core;

/// The argument that makes this program the sink.
pub(crate) const ARGUMENT: &str = "--sink";

/// A running sink, on the attacker's core. Dropping it ends the process.
pub(crate) struct Sink {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Sink {
    pub(crate) fn start() -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        let mut child =
            command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Sink { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs as the sink until standard input ends, which happens with the process that started it.
pub(crate) fn run() {
    std::thread::spawn(|| {
        take_own_core();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            println!("{}", listener.local_addr().unwrap());
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(throw_away(stream));
                }
            }
        });
    });
    let _ends = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

async fn throw_away(mut stream: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}
