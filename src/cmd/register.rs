//! `hooklatch register`: takes the secret that a provider sends when its endpoint is set up.
//!
//! Must stay true: only a request counts whose URL has the random word of this command; the file is new and on disk
//! before the receiver reads it, and the provider gets its answer only from a receiver that has the secret. A kill at any
//! point leaves the provider without an answer.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;

use crate::admin::{AwaitSecret, Client, Reload};
use crate::cli;
use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::http;
use crate::registration::WORD;

use super::output::{self, escape};
use super::runtime::block_on;
use super::{owner, random, store};

/// Waits for the secret, writes it to the file of the source's `secrets`, and makes the receiver load it.
pub(super) fn run(args: &cli::Register) -> Result<Exit, Failure> {
    let config = config::load(args.options.config())?;
    let source = &args.source;
    let Some(configured) = config.source(source) else {
        return Err(Exit::NotFound.failure(format!("no source is called {source}")));
    };
    let file = configured.registers().map_err(|why| Exit::Usage.failure(why))?;
    if file.symlink_metadata().is_ok() {
        return Err(Exit::WrongState.failure(format!("{} is there already", file.display())).help(
            "a secret is never overwritten: if the provider does not have it, remove the file and repeat",
        ));
    }
    let word = HEXLOWER.encode(&random::bytes::<16>()?);
    let base = configured.public_url.as_deref().unwrap_or("https://YOUR-HOST");
    let query = format!("{WORD}={word}");
    let url = http::public_url(base, &configured.path.value, Some(&query));
    let secret = block_on(async {
        let client = store::receiver(&config, &args.options.suffix()).await?;
        let minutes = args.wait.as_secs().div_ceil(60);
        output::note(format!(
            "set up the endpoint at the provider within {minutes} min, with this URL:\n{url}"
        ));
        let secret = wait(&client, args, &word).await?;
        write(&config, file, &secret)?;
        // The file stays: whether the provider got its answer is not known here.
        client.call(&Reload {}).await.map_err(|error| {
            let fix = format!(
                "correct it, remove {} unless the provider has confirmed, and repeat",
                file.display()
            );
            Failure::from(error).help(fix)
        })?;
        Ok::<_, Failure>(secret)
    })??;
    output::line(format!("made      {}", file.display()))?;
    if configured.scheme.challenge().registers_by_hand() {
        output::line(format!("enter it at the provider: {}", escape(&secret)))?;
    }
    Ok(Exit::Ok)
}

async fn wait(client: &Client, args: &cli::Register, word: &str) -> Result<String, Failure> {
    let end = Instant::now() + args.wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let wait_millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let (source, word) = (args.source.clone(), word.to_owned());
        let request = AwaitSecret { source, word, wait_millis };
        if let Some(secret) = client.call(&request).await?.secret {
            return Ok(secret);
        }
        if left <= Duration::ZERO {
            let message = format!("source {} got no secret in time", args.source);
            return Err(Exit::Unavailable.failure(message));
        }
    }
}

/// Makes the file, which belongs to the store's owner: the receiver reads it.
fn write(config: &Config, path: &Path, secret: &str) -> Result<(), Failure> {
    let made = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let written = file.write_all(format!("{secret}\n").as_bytes());
        written.and_then(|()| file.sync_all()).inspect_err(|_| drop(std::fs::remove_file(path)))?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        Ok(file)
    })();
    let failed = |error: std::io::Error| {
        let failure = Exit::Io.failure(format!("failed to make {}: {error}", path.display()));
        match error.kind() {
            ErrorKind::NotFound => failure.help("make its folder, with mode 0700"),
            _ => failure,
        }
    };
    let file = made.map_err(failed)?;
    if let Some((uid, gid)) = owner::of(&config.store().path)?
        && nix::unistd::Uid::effective().is_root()
    {
        fchown(&file, Some(uid.as_raw()), Some(gid.as_raw())).map_err(failed)?;
    }
    Ok(())
}
