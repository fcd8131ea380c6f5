//! `hooklatch keys`: fetches the public keys that a provider publishes, into the file that the source's secret names.
//!
//! The receiver itself fetches nothing: a delivery whose key is not there yet is refused and quarantined. Must stay
//! true: only hosts of the provider's file are asked, over TLS; the file is replaced as a whole, by keys that the
//! scheme can use; and a key that the file has stays, except in a key set, which the provider publishes whole.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;

use crate::admin::Reload;
use crate::cli;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::limits::SECRET_BYTES;
use crate::provider::PublishedKeys;
use crate::store::QuarantineFilter;
use crate::verify;

use super::kit::target::Target;
use super::runtime::block_on;
use super::{output, store};

/// How many URLs of quarantined deliveries are fetched in one run. A provider has one or two keys in use, and anyone
/// can send a delivery that names another.
const URLS: usize = 4;

/// How many certificates the file keeps, the newest last.
const CERTIFICATES: usize = 8;

#[derive(Serialize)]
struct Fetched {
    file: String,
    urls: Vec<String>,
    changed: bool,
    reloaded: bool,
}

/// Fetches, writes, reloads.
pub(super) fn run(args: &cli::Keys) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let source = &args.source;
    let endpoint = config.endpoint(source).ok_or_else(|| {
        Exit::NotFound.failure(format!("no such source: {source}")).help("conf.d/*.toml name them")
    })?;
    let published = endpoint.scheme.proof().published_keys.as_ref().ok_or_else(|| {
        let name = endpoint.scheme.name();
        Exit::Usage.failure(format!("provider {name} publishes no keys at a URL"))
    })?;
    let file = endpoint.secret_file().ok_or_else(|| {
        Exit::Config
            .failure(format!("the first secret of source {source} is not a file"))
            .help(format!("write secrets = [\"file:keys/{source}\"]: the keys are public"))
    })?;
    let urls = urls(args, published, &config)?;
    let old = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(file, &error)),
    };
    let mut new = old.clone();
    for url in &urls {
        new = merged(&new, &fetch(url)?);
        let usable = verify::key(endpoint.scheme, url, &new);
        usable.map_err(|why| Exit::Unavailable.failure(why))?;
    }
    let changed = new != old;
    if changed {
        replace(file, &new)?;
    }
    let reloaded = changed && reload(&config);
    let fetched = Fetched { file: file.display().to_string(), urls, changed, reloaded };
    output::either(&args.options.format, &fetched, || {
        let what = match (fetched.urls.is_empty(), changed, reloaded) {
            (true, ..) => "no delivery names a key that may be fetched",
            (_, false, _) => "nothing new",
            (_, true, true) => "written and loaded; then: hooklatch quarantine accept",
            (_, true, false) => "written; no receiver runs that could load it",
        };
        output::line(format_args!("{}: {what}", output::escape(&fetched.file)))
    })
}

/// The URLs to fetch: the given one, the provider's, or those that quarantined deliveries name.
fn urls(
    args: &cli::Keys,
    published: &PublishedKeys,
    config: &Config,
) -> Result<Vec<String>, Failure> {
    if let Some(url) = args.url.as_deref().or(published.fixed_url()) {
        return match published.allows(url) {
            true => Ok(vec![url.to_owned()]),
            false => Err(Exit::Usage
                .failure(format!("'{url}' is not at a host of the provider's file"))
                .help("keys.hosts in the file names the hosts")),
        };
    }
    let filter =
        QuarantineFilter { source: Some(args.source.clone()), ..QuarantineFilter::default() };
    let kept = store::ask_of(config, filter)?.deliveries;
    let mut urls: Vec<String> = Vec::new();
    for (_, url) in kept.iter().filter_map(|one| one.detail.split_once(verify::KEY_AT)) {
        // What the quarantine says of a delivery is what a stranger sent.
        if published.allows(url) && !urls.iter().any(|known| known == url) && urls.len() < URLS {
            urls.push(url.to_owned());
        }
    }
    Ok(urls)
}

fn fetch(url: &str) -> Result<String, Failure> {
    let unavailable = |why: String| Exit::Unavailable.failure(format!("{url}: {why}"));
    let most = usize::try_from(SECRET_BYTES).unwrap_or(usize::MAX);
    let got = block_on(async { Target::parse(url, "/", true)?.get(most).await })?;
    let text = String::from_utf8(got.map_err(unavailable)?.to_vec());
    text.map_err(|_| unavailable("not text".to_owned()))
}

/// What the file then has: the fetched key set, or its own certificates and the fetched ones.
fn merged(old: &str, fetched: &str) -> String {
    if fetched.trim_start().starts_with('{') {
        return format!("{}\n", fetched.trim());
    }
    let mut all = blocks(old);
    for block in blocks(fetched) {
        if !all.contains(&block) {
            all.push(block);
        }
    }
    all[all.len().saturating_sub(CERTIFICATES)..].iter().map(|block| format!("{block}\n")).collect()
}

/// The blocks of a PEM file (RFC 7468), with `\n` between lines.
fn blocks(pem: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut open = None;
    for line in pem.lines().map(str::trim_end) {
        if line.starts_with("-----BEGIN ") {
            open = Some(Vec::new());
        }
        if let Some(lines) = &mut open {
            lines.push(line);
            if line.starts_with("-----END ") {
                blocks.extend(open.take().map(|lines| lines.join("\n")));
            }
        }
    }
    blocks
}

/// Replaces the file in one step; everybody may read it.
fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let written = (|| {
        fs::create_dir_all(folder)?;
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(text.as_bytes())?;
        new.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        new.as_file().sync_all()?;
        new.persist(file)?;
        fs::File::open(folder)?.sync_all()
    })();
    written.map_err(|error| failed(file, &error))
}

fn failed(file: &Path, error: &std::io::Error) -> Failure {
    Exit::Io.failure(format!("failed to write {}: {error}", file.display()))
}

/// Makes a running receiver read the file. False if none runs, or it keeps what it has.
fn reload(config: &Config) -> bool {
    let reloaded = block_on(async {
        let client = store::receiver(config, "").await?;
        Ok::<_, Failure>(client.call(&Reload {}).await?)
    });
    matches!(reloaded, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----")
    }

    #[test]
    fn certificates_are_added_once_and_a_key_set_replaces_the_old_one() {
        let one = merged("", &format!("# a comment\r\n{}\r\n", pem("one").replace('\n', "\r\n")));
        assert_eq!(one, pem("one") + "\n");
        let two = merged(&one, &pem("two"));
        assert_eq!(two, format!("{}\n{}\n", pem("one"), pem("two")));
        assert_eq!(merged(&two, &pem("one")), two);
        let many = (0..20).fold(two, |all, n| merged(&all, &pem(&n.to_string())));
        assert_eq!(blocks(&many), (12..20).map(|n| pem(&n.to_string())).collect::<Vec<_>>());
        assert_eq!(merged("{\"keys\":[1]}\n", "{\"keys\":[2]}"), "{\"keys\":[2]}\n");
        assert_eq!(merged("x", "-----BEGIN CERTIFICATE-----\nno end"), "");
    }
}
