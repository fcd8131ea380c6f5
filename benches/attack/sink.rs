//! What the control run attacks: a listener that takes every connection and throws away what comes.

use std::net::SocketAddr;
use std::sync::mpsc;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::attacker::take_own_core;

/// A sink, on the attacker's core. It lives as long as the process.
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
}

impl Sink {
    pub(crate) fn start() -> Self {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            take_own_core();
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(throw_away(stream));
                    }
                }
            });
        });
        Sink { address: told.recv().unwrap() }
    }
}

async fn throw_away(mut stream: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}
