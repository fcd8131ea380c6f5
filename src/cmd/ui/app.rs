//! What every page needs: the way to the receiver, the configuration, and who may do what.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::admin::{Client, Operation};
use crate::cli;
use crate::cmd::store;
use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::model::Via;
use crate::store::By;

use super::login::Login;
use super::work::Works;

/// The receiver's answer is waited for so long: a page is for a person who looks at it.
const ANSWER: Duration = Duration::from_secs(10);

/// The files of the configuration are read again after so long.
const FRESH: Duration = Duration::from_secs(2);

/// What a session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    View,
    Operate,
}

impl Role {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Role::View => "view",
            Role::Operate => "operate",
        }
    }
}

/// The proof that a change may be made: only [`App::operator`] makes one.
#[derive(Clone)]
pub(super) struct Operator {
    pub(super) app: Arc<App>,
    /// What the audit list says of the change.
    by: By,
}

impl Operator {
    pub(super) async fn ask<O: Operation>(&self, request: O) -> Result<O::Reply, Failure> {
        self.app.ask_as(&self.by, request).await
    }
}

pub(super) struct App {
    pub(super) role: Role,
    socket: PathBuf,
    pub(super) config: PathBuf,
    /// The `--config` option for printed commands.
    pub(super) suffix: String,
    read: Mutex<Option<(Instant, Arc<Config>)>>,
    pub(super) login: Login,
    pub(super) works: Works,
    last_request: Mutex<Instant>,
}

impl App {
    pub(super) fn new(
        role: Role,
        socket: PathBuf,
        options: &cli::Options,
        port: u16,
    ) -> Result<Self, Failure> {
        Ok(App {
            role,
            socket,
            config: options.config().to_owned(),
            suffix: options.suffix(),
            read: Mutex::default(),
            login: Login::new(port)?,
            works: Works::default(),
            last_request: Mutex::new(Instant::now()),
        })
    }

    /// A link that lets one browser in.
    pub(super) fn link(&self) -> Result<String, Failure> {
        let token = self.login.new_link()?;
        Ok(format!("http://{}/in?t={token}", self.login.hosts[0]))
    }

    /// Fails for those who may only look. The reason is what the visitor has typed.
    pub(super) fn operator(self: &Arc<Self>, reason: Option<&str>) -> Result<Operator, Failure> {
        let note = cli::Note { note: reason.map(str::to_owned) };
        let by = By { via: Via::Dashboard, ..store::by(&note) };
        match self.role {
            Role::Operate => Ok(Operator { app: Arc::clone(self), by }),
            Role::View => Err(Exit::WrongState
                .failure("this dashboard is for looking only")
                .help("start it without --view")),
        }
    }

    /// Carries out a request of the admin API.
    pub(super) async fn ask<O: Operation>(&self, request: O) -> Result<O::Reply, Failure> {
        self.ask_as(&By::default(), request).await
    }

    async fn ask_as<O: Operation>(&self, by: &By, request: O) -> Result<O::Reply, Failure> {
        let asked = async {
            let client = Client::connect(&self.socket).await.map_err(|error| {
                let message = format!("no receiver answers at {}: {error}", self.socket.display());
                let serve = format!("start it: hooklatch serve{}", self.suffix);
                Exit::Unavailable.failure(message).help(serve)
            })?;
            Ok(client.by(by.clone()).call(&request).await?)
        };
        timeout(ANSWER, asked).await.unwrap_or_else(|_| {
            let seconds = ANSWER.as_secs();
            Err(Exit::Unavailable.failure(format!("the receiver has not answered in {seconds} s")))
        })
    }

    /// The configuration as its files are now, which a receiver may not have read yet.
    pub(super) fn config(&self) -> Result<Arc<Config>, Failure> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, config)) = &*read
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(config::load_in_part(&self.config)?);
        *read = Some((Instant::now(), Arc::clone(&config)));
        Ok(config)
    }

    pub(super) fn command(&self, typed: &str) -> String {
        format!("hooklatch {typed}{}", self.suffix)
    }

    pub(super) fn asked(&self) {
        *self.last_request.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn idle(&self) -> Duration {
        self.last_request.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}
