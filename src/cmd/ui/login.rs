//! One-time links, sessions, and the tokens of forms.
//!
//! Must stay true: a link works once and for two minutes, a form works once, and no token is in a log or in a page's
//! address.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use subtle::ConstantTimeEq;

use crate::cmd::random;
use crate::exit::Failure;

/// Long enough to go to a browser, too short to be found later.
const LINK: Duration = Duration::from_secs(2 * 60);

/// A session ends after so long without a request, as a working day's last one.
const SESSION: Duration = Duration::from_secs(8 * 3600);

/// Browsers that may be in at once, and links that may be open.
const SESSIONS: usize = 16;

/// Wrong links a minute, after which none is looked at.
const WRONG: usize = 10;

/// Submitted forms that a session remembers, so that a second click shows the first one's result.
const FORMS: usize = 200;

/// 128 random bits, in hex.
fn token() -> Result<String, Failure> {
    Ok(HEXLOWER.encode(&random::bytes::<16>()?))
}

pub(super) struct Login {
    /// The names under which this dashboard answers, with the port; the first is in the link. A cookie of an address
    /// goes to every port of it, a cookie of a random name to no other.
    pub(super) hosts: [String; 3],
    /// A host's cookies are for all its ports.
    pub(super) cookie: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: VecDeque<(Instant, String)>,
    sessions: VecDeque<Session>,
    wrong: VecDeque<Instant>,
}

struct Session {
    token: String,
    used_at: Instant,
    /// The forms that pages of it may submit, and where those that were submitted led to.
    forms: VecDeque<(String, Option<String>)>,
}

/// What a link leads to.
pub(super) enum Entered {
    /// The cookie's value.
    In(String),
    Refused,
    /// Too many wrong links came.
    Later,
}

/// What a form's token says.
pub(super) enum Form {
    First,
    /// It was submitted before, and led here; none while that is under way.
    Again(Option<String>),
    Unknown,
}

impl Login {
    pub(super) fn new(port: u16) -> Result<Self, Failure> {
        let name = BASE32_NOPAD.encode(&random::bytes::<5>()?).to_lowercase();
        let hosts = [
            format!("{name}.localhost:{port}"),
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
        ];
        Ok(Login { hosts, cookie: format!("hooklatch_{port}"), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new_link(&self) -> Result<String, Failure> {
        let token = token()?;
        let mut state = self.state();
        state.links.truncate(SESSIONS - 1);
        state.links.push_front((Instant::now(), token.clone()));
        Ok(token)
    }

    /// Uses a link up.
    pub(super) fn enter(&self, link: &str) -> Result<Entered, Failure> {
        let session = token()?;
        let mut state = self.state();
        state.wrong.retain(|at| at.elapsed() < Duration::from_secs(60));
        if state.wrong.len() >= WRONG {
            return Ok(Entered::Later);
        }
        state.links.retain(|(made, _)| made.elapsed() < LINK);
        let Some(at) = state.links.iter().position(|(_, known)| same(known, link)) else {
            state.wrong.push_back(Instant::now());
            return Ok(Entered::Refused);
        };
        state.links.remove(at);
        state.sessions.truncate(SESSIONS - 1);
        state.sessions.push_front(Session {
            token: session.clone(),
            used_at: Instant::now(),
            forms: VecDeque::new(),
        });
        Ok(Entered::In(session))
    }

    /// Whether a cookie is a session's.
    pub(super) fn knows(&self, cookie: &str) -> bool {
        self.with(cookie, |_| ()).is_some()
    }

    fn with<T>(&self, cookie: &str, work: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut state = self.state();
        state.sessions.retain(|session| session.used_at.elapsed() < SESSION);
        let session = state.sessions.iter_mut().find(|session| same(&session.token, cookie))?;
        session.used_at = Instant::now();
        Some(work(session))
    }

    /// A token for a form in a page of this session.
    pub(super) fn new_form(&self, cookie: &str) -> Result<String, Failure> {
        let token = token()?;
        self.with(cookie, |session| {
            session.forms.truncate(FORMS - 1);
            session.forms.push_front((token.clone(), None));
        });
        Ok(token)
    }

    /// Uses a form up.
    pub(super) fn submit(&self, cookie: &str, form: &str) -> Form {
        let submitted = self.with(cookie, |session| {
            let known = session.forms.iter_mut().find(|(token, _)| same(token, form));
            let Some((_, led)) = known else { return Form::Unknown };
            match led {
                None => {
                    *led = Some(String::new());
                    Form::First
                }
                Some(to) => Form::Again((!to.is_empty()).then(|| to.clone())),
            }
        });
        submitted.unwrap_or(Form::Unknown)
    }

    /// Remembers where a submitted form led to.
    pub(super) fn led(&self, cookie: &str, form: &str, to: &str) {
        self.with(cookie, |session| {
            let known = session.forms.iter_mut().find(|(token, _)| same(token, form));
            if let Some((_, led)) = known {
                *led = Some(to.to_owned());
            }
        });
    }
}

fn same(known: &str, given: &str) -> bool {
    known.as_bytes().ct_eq(given.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_link_works_once() {
        let login = Login::new(1).unwrap();
        let link = login.new_link().unwrap();
        let Entered::In(cookie) = login.enter(&link).unwrap() else { panic!("refused") };
        assert!(login.knows(&cookie));
        assert!(matches!(login.enter(&link).unwrap(), Entered::Refused));
        assert!(!login.knows(&link));
    }

    #[test]
    fn after_ten_wrong_links_a_good_one_waits_too() {
        let login = Login::new(1).unwrap();
        let link = login.new_link().unwrap();
        for _ in 0..WRONG {
            assert!(matches!(login.enter("x").unwrap(), Entered::Refused));
        }
        assert!(matches!(login.enter(&link).unwrap(), Entered::Later));
    }

    #[test]
    fn a_form_works_once_and_then_shows_where_it_led() {
        let login = Login::new(1).unwrap();
        let Entered::In(cookie) = login.enter(&login.new_link().unwrap()).unwrap() else {
            panic!("refused")
        };
        let form = login.new_form(&cookie).unwrap();
        assert!(matches!(login.submit(&cookie, "other"), Form::Unknown));
        assert!(matches!(login.submit("other", &form), Form::Unknown));
        assert!(matches!(login.submit(&cookie, &form), Form::First));
        assert!(matches!(login.submit(&cookie, &form), Form::Again(None)));
        login.led(&cookie, &form, "/done");
        assert!(matches!(login.submit(&cookie, &form), Form::Again(Some(to)) if to == "/done"));
    }
}
