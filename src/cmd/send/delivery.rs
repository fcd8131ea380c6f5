//! A test delivery: its event, its signature, and the receiver that it asks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

use crate::admin::{Client, ListListeners, Operation, SignDelivery};
use crate::cli;
use crate::clock::Clock;
use crate::config::{CannotSign, Config, Endpoint, Environment};
use crate::exit::{Exit, Failure};
use crate::model::{EventType, Headers, Name, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Draft, Signer};

use crate::cmd::kit::target::Target;
use crate::cmd::output::escape;
use crate::cmd::{input, random, store};

/// How much older than the tolerance a stale delivery is: more than a clock correction in between.
const STALE_BY: Duration = Duration::from_secs(60);

pub(super) struct Delivery<'a> {
    pub(super) args: &'a cli::Send,
    pub(super) config: &'a Config,
    pub(super) endpoint: Endpoint<'a>,
    pub(super) event: Event,
    /// The `--config` option for printed commands.
    pub(super) suffix: String,
}

impl<'a> Delivery<'a> {
    pub(super) fn new(args: &'a cli::Send, config: &'a Config) -> Result<Self, Failure> {
        let source = &args.source;
        let endpoint = config.endpoint(source).ok_or_else(|| {
            let meant = store::did_you_mean(source, config.source_names().map(Name::as_str));
            let help = meant.unwrap_or_else(|| format!("add it: hooklatch init --source {source}"));
            Exit::NotFound.failure(format!("no such source: {source}")).help(help)
        })?;
        let event = event(args, config, endpoint.scheme)?;
        if endpoint.certified {
            let message = format!(
                "source {source} knows its callers by the certificates that a proxy has checked, and send has none to prove itself"
            );
            return Err(
                wrong(message).help("send it through the proxy, with a client's certificate")
            );
        }
        Ok(Delivery { args, config, endpoint, event, suffix: args.options.suffix() })
    }

    pub(super) async fn target(&self) -> Result<Target, Failure> {
        let path = &self.endpoint.path;
        let target = match &self.args.url {
            Some(url) => Target::parse(url, path, true),
            None => Target::parse(&format!("http://{}", self.address().await?), path, false),
        };
        target.map_err(wrong)
    }

    /// The receiver's address. Only the receiver knows the address of a socket unit, or which free port it
    /// took.
    async fn address(&self) -> Result<SocketAddr, Failure> {
        let configured = self.config.server().listen;
        let mut address = match self.args.to {
            Some(given) => given,
            None => match self.ask(&ListListeners {}).await {
                // It has one at least.
                Ok(known) => known.addresses.first().copied().unwrap_or(configured),
                Err(failure) if configured.port() == 0 => return Err(failure),
                // The receiver does not run, or does not answer this user.
                Err(_) => configured,
            },
        };
        // A client cannot connect to the unspecified address, which listens on every interface.
        match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Ok(address)
    }

    /// The signed headers, and who signed them.
    pub(super) async fn sign(&self) -> Result<(Headers, String), Failure> {
        let draft = Draft {
            method: "POST",
            url: self.endpoint.signed_url.as_deref(),
            id: &self.event.id,
            event_type: &self.args.event_type,
            headers: Headers::new(),
            body: self.event.body.clone(),
        };
        let signer = match self.args.forge {
            true => Ok(Signer::forger(self.endpoint.scheme.clone(), random::bytes()?)),
            false => self.config.signer(&self.endpoint, &Environment::capture()),
        };
        let (mut headers, by) = match signer {
            Ok(signer) => {
                let headers = signer.sign(&draft, self.event.at).map_err(wrong)?;
                (headers, signer.reference().map(str::to_owned))
            }
            Err(CannotSign::Empty(help)) => {
                let message = format!("the secret of source {} is empty", self.args.source);
                return Err(Exit::Config.failure(message).help(help));
            }
            Err(CannotSign::Unreadable(unreadable)) => {
                self.sign_by_receiver(&draft).await.map_err(|failure| {
                    let why = &failure.message;
                    let message = format!("{unreadable}; the receiver cannot sign either: {why}");
                    let help = "run it as a user that can read the secret, or start the receiver";
                    failure.exit.failure(message).help(help)
                })?
            }
        };
        headers.push("Content-Type", verify::media_type(self.endpoint.scheme, &self.event.body));
        Ok((headers, by.unwrap_or_else(|| "nothing: the provider signs nothing".to_owned())))
    }

