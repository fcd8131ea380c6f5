//! `hooklatch init`: creates an endpoint whose URL the operator can give to a provider.
//!
//! It writes a configuration and a secret, and prints the steps at the provider and at the proxy. Must
//! stay true: it does not write to an existing file, and if it fails it removes every file that it made.

mod files;
pub(super) mod steps;
mod texts;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::cli;
use crate::config::{self, Config, without_password};
use crate::exit::{Exit, Failure};
use crate::http;
use crate::model::{DEFAULT_CONFIG, Name, config_option};
use crate::provider::Scheme;
use crate::verify;

use super::output;
use super::random;
pub(super) use files::Made;
pub(super) use texts::{main as main_file, stanza};

/// Writes the files and prints the steps at the provider and at the proxy.
pub(super) fn run(args: &cli::Init) -> Result<Exit, Failure> {
    let main = match &args.dir {
        // Without "./" the printed commands are shorter.
        Some(folder) if folder == Path::new(".") => PathBuf::from("hooklatch.toml"),
        Some(folder) => folder.join("hooklatch.toml"),
        None => args.options.config().to_owned(),
    };
    let source = &args.source;
    let scheme = scheme(&main, source, args.provider.as_ref())?;
    if scheme.proof().covers_url() && args.public_url.is_none() {
        let message = format!("provider {} signs the URL: give --public-url", scheme.name());
        return Err(Exit::Usage.failure(message));
    }
    let is_more = |url: &String| without_password(url) != *url || url.contains(['?', '#']);
    if args.public_url.as_ref().is_some_and(is_more) {
        let message =
            "--public-url must not contain a user name, a password, a query or a fragment";
        let help = format!(
            "if the provider signs them, add all but the fragment to public_url in conf.d/{source}.toml later"
        );
        return Err(Exit::Usage.failure(message).help(help));
    }
    let folder = main.parent().unwrap_or(Path::new("")).to_owned();
    let stanza = folder.join("conf.d").join(format!("{source}.toml"));
    // Published keys are public: they need no folder of their own rights, and no credential.
    let in_public = scheme.proof().published_keys.is_some();
    let kept_in = if in_public { "keys" } else { "secrets" };
    let secret_file = folder.join(kept_in).join(source.as_str());
    let fresh = !main.exists();
    if !fresh && config::load(&main)?.endpoint(source).is_some() {
        return Err(there(format!("source {source} is in the configuration already")));
    }
    let token_file = secret_file.with_file_name(format!("{source}{}", texts::VERIFY));
    for file in [&stanza, &secret_file, &token_file] {
        if file.symlink_metadata().is_ok() {
            return Err(there(format!("{} is there already", file.display())));
        }
    }

    let path = args.path.clone().unwrap_or_else(|| format!("/hooks/{source}"));
    let secret = secret(&scheme)?;
    let token = verify_token(&scheme)?;
    let mut made = Made::default();
    if fresh {
        made.file(&main, &texts::main(&main), 0o644)?;
    }
    for (file, text) in [(&secret_file, &secret), (&token_file, &token)] {
        let Some(text) = text else { continue };
        let line =
            Zeroizing::new(if text.is_empty() { String::new() } else { format!("{}\n", **text) });
        match in_public {
            true => made.file(file, &line, 0o644)?,
            false => made.secret(file, &line)?,
        }
    }
    made.folder(stanza.parent(), 0o755)?;
    if scheme.challenge().registers() {
        made.folder(secret_file.parent(), 0o700)?;
    }
    let by_systemd = is_kept_by_systemd(&main) && !in_public;
    let reference = match by_systemd {
        // The unit would have to be restarted for a credential, while the provider waits.
        true if scheme.challenge().registers() => "file:/var/lib/hooklatch/",
        _ if in_public => "file:keys/",
        _ => reference(&main),
    };
    let text = texts::stanza(source, &scheme, &path, args.public_url.as_deref(), reference);
    made.file(&stanza, &text, 0o644)?;
    // The loader checks names, paths and URLs as `serve` will.
    let config = config::load(&main).map_err(|problems| {
        let failure = Failure::from(problems);
        let message =
            format!("the source cannot be added, so nothing was written: {}", failure.message);
        Failure { message, ..failure }
    })?;
    if !by_systemd && !in_public {
        made.give(&config.store().path)?;
    }
    let endpoint = Endpoint {
        args,
        main: &main,
        config: &config,
        scheme,
        path,
        secret,
        secret_file,
        token,
        token_file,
        stanza,
        by_systemd,
    };
    let made = made.keep();
    output::either(&args.options.format, &endpoint.json(&made), || endpoint.print(&made))
}

