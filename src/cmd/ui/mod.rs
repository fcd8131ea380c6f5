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

use std::io::IsTerminal;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli;
use crate::exit::{Exit, Failure};

use super::{output, owner, store};
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
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| {
        let failure = Failure::io(format!("listen on 127.0.0.1:{}", args.port))(error);
        failure.help("choose another port: hooklatch ui --port 0")
    })?;
    let address = listener.local_addr();
    let address = address.map_err(Failure::io("look at the port"))?;
    let login = Login::linked(address.port(), Role::of(!args.view))?;
    let dashboard = Arc::new(Dashboard::new(&store, &args.options, login, true));
    let ended = async {
        let mut asked = enter_pressed();
        loop {
            show_link(&dashboard)?;
            tokio::select! {
                () = dashboard.until_idle() => return Ok(()),
                Some(()) = asked.recv() => {}
            }
        }
    };
    server::run(Socket::Tcp(listener), &dashboard, async {
        timeout(args.time, ended).await.unwrap_or(Ok(()))
    })
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
            let mut lines = std::io::stdin().lines();
            while matches!(lines.next(), Some(Ok(_))) && pressed.blocking_send(()).is_ok() {}
        });
    }
    asked
}