    async fn sign_by_receiver(
        &self,
        draft: &Draft<'_>,
    ) -> Result<(Headers, Option<String>), Failure> {
        let unsigned = SignDelivery {
            source: self.args.source.clone(),
            method: draft.method.to_owned(),
            url: draft.url.map(str::to_owned),
            id: draft.id.to_owned(),
            event_type: draft.event_type.to_owned(),
            body: data_encoding::BASE64.encode(&draft.body),
            at: self.event.at,
        };
        let signed = self.ask(&unsigned).await?;
        let mut headers = Headers::new();
        signed.headers.into_iter().for_each(|(name, value)| headers.push(name, value));
        Ok((headers, signed.reference.map(|from| format!("{from}, by the receiver"))))
    }

    /// Asks the running receiver: a stopped store does not know listeners and secrets.
    async fn ask<O: Operation>(&self, request: &O) -> Result<O::Reply, Failure> {
        Ok(self.connect().await?.call(request).await?)
    }

    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        store::receiver(self.config, &self.suffix).await
    }
}

/// The event to send, with the time to sign.
pub(super) struct Event {
    pub(super) id: String,
    pub(super) body: Bytes,
    at: Timestamp,
}

fn event(args: &cli::Send, config: &Config, scheme: &Scheme) -> Result<Event, Failure> {
    let now = Clock::system().now();
    if EventType::from_raw(&args.event_type).raw().is_some() {
        return Err(wrong(format!("'{}' is not an event type", escape(&args.event_type))));
    }
    if args.forge && scheme.proof().is_absent() {
        return Err(wrong(format!("provider {} signs nothing to forge", scheme.name())));
    }
    if scheme.proof().has_public_key() {
        return Err(wrong(verify::only_provider_signs(scheme)));
    }
    let at = match (args.stale, scheme.proof().tolerance()) {
        (false, _) => now,
        (true, Some(tolerance)) => now.before(tolerance + STALE_BY),
        (true, None) => {
            let provider = scheme.name();
            return Err(wrong(format!(
                "signatures of provider {provider} carry no timestamp, so --stale cannot be tested"
            )));
        }
    };
    let new_id = || -> Result<String, Failure> {
        Ok(format!("sample-{}", data_encoding::HEXLOWER.encode(&random::bytes::<8>()?)))
    };
    let given = args.id.as_ref().map(ToString::to_string);
    let Some(file) = &args.body else {
        let id = given.map_or_else(new_id, Ok)?;
        let body = verify::sample(scheme, &id, &args.event_type, at);
        return Ok(Event { id, body: body.into(), at });
    };
    let body = Bytes::from(input::read(file, config.limits().bodies_in_flight_bytes)?);
    let in_body = verify::read_body(scheme, &body, &args.event_type);
    if let Some(lacks) = in_body.lacks {
        let (file, provider) = (file.display(), scheme.name());
        let message =
            format!("the body in {file} is not an event of {provider}: it has no {lacks}");
        return Err(wrong(message));
    }
    if in_body.event_type != args.event_type {
        let (file, kind) = (file.display(), escape(&in_body.event_type));
        let message = format!("the body in {file} has type {kind}, not {}", args.event_type);
        return Err(wrong(message));
    }
    if in_body.id_is_free {
        return Ok(Event { id: given.map_or_else(new_id, Ok)?, body, at });
    }
    let file = file.display();
    match (&in_body.id, given) {
        (Some(id), Some(given)) if *id != given => {
            Err(wrong(format!("the body in {file} has the id {id}, and the signature covers it")))
        }
        (id, given) => Ok(Event { id: id.clone().or(given).unwrap_or_default(), body, at }),
    }
}

fn wrong(message: String) -> Failure {
    Exit::Usage.failure(message)
}