/// The given provider; without one, the provider with the source's name.
fn scheme(main: &Path, source: &Name, provider: Option<&Name>) -> Result<Arc<Scheme>, Failure> {
    let named = provider.unwrap_or(source).as_str();
    config::provider(main, named).map_err(|why| {
        let failure = Exit::Usage.failure(why);
        match provider {
            Some(_) => failure,
            None => failure.help(format!(
                "name the provider: hooklatch init --source {source} --provider PROVIDER"
            )),
        }
    })
}

/// The secret's text: a generated one; empty if the provider generates it or has a public key; `None` for an
/// unsigned provider.
fn secret(scheme: &Scheme) -> Result<Option<Zeroizing<String>>, Failure> {
    if scheme.proof().is_absent() || scheme.challenge().registers() {
        return Ok(None);
    }
    if scheme.setup().secret_from.is_some() || scheme.proof().has_public_key() {
        return Ok(Some(Zeroizing::default()));
    }
    Ok(Some(verify::secret_text(scheme, &random::bytes()?)))
}

/// The `verify_token`: a made one; empty if the provider gives it; `None` if the provider uses none.
fn verify_token(scheme: &Scheme) -> Result<Option<Zeroizing<String>>, Failure> {
    Ok(match (scheme.challenge().needs_verify_token(), scheme.challenge().gives_verify_token()) {
        (false, _) => None,
        (true, true) => Some(Zeroizing::default()),
        (true, false) => Some(HEXLOWER.encode(&random::bytes::<16>()?).into()),
    })
}

fn there(message: String) -> Failure {
    Exit::WrongState
        .failure(format!("{message}; nothing was written"))
        .help("look at it with `hooklatch config show`, or choose another --source")
}

/// The folders for units: the package's, and the administrator's.
const UNITS: [&str; 3] = ["/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"];

/// The receiver's unit. It passes the files in `secrets/` to the receiver as credentials.
const UNIT: &str = "hooklatch.service";

/// Whether root owns the files of secrets, and systemd passes them on as credentials: for the system's configuration
/// if the receiver's unit is installed. Otherwise the receiver's user owns and reads them.
fn is_kept_by_systemd(main: &Path) -> bool {
    let mut units = UNITS.iter().map(|folder| Path::new(folder).join(UNIT));
    main == Path::new(DEFAULT_CONFIG) && units.any(|unit| unit.exists())
}

/// What stands before a source's name in the reference to its secret.
pub(super) fn reference(main: &Path) -> &'static str {
    if is_kept_by_systemd(main) { "credential:" } else { "file:secrets/" }
}

/// The facts about a new source that are printed.
struct Endpoint<'a> {
    args: &'a cli::Init,
    main: &'a Path,
    config: &'a Config,
    scheme: Arc<Scheme>,
    path: String,
    secret: Option<Zeroizing<String>>,
    secret_file: PathBuf,
    token: Option<Zeroizing<String>>,
    token_file: PathBuf,
    stanza: PathBuf,
    by_systemd: bool,
}

