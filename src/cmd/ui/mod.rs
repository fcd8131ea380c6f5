//! `hooklatch ui`: the dashboard, in a process of its own: for one user of this machine, or as `[dashboard]` says.
//!
//! It is one more client of the admin API and has no other way to the store. Must stay true: without an https
//! `public_url` it listens on loopback only, every page but the login needs a session, and what a handler, a provider
//! or a payload says is text.

mod act;
mod app;
mod assets;
mod configured;
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

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::cli;
use crate::exit::{Exit, Failure};

use super::output;
use super::runtime::block_on;
use super::signals::Signals;
use super::{owner, store};
use app::Dashboard;
use login::{Login, Role};
use server::Socket;

/// Serves the dashboard until a signal, the end of its time, or half an hour without a request.
pub(super) fn run(args: &cli::Ui) -> Result<Exit, Failure> {
    if args.configured {
        return configured::run(&args.options);
    }
    let store = store::load(&args.options)?.store().path;
    owner::assume(&store)?;
    let role = Role::of(!args.view);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| {
        let message = format!("failed to listen on 127.0.0.1:{}: {error}", args.port);
        Exit::Io.failure(message).help("choose another port: hooklatch ui --port 0")
    })?;
    let address = listener.local_addr().map_err(Failure::io("look at the port"))?;
    let login = Login::linked(address.port(), role)?;
    let dashboard = Dashboard::new(store, &args.options, login, true);
    block_on(async {
        let mut signals = Signals::register()?;
        let server = server::serve(Socket::Tcp(listener), Arc::clone(&dashboard))
            .map_err(Failure::io("serve the dashboard"))?;
        let mut asked = enter_pressed();
        show_link(&dashboard)?;
        loop {
            tokio::select! {
                _ = signals.next() => break,
                () = sleep(args.time) => break,
                () = dashboard.until_idle() => break,
                Some(()) = asked.recv() => show_link(&dashboard)?,
            }
        }
        server.stop(false).await;
        Ok(Exit::Ok)
    })?
}

fn show_link(dashboard: &Dashboard) -> Result<(), Failure> {
    output::line(dashboard.login.new_link()?)?;
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
