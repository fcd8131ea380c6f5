//! What every page needs: the way to the receiver, the configuration, and who may do what.

use std::borrow::Cow;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::admin::{Operation, StreamOperation, StreamReader, reading_socket_path, socket_path};
use crate::cli::{Note, Options};
use crate::cmd::explain::Explanation;
use crate::cmd::store;
use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::model::Via;
use crate::store::{By, EventDetail};

use super::login::{IDLE, Login, Role, User, lock};
use super::work::Works;

/// The receiver's answer is waited for so long: a page is for a person who looks at it.
const ANSWER: Duration = Duration::from_secs(10);

/// The files of the configuration are read again after so long.
const FRESH: Duration = Duration::from_secs(2);

/// How often the end by idleness is looked for.
const LOOK: Duration = Duration::from_secs(5);

/// The receiver's answer to a request.
type Reply<O> = Result<<O as Operation>::Reply, Failure>;

/// An event without what its reader may not see.
type Visible<'e> = Cow<'e, EventDetail>;

/// The proof that a change may be made: only [`App::operator`] makes one.
pub(super) struct Operator {
    pub(super) app: Arc<App>,
    /// What the audit list says of the change.
    by: By,
}

impl Operator {
    pub(super) async fn ask<O: Operation>(&self, request: O) -> Reply<O> {
        self.app.ask_as(&self.by, request, ANSWER).await
    }
}

/// What all requests share.
pub(super) struct Dashboard {
    store: PathBuf,
    pub(super) config: PathBuf,
    /// The `--config` option for printed commands.
    pub(super) suffix: String,
    read: Mutex<Option<(Instant, Arc<Config>)>>,
    pub(super) login: Login,
    pub(super) works: Works,
    last_request: Mutex<Instant>,
    view_payloads: bool,
}

/// The dashboard as the user of one request may use it.
pub(super) struct App {
    user: User,
    dashboard: Arc<Dashboard>,
}

impl Deref for App {
    type Target = Dashboard;

    fn deref(&self) -> &Dashboard {
        &self.dashboard
    }
}

impl App {
    pub(super) fn new(dashboard: &Arc<Dashboard>, user: User) -> Arc<Self> {
        let dashboard = Arc::clone(dashboard);
        Arc::new(App { user, dashboard })
    }

    /// Whether this user may change something.
    pub(super) fn operates(&self) -> bool {
        self.user.0 == Role::Operate
    }

    /// Fails for the role view. The reason is what the user has typed.
    pub(super) fn operator(self: &Arc<Self>, reason: Option<&str>) -> Result<Operator, Failure> {
        let (Role::Operate, name) = &self.user else {
            return Err(Exit::WrongState.failure("the role view changes nothing"));
        };
        let (app, note) = (Arc::clone(self), reason.map(str::to_owned));
        let mut by = store::by(&Note { note });
        by.via = Via::Dashboard;
        by.name = name.clone().or(by.name);
        Ok(Operator { app, by })
    }

    /// Whether bodies, headers and outputs may be shown.
    pub(super) fn may_see_payloads(&self) -> bool {
        self.operates() || self.view_payloads
    }

    /// The event without what this user may not see, which is also left out of its explanation.
    pub(super) fn visible<'e>(&self, of: &'e EventDetail, story: &mut Explanation) -> Visible<'e> {
        if self.may_see_payloads() {
            return Cow::Borrowed(of);
        }
        let mut event = of.clone();
        (event.body, event.headers) = Default::default();
        if let Some(key) = &mut event.key {
            (key.body, key.headers) = Default::default();
        }
        for attempt in event.jobs.iter_mut().flat_map(|job| &mut job.attempts) {
            (attempt.record.stdout, attempt.record.stderr) = Default::default();
        }
        for handler in &mut story.handlers {
            handler.conditions = Default::default();
            // The next step of a job whose handler cannot run quotes the last line of its errors.
            let mut broken = event.jobs.iter().filter(|one| one.job.broken.is_some());
            if broken.any(|one| one.job.handler == handler.handler)
                && let Some(job) = &mut handler.job
            {
                job.next.what = "tries again by itself".to_owned();
            }
        }
        Cow::Owned(event)
    }

    /// Opens a stream of the admin API.
    pub(super) async fn stream<O: StreamOperation>(
        &self,
        request: &O,
    ) -> Result<StreamReader, Failure> {
        let opening = async {
            let client = store::connect(&self.socket(), &self.suffix).await?;
            Ok(client.stream_of(request).await?)
        };
        timeout(ANSWER, opening).await.unwrap_or_else(|_| Err(silent(ANSWER)))
    }

    /// The role's.
    fn socket(&self) -> PathBuf {
        match self.user.0 {
            Role::View => reading_socket_path(&self.store),
            Role::Operate => socket_path(&self.store),
        }
    }

    /// Carries out a request of the admin API.
    pub(super) async fn ask<O: Operation>(&self, request: O) -> Reply<O> {
        self.ask_as(&By::default(), request, ANSWER).await
    }

    /// Carries out a request of the admin API that the receiver answers after 25 s at the latest.
    pub(super) async fn wait<O: Operation>(&self, request: O) -> Reply<O> {
        self.ask_as(&By::default(), request, 3 * ANSWER).await
    }

    async fn ask_as<O: Operation>(&self, by: &By, request: O, most: Duration) -> Reply<O> {
        let asked = async {
            let client = store::connect(&self.socket(), &self.suffix).await?;
            Ok(client.by(by.clone()).call(&request).await?)
        };
        timeout(most, asked).await.unwrap_or_else(|_| Err(silent(most)))
    }
}

fn silent(most: Duration) -> Failure {
    let message = format!("the receiver has not answered in {} s", most.as_secs());
    Exit::Unavailable.failure(message)
}

impl Dashboard {
    pub(super) fn new(store: &Path, options: &Options, login: Login, view_payloads: bool) -> Self {
        Dashboard {
            store: store.to_owned(),
            config: options.config().to_owned(),
            suffix: options.suffix(),
            read: Mutex::default(),
            login,
            works: Works::default(),
            last_request: Mutex::new(Instant::now()),
            view_payloads,
        }
    }

    /// The configuration as its files are now, which a receiver may not have read yet.
    pub(super) fn config(&self) -> Result<Arc<Config>, Failure> {
        let mut read = lock(&self.read);
        let fresh = read.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        if let Some((_, config)) = fresh {
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
        *lock(&self.last_request) = Instant::now();
    }

    /// Returns after half an hour without a request.
    pub(super) async fn until_idle(&self) {
        while lock(&self.last_request).elapsed() < IDLE {
            sleep(LOOK).await;
        }
    }
}
