//! `hooklatch ui --configured`: the dashboard as `[dashboard]` says, under a service manager.

use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;

use crate::admin;
use crate::cli;
use crate::cmd::serve::{manager, start_log};
use crate::cmd::{output, owner, store};
use crate::config::{self, Environment, Listen};
use crate::confine;
use crate::exit::{Exit, Failure};
use crate::systemd::sockets;

use super::app::Dashboard;
use super::login::{Login, Way};
use super::server::{self, Socket};

/// The mode of a Unix socket that this process makes: its user and group may open it.
const SOCKET_MODE: u32 = 0o660;

/// Serves until a signal; with a socket of the service manager's also until half an hour without a request, because
/// the next connection starts it again.
pub(super) fn run(options: &cli::Options) -> Result<Exit, Failure> {
    start_log("info")?;
    let environment = Environment::capture();
    let config = store::load(options)?;
    // A mistake elsewhere must not keep an operator from looking.
    let mut mistakes = config.mistakes().to_vec();
    mistakes.retain(|mistake| {
        let table = mistake.key.split('.').next().unwrap_or_default();
        mistake.file == config.file() && ["", "dashboard"].contains(&table)
    });
    if !mistakes.is_empty() {
        return Err(mistakes.into());
    }
    let store = config.store().path;
    owner::assume(&store)?;
    let access = config.dashboard_access(&environment)?;
    let (Some(dashboard), Some(access)) = (config.dashboard(), access) else {
        let failure = Exit::Config.failure("the configuration has no [dashboard]");
        return Err(failure.help("add it: docs/dashboard.md; or run hooklatch ui"));
    };
    let (socket, place, is_inherited) = listen(dashboard, &environment)?;
    if let Err(error) = confine::deny_execution() {
        tracing::warn!(%error, "this process keeps the right to execute programs");
    }
    let url = dashboard.public_url.as_deref();
    let login = Login::new(&place, url, Way::Configured(access));
    let shared = Dashboard::new(&store, options, login, dashboard.view_payloads);
    let shared = Arc::new(shared);
    server::run(socket, &shared, async {
        output::line(format!("{} listens on {place}", shared.login.address()))?;
        manager(&environment).ready().await;
        if !is_inherited {
            pending::<()>().await;
        }
        shared.until_idle().await;
        Ok(())
    })
}

/// The socket, where it is, and whether the service manager has opened it.
fn listen(
    dashboard: &config::Dashboard,
    environment: &Environment,
) -> Result<(Socket, Listen, bool), Failure> {
    let failed = |error| Failure::io("listen for the dashboard")(error);
    match &dashboard.listen {
        Listen::Tcp(address) => {
            let given: Option<TcpListener> = sockets::take_only(&|name| environment.get(name))?;
            let is_inherited = given.is_some();
            let socket = given.map_or_else(|| TcpListener::bind(address), Ok);
            let socket = socket.map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            if !address.ip().to_canonical().is_loopback() && dashboard.public_url.is_none() {
                let message = format!("{address} can be reached from other machines, without TLS");
                let help = "add public_url to [dashboard], or correct the socket unit";
                return Err(Exit::Config.failure(message).help(help));
            }
            Ok((Socket::Tcp(socket), Listen::Tcp(address), is_inherited))
        }
        place @ Listen::Unix(path) => {
            let given = sockets::take_only(&|name| environment.get(name))?;
            let is_inherited = given.is_some();
            let socket = given.map_or_else(|| admin::bind(path, SOCKET_MODE), Ok)?;
            Ok((Socket::Unix(socket), place.clone(), is_inherited))
        }
    }
}
