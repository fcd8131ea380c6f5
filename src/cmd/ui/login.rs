//! Decides who may come in: by a one-time link, by a token, or as a proxy's user. Keeps their sessions, and one-time
//! forms.
//!
//! Must stay true: a link works once and for two minutes, a form works once, secrets are compared in constant time, no
//! token is in a log, and only the address of a link has one.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix_web::http::header::{self, HeaderMap};
use data_encoding::{BASE32_NOPAD, HEXLOWER};

use crate::cmd::random;
use crate::config::{Access, Listen, PROXY_SECRET, Token};
use crate::exit::{Exit, Failure};
use crate::limits::BY_NAME_BYTES;
use crate::model::is_same_secret;

/// Long enough to go to a browser, too short to be found later.
const LINK: Duration = Duration::from_secs(2 * 60);

/// The longest life of a session: a working day.
const SESSION: Duration = Duration::from_secs(8 * 3600);

/// A session ends after so long without a request or an open live page. A dashboard without either stops then too.
pub(super) const IDLE: Duration = Duration::from_secs(30 * 60);

/// Sessions at once, and links that may be open. A new one replaces the oldest; of sessions, one of the role view first.
const SESSIONS: usize = 64;

/// Wrong links and tokens within the last minute. While there are so many, none is compared.
const WRONG: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Forms that a session remembers, open or submitted, so that a second click shows the first one's result.
const FORMS: usize = 200;

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    View,
    Operate,
}

impl Role {
    pub(super) fn of(operates: bool) -> Self {
        if operates { Role::Operate } else { Role::View }
    }
}

/// A role, and what the audit list shows as the claimed name.
pub(super) type User = (Role, Option<String>);

/// 128 random bits, in hex.
fn token() -> Result<String, Failure> {
    Ok(HEXLOWER.encode(&random::bytes::<16>()?))
}

pub(super) struct Login {
    /// The origins under which this dashboard answers. A link's own comes first. It has a random host name: cookies
    /// ignore ports, so under 127.0.0.1 another program on this machine would get the session's cookie.
    origins: Vec<String>,
    /// The name of the session's cookie. It has the port, because a host's cookies go to all its ports.
    cookie: String,
    /// The attribute of a cookie that goes over https only.
    secure: &'static str,
    pub(super) way: Way,
    state: Mutex<State>,
}

/// How users prove who they are.
pub(super) enum Way {
    /// The link that this process prints. Everyone who comes by one has this role.
    Link(Role),
    Configured(Access),
}

#[derive(Default)]
struct State {
    links: VecDeque<(Instant, String)>,
    sessions: VecDeque<Session>,
    wrong: VecDeque<Instant>,
}

struct Session {
    /// The cookie's value; of a proxy's user the name.
    key: String,
    user: User,
    made_at: Instant,
    used_at: Instant,
    /// The forms that pages of it may submit, by their tokens.
    forms: VecDeque<(String, Form)>,
}

/// The user of a request, and the key of the session.
type Visitor = Result<Option<(User, String)>, Failure>;

/// What a link or a token leads to.
pub(super) enum Entered {
    /// The line that sets the cookie.
    In(String),
    Refused,
    /// Too many wrong ones came.
    Later,
}

/// What became of a form.
#[derive(Clone)]
pub(super) enum Form {
    Open,
    /// Submitted and under way, or refused.
    Submitted,
    /// Carried out; the result is at this address.
    Led(String),
}

impl Login {
    /// Makes the login of links, on a port of this machine.
    pub(super) fn linked(port: u16, role: Role) -> Result<Self, Failure> {
        let name = BASE32_NOPAD.encode(&random::bytes::<5>()?).to_lowercase();
        let listen = Listen::Tcp(([127, 0, 0, 1], port).into());
        let mut login = Login::new(&listen, None, Way::Link(role));
        let origin = format!("http://{name}.localhost:{port}");
        login.origins.insert(0, origin);
        Ok(login)
    }

    /// Makes a login without links yet. With a Unix socket there is always a `public_url`.
    pub(super) fn new(listen: &Listen, public_url: Option<&str>, way: Way) -> Self {
        let mut origins = Vec::from_iter(public_url.map(str::to_owned));
        let mut cookie = "__Host-hooklatch".to_owned();
        if let (None, Listen::Tcp(address)) = (public_url, listen) {
            let port = address.port();
            cookie = format!("hooklatch_{port}");
            origins.push(format!("http://{address}"));
            origins.push(format!("http://localhost:{port}"));
        }
        Login {
            origins,
            cookie,
            secure: public_url.map_or("", |_| "; Secure"),
            way,
            state: Mutex::default(),
        }
    }