impl Endpoint<'_> {
    fn url(&self) -> String {
        let proof = self.scheme.proof();
        let base = match &self.args.public_url {
            Some(url) => url.clone(),
            // An unsigned source refuses requests that came through a proxy, so its URL is local.
            None if proof.is_absent() && !proof.needs_certificates() => {
                format!("http://{}", self.config.server().listen)
            }
            None => "https://YOUR-HOST".to_owned(),
        };
        http::public_url(&base, &self.path, None)
    }

    /// The secret's text, if it may be printed.
    fn shown_secret(&self) -> Option<&str> {
        self.shown(self.secret.as_ref())
    }

    fn shown<'t>(&self, text: Option<&'t Zeroizing<String>>) -> Option<&'t str> {
        let terminal = !self.args.options.json() && std::io::stdout().is_terminal();
        let text = text.map(|text| text.as_str()).filter(|text| !text.is_empty());
        text.filter(|_| terminal || self.args.show_secret)
    }

    /// The fields of the provider's page, with name and value.
    fn fields(&self) -> Vec<(String, String)> {
        let secret = self.secret.as_ref().map(|_| match self.shown_secret() {
            Some(text) => text.to_owned(),
            None => format!("the line in {}", self.secret_file.display()),
        });
        let token = match self.shown(self.token.as_ref()) {
            Some(text) => text.to_owned(),
            None => format!("the line in {}", self.token_file.display()),
        };
        steps::fields(&self.scheme, &self.url(), secret.as_deref(), &token)
    }

    /// The proxy's configuration; `None` for an unsigned source, which refuses requests from a proxy or
    /// needs one that also checks certificates.
    fn proxies(&self) -> Option<texts::Proxies> {
        if self.scheme.proof().is_absent() {
            return None;
        }
        let most = self.scheme.setup().delivery.body_limit_bytes;
        let most = most.unwrap_or(self.config.limits().body_default_bytes);
        let secret_in_url = self.scheme.proof().carries_secret_in_url();
        let listen = self.config.server().listen;
        Some(texts::proxies(&self.url(), &self.path, listen, most, secret_in_url))
    }

    fn next(&self) -> Vec<String> {
        let (source, config) = (&self.args.source, config_option(self.main));
        let kind = self.scheme.setup().sample_type.as_deref().unwrap_or("test");
        // A unit reads its credentials when it starts. If there is a store, the unit has run before and
        // needs a restart.
        let serve = match self.by_systemd {
            true if self.config.store().path.exists() => format!("systemctl restart {UNIT}"),
            true => {
                "systemctl enable --now hooklatch.socket hooklatch.service hooklatch-runner.socket"
                    .to_owned()
            }
            false => format!("hooklatch serve{config}"),
        };
        let mut next = vec![format!("hooklatch config check{config}"), serve];
        if self.scheme.challenge().registers() {
            next.push(format!("hooklatch register {source}{config}"));
        }
        let proof = self.scheme.proof();
        if proof.published_keys.is_some() {
            next.push(format!("hooklatch keys {source}{config}"));
        }
        // `send` has no client certificate.
        if !proof.needs_certificates() && !proof.only_provider_signs() {
            next.push(format!("hooklatch send {source} {kind}{config}"));
        }
        next
    }

    fn json(&self, made: &[PathBuf]) -> Value {
        let setup = self.scheme.setup();
        json!({
            "source": self.args.source,
            "provider": self.scheme.name(),
            "made": made,
            "url": self.url(),
            "secret_file": self.secret.as_ref().map(|_| &self.secret_file),
            "secret": self.shown_secret(),
            "secret_from": setup.secret_from,
            "verify_token_file": self.token.as_ref().map(|_| &self.token_file),
            "page": setup.page,
            "fields": steps::json(&self.fields()),
            "proxy": self.proxies(),
            "next": self.next(),
        })
    }

    fn print(&self, made: &[PathBuf]) -> Result<(), Failure> {
        for file in made {
            output::line(format!("made      {}", file.display()))?;
        }
        steps::print(&self.scheme, &self.fields(), &self.secret_file)?;
        let by_operator = self.scheme.setup().secret_from.is_none() && self.secret.is_some();
        if by_operator && self.shown_secret().is_none() {
            output::note("the secret is shown on a terminal, or with --show-secret");
        }
        if let Some(from) = &self.scheme.setup().verify_token_from {
            let file = self.token_file.display();
            output::line(format!("\nThen fill {file} from {}", output::escape(from)))?;
        }
        if self.scheme.proof().needs_certificates() {
            let file = self.stanza.display();
            output::line(format!(
                "\nThen name the proxy that checks certificates in server.trusted_proxies, and take the comment\nsigns away in {file}"
            ))?;
        }
        if let Some(texts::Proxies { caddy, nginx }) = self.proxies() {
            for (proxy, text) in [("Caddy", caddy), ("nginx, in the host's server block", nginx)] {
                output::line(format!("\nFor {proxy}:\n\n{}", texts::indented(&text)))?;
            }
        }
        output::line("\nNext:\n")?;
        self.next().iter().try_for_each(|command| output::line(format!("  {command}")))
    }
}
