//! `hooklatch ui`: the dashboard, in a process of its own and for one user of this machine.
//!
//! It is one more client of the admin API and has no other way to the store. Must stay true: it listens on loopback
//! only, every page but the login needs a session, and what a handler, a provider or a payload says is text.

mod act;
mod app;
mod assets;
mod live;
mod login;
mod pages;
mod parts;
mod payload;
mod request;
mod server;
mod view;
mod work;

use std::io::{BufRead, IsTerminal};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::admin::{reading_socket_path, socket_path};
use crate::cli;
use crate::exit::{Exit, Failure};

use super::output;
use super::runtime::block_on;
use super::signals::Signals;
use super::{owner, store};
use app::{App, Role};

/// Without a request for so long, nobody looks at it.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How often the end by idleness is looked for.
const LOOK: Duration = Duration::from_secs(5);

/// Serves the dashboard until a signal, the end of its time, or half an hour without a request.
pub(super) fn run(args: &cli::Ui) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let store = config.store().path;
    owner::assume(&store)?;
    let (role, socket) = match args.view {
        true => (Role::View, reading_socket_path(&store)),
        false => (Role::Operate, socket_path(&store)),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| {
        let message = format!("failed to listen on 127.0.0.1:{}: {error}", args.port);
        Exit::Io.failure(message).help("choose another port: hooklatch ui --port 0")
    })?;
    let address = listener.local_addr().map_err(Failure::io("look at the port"))?;
    let app = Arc::new(App::new(role, socket, &args.options, address.port())?);
    block_on(async {
        let mut signals = Signals::register()?;
        let server = server::serve(listener, Arc::clone(&app))
            .map_err(Failure::io("serve the dashboard"))?;
        let mut asked = enter_pressed();
        show_link(&app)?;
        loop {
            tokio::select! {
                _ = signals.next() => break,
                () = sleep(args.time) => break,
                () = idle(&app) => break,
                Some(()) = asked.recv() => show_link(&app)?,
            }
        }
        server.stop(false).await;
        Ok(Exit::Ok)
    })?
}

async fn idle(app: &App) {
    while app.idle() < IDLE {
        sleep(LOOK).await;
    }
}

fn show_link(app: &App) -> Result<(), Failure> {
    output::line(app.link()?)?;
    if std::io::stdin().is_terminal() {
        output::note(
            "it works once, within 2 minutes; Enter prints another, Ctrl-C ends the dashboard",
        );
    }
    Ok(())
}

/// A message for each line on a terminal's standard input.
fn enter_pressed() -> mpsc::Receiver<()> {
    let (pressed, asked) = mpsc::channel(1);
    if std::io::stdin().is_terminal() {
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() || pressed.blocking_send(()).is_err() {
                    return;
                }
            }
        });
    }
    asked
}