    /// The origin of this dashboard with that host and port, if it has one.
    pub(super) fn origin(&self, host: &str) -> Option<&str> {
        let mut origins = self.origins.iter().map(String::as_str);
        origins.find(|origin| origin.split_once("://").is_some_and(|(_, own)| own == host))
    }

    /// Whether users come by a link, to a dashboard that a person has started.
    pub(super) fn is_linked(&self) -> bool {
        matches!(self.way, Way::Link(_))
    }

    /// The origin that users type or see.
    pub(super) fn address(&self) -> &str {
        self.origins.first().map_or("", String::as_str)
    }

    /// A link that lets one browser in.
    pub(super) fn new_link(&self) -> Result<String, Failure> {
        let token = token()?;
        let mut state = lock(&self.state);
        state.links.truncate(SESSIONS - 1);
        state.links.push_front((Instant::now(), token.clone()));
        Ok(format!("{}/in?t={token}", self.address()))
    }

    /// Compares a token, or uses a link up.
    pub(super) fn enter(&self, given: &str) -> Result<Entered, Failure> {
        let key = token()?;
        let mut state = lock(&self.state);
        state.wrong.retain(|at| at.elapsed() < MINUTE);
        if state.wrong.len() >= WRONG {
            return Ok(Entered::Later);
        }
        let Some(user) = self.user(&mut state, given) else {
            tracing::warn!("a wrong token was refused");
            state.wrong.push_back(Instant::now());
            return Ok(Entered::Refused);
        };
        state.add(&key, user);
        let (name, secure) = (&self.cookie, self.secure);
        let line = format!("{name}={key}; Path=/; HttpOnly; SameSite=Strict{secure}");
        Ok(Entered::In(line))
    }

    fn user(&self, state: &mut State, given: &str) -> Option<User> {
        match &self.way {
            Way::Link(role) => {
                state.links.retain(|(made, _)| made.elapsed() < LINK);
                let mut links = state.links.iter();
                let at = links.position(|(_, known)| is_same_secret(known, given))?;
                state.links.remove(at);
                Some((*role, None))
            }
            Way::Configured(Access::Tokens { operate, view }) => {
                let user = |role, tokens: &[Token]| {
                    let token = tokens.iter().find(|token| is_same_secret(&token.secret, given))?;
                    let name = Some(token.name.clone());
                    Some((role, name.filter(|name| name.len() <= BY_NAME_BYTES)))
                };
                user(Role::Operate, operate).or_else(|| user(Role::View, view))
            }
            Way::Configured(Access::Proxy(_)) => None,
        }
    }

    /// Returns who sent a request, and the key of the session. `None` without a session, and from a proxy without its
    /// secret; on a Unix socket a proxy may be configured without one, and is trusted. Fails for a header of the proxy
    /// that comes twice or is not visible ASCII, and for a name that is empty or too long.
    pub(super) fn visitor(&self, headers: &HeaderMap) -> Visitor {
        let Way::Configured(Access::Proxy(proxy)) = &self.way else {
            let user = |key: &str| self.with(key, |own| (own.user.clone(), key.to_owned()));
            return Ok(cookies(headers, &self.cookie).find_map(user));
        };
        let proof = only(headers, PROXY_SECRET)?.unwrap_or_default();
        let name = only(headers, &proxy.user_header)?.map(str::to_owned);
        let is_proven = proxy.secret.iter().all(|secret| is_same_secret(secret, proof));
        let Some(name) = name.filter(|_| is_proven) else {
            return Ok(None);
        };
        if name.is_empty() || name.len() > BY_NAME_BYTES {
            let message = format!("a user's name has 1 to {BY_NAME_BYTES} bytes");
            return Err(Exit::Usage.failure(message));
        }
        let user = (Role::of(proxy.operate.contains(&name)), Some(name.clone()));
        if !self.knows(&name) {
            lock(&self.state).add(&name, user.clone());
        }
        Ok(Some((user, name)))
    }

    /// Ends a session.
    pub(super) fn leave(&self, key: &str) {
        let sessions = &mut lock(&self.state).sessions;
        sessions.retain(|session| !is_same_secret(&session.key, key));
    }

