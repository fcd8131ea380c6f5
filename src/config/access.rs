//! Reads the secrets of `[dashboard]`.

use zeroize::Zeroizing;

use crate::document::{Fault, Problem, Problems, Value};
use crate::model::is_same_secret;

use super::configuration::Config;
use super::dashboard::Dashboard;
use super::environment::Environment;
use super::secrets::Reference;

/// A secret that logs in, and its reference, which names it in the audit list.
pub struct Token {
    pub name: String,
    pub secret: Zeroizing<String>,
}

/// The users of the dashboard, and how they prove who they are.
pub enum Access {
    Tokens { operate: Vec<Token>, view: Vec<Token> },
    Proxy(ProxyAccess),
}

/// A proxy that names the users, and the users who may change something.
pub struct ProxyAccess {
    pub user_header: String,
    pub secret: Option<Zeroizing<String>>,
    pub operate: Vec<String>,
}

/// Shortest secret, in characters: nobody can guess one.
const LEAST: usize = 32;

impl Config {
    /// What `[dashboard]` says, if the file has it.
    pub fn dashboard(&self) -> Option<&Dashboard> {
        self.settings.dashboard.as_ref()
    }

    /// Reads the secrets of `[dashboard]`; `None` without that section. An `Err` has every secret that cannot be
    /// used, sorted by position, and never its text.
    pub fn dashboard_access(
        &self,
        environment: &Environment,
    ) -> Result<Option<Access>, Vec<Problem>> {
        let Some(dashboard) = &self.settings.dashboard else { return Ok(None) };
        let problems = Problems::new();
        let tokens = |references: &[Value<Reference>]| -> Vec<Token> {
            let token = |reference: &Value<Reference>| {
                let secret = read_secret(reference, environment, &problems)?;
                Some(Token { name: reference.value.to_string(), secret })
            };
            references.iter().filter_map(token).collect()
        };
        let access = match &dashboard.proxy {
            Some(proxy) => Access::Proxy(ProxyAccess {
                user_header: proxy.user_header.clone(),
                secret: proxy
                    .secret
                    .as_ref()
                    .and_then(|one| read_secret(one, environment, &problems)),
                operate: proxy.operate.clone(),
            }),
            None => {
                let (operate, view) = (tokens(&dashboard.operate), tokens(&dashboard.view));
                let is_twin = |one: &Token| {
                    operate.iter().any(|other| is_same_secret(&other.secret, &one.secret))
                };
                for twin in view.iter().filter(|one| is_twin(one)) {
                    let at = dashboard.view.iter().find(|one| one.value.to_string() == twin.name);
                    let message = format!("'{}' has the secret of a token in operate", twin.name);
                    at.iter().for_each(|one| {
                        problems.reject(&one.at, &message, "give each role tokens of its own")
                    });
                }
                Access::Tokens { operate, view }
            }
        };
        problems.none_or(Some(access))
    }
}

fn read_secret(
    reference: &Value<Reference>,
    environment: &Environment,
    problems: &Problems,
) -> Option<Zeroizing<String>> {
    let read =
        reference.value.read(environment).map_err(Fault::from).and_then(|secret| {
            match secret.len() >= LEAST && secret.bytes().all(|b| b.is_ascii_graphic()) {
                true => Ok(secret),
                false => Err(Fault::new(
                    format!(
                        "'{}': the secret must have {LEAST} visible ASCII characters or more",
                        reference.value
                    ),
                    "make one: openssl rand -hex 32",
                )),
            }
        });
    read.map_err(|fault| problems.report(&reference.at, fault)).ok()
}