    /// Whether this is the key of a session.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.with(key, |_| ()).is_some()
    }

    fn with<T>(&self, key: &str, work: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let sessions = &mut lock(&self.state).sessions;
        sessions.retain(|one| one.made_at.elapsed() < SESSION && one.used_at.elapsed() < IDLE);
        let session = sessions.iter_mut().find(|one| is_same_secret(&one.key, key))?;
        session.used_at = Instant::now();
        Some(work(session))
    }

    /// A token for a form in a page of this session.
    pub(super) fn new_form(&self, key: &str) -> Result<String, Failure> {
        let token = token()?;
        self.with(key, |session| {
            session.forms.truncate(FORMS - 1);
            session.forms.push_front((token.clone(), Form::Open));
        });
        Ok(token)
    }

    /// Uses a form up. Returns what it was; none if it is not known.
    pub(super) fn submit(&self, key: &str, form: &str) -> Option<Form> {
        self.form(key, form, |form| match form {
            Form::Open => mem::replace(form, Form::Submitted),
            _ => form.clone(),
        })
    }

    /// Remembers where a submitted form led to.
    pub(super) fn led(&self, key: &str, form: &str, to: &str) {
        self.form(key, form, |form| *form = Form::Led(to.to_owned()));
    }

    fn form<T>(&self, key: &str, token: &str, work: impl FnOnce(&mut Form) -> T) -> Option<T> {
        self.with(key, |session| {
            let mut forms = session.forms.iter_mut();
            let known = forms.find(|(known, _)| is_same_secret(known, token));
            known.map(|(_, form)| work(form))
        })?
    }
}

impl State {
    fn add(&mut self, key: &str, user: User) {
        if self.sessions.len() >= SESSIONS {
            // Logins of the role view are not to end the sessions of operators.
            let views = |session: &Session| session.user.0 == Role::View;
            let oldest = self.sessions.iter().rposition(views);
            self.sessions.remove(oldest.unwrap_or(SESSIONS - 1));
        }
        let (key, now, forms) = (key.to_owned(), Instant::now(), VecDeque::new());
        self.sessions.push_front(Session { key, user, made_at: now, used_at: now, forms });
    }
}

/// The value of a header, if it is there. Fails if it comes twice, or is not visible ASCII.
pub(super) fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Failure> {
    let mut all = headers.get_all(name).map(|value| value.to_str());
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => {
            let message = format!("the header {name} must come once, in visible ASCII");
            Err(Exit::Usage.failure(message))
        }
    }
}

/// The values of a cookie: a page of another port may have set one of the same name.
pub(super) fn cookies<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(header::COOKIE);
    let lines = lines.filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';'));
    pairs.filter_map(move |pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn link(login: &Login) -> String {
        login.new_link().unwrap().split_once("?t=").unwrap().1.to_owned()
    }

    fn key(entered: Entered) -> String {
        let Entered::In(line) = entered else { panic!("refused") };
        line.split_once('=').unwrap().1.split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_session_ends_after_half_an_hour_without_use_and_after_eight_hours() {
        let login = Login::linked(1, Role::View).unwrap();
        for back in [
            |session: &mut Session| session.used_at -= IDLE,
            |session: &mut Session| session.made_at -= SESSION,
        ] {
            let key = key(login.enter(&link(&login)).unwrap());
            assert!(login.knows(&key));
            login.with(&key, back);
            assert!(!login.knows(&key));
        }
    }

    #[test]
    fn a_link_works_once() {
        let login = Login::linked(1, Role::View).unwrap();
        let link = link(&login);
        let key = key(login.enter(&link).unwrap());
        assert!(login.knows(&key));
        assert!(matches!(login.enter(&link).unwrap(), Entered::Refused));
        assert!(!login.knows(&link));
    }

    #[test]
    fn after_ten_wrong_links_a_good_one_waits_too() {
        let login = Login::linked(1, Role::View).unwrap();
        let link = link(&login);
        for _ in 0..WRONG {
            assert!(matches!(login.enter("x").unwrap(), Entered::Refused));
        }
        assert!(matches!(login.enter(&link).unwrap(), Entered::Later));
    }

    #[test]
    fn a_form_works_once_and_then_shows_where_it_led() {
        let login = Login::linked(1, Role::View).unwrap();
        let cookie = key(login.enter(&link(&login)).unwrap());
        let form = login.new_form(&cookie).unwrap();
        assert!(login.submit(&cookie, "other").is_none());
        assert!(login.submit("other", &form).is_none());
        assert!(matches!(login.submit(&cookie, &form), Some(Form::Open)));
        assert!(matches!(login.submit(&cookie, &form), Some(Form::Submitted)));
        login.led(&cookie, &form, "/done");
        assert!(matches!(login.submit(&cookie, &form), Some(Form::Led(to)) if to == "/done"));
    }
}
