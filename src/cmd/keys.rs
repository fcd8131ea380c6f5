//! `hooklatch keys`: fetches the public keys that a provider publishes, into the file that the source's secret names.
//!
//! The receiver itself fetches nothing: a delivery whose key is not there yet is refused and quarantined. Must stay
//! true: only hosts of the provider's file are asked, over TLS; the file is replaced as a whole, by keys that the
//! scheme can use; where deliveries name their keys, which anybody can send, a key is kept only if a kept delivery
//! verifies with it; and a key that the file has stays, except in a key set, which the provider publishes whole.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bytes::Bytes;
use serde::Serialize;

use crate::admin::{Client, Reload, VerifyQuarantine};
use crate::cli;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::limits::SECRET_BYTES;
use crate::model::Name;
use crate::provider::{PublishedKeys, Scheme};
use crate::store::{QuarantineFilter, QuarantinedRow, holder};
use crate::verify;

use super::kit::target::Target;
use super::runtime::block_on;
use super::{output, store};

/// How many URLs of quarantined deliveries are fetched in one run. A provider has one or two keys in use, and strangers
/// with as many addresses as the provider can have others fetched in their place.
const URLS: usize = 32;

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
    let given = args.url.as_deref().or(published.fixed_url());
    let urls = match given {
        Some(url) if published.allows_key(url) => vec![url.to_owned()],
        Some(url) => {
            return Err(Exit::Usage
                .failure(format!("'{url}' is not at a host and a path of the provider's file"))
                .help("keys.hosts and keys.path in the file name them"));
        }
        None => named(&kept(args, &config)?, published),
    };
    let fetched = fetch_all(&urls)?;
    let keys = match given {
        Some(_) => fetched,
        None => proven(args, &config, endpoint.scheme, &fetched)?,
    };
    let old = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(file, &error)),
    };
    let mut new = old.clone();
    for text in &keys {
        new = merged(&new, text);
        let usable = verify::key(endpoint.scheme, "what was fetched", &new);
        usable.map_err(|why| Exit::Unavailable.failure(why))?;
    }
    let changed = new != old;
    if changed {
        replace(file, &new)?;
    }
    let reloaded = changed && reload(&config);
    let is_proven = !keys.is_empty();
    let fetched = Fetched { file: file.display().to_string(), urls, changed, reloaded };
    output::either(&args.options.format, &fetched, || {
        let what = match (fetched.urls.is_empty(), changed, reloaded) {
            (true, ..) => "no delivery names a key that may be fetched",
            (_, false, _) if !is_proven => "no kept delivery verifies with a key that was fetched",
            (_, false, _) => "nothing new",
            (_, true, true) => "written and loaded; then: hooklatch quarantine accept",
            (_, true, false) => "written; no receiver runs that could load it",
        };
        output::line(format_args!("{}: {what}", output::escape(&fetched.file)))
    })
}

/// The deliveries of the source in its receiver's quarantine, newest first. A stopped store is not asked: for that root
/// would become its owner, who may not write into the keys' folder.
fn kept(args: &cli::Keys, config: &Config) -> Result<Vec<QuarantinedRow>, Failure> {
    block_on(async {
        let client = store::receiver(config, &args.options.suffix()).await?;
        let mut kept = Vec::new();
        let mut filter = of(&args.source);
        loop {
            let page = client.call(&filter).await?;
            kept.extend(page.deliveries);
            filter.before = page.next;
            if filter.before.is_none() {
                return Ok::<_, Failure>(kept);
            }
        }
    })?
}

fn of(source: &Name) -> QuarantineFilter {
    QuarantineFilter { source: Some(source.clone()), ..QuarantineFilter::default() }
}

/// The URLs that kept deliveries name: first those that the most clients name, and of these the newest of each client,
/// then the next of each. So a client that names many takes no other's turn, nor one with many networks that of a URL
/// that the provider names from several.
fn named(kept: &[QuarantinedRow], published: &PublishedKeys) -> Vec<String> {
    let mut of_client: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for one in kept {
        let Some((_, url)) = one.detail.split_once(verify::KEY_AT) else { continue };
        let address = one.address.as_ref().and_then(|address| address.parse().ok());
        let named = of_client.entry(holder(address)).or_default();
        // What the quarantine says of a delivery is what a stranger sent.
        if named.len() < URLS && !named.contains(&url) && published.allows_key(url) {
            named.push(url);
        }
    }
    let mut clients: BTreeMap<&str, usize> = BTreeMap::new();
    for url in of_client.values().flatten() {
        *clients.entry(*url).or_default() += 1;
    }
    let mut urls: Vec<(usize, &str)> = Vec::new();
    for nth in 0..URLS {
        for url in of_client.values().filter_map(|named| named.get(nth)) {
            urls.extend(clients.remove(url).map(|count| (count, *url)));
        }
    }
    urls.sort_by_key(|(count, _)| Reverse(*count));
    urls.into_iter().take(URLS).map(|(_, url)| url.to_owned()).collect()
}

/// The texts at the URLs. One that fails is skipped, because a stranger may have named it, unless all of them fail.
fn fetch_all(urls: &[String]) -> Result<Vec<String>, Failure> {
    let (mut fetched, mut failed) = (Vec::new(), Vec::new());
    for url in urls {
        match fetch(url)? {
            Ok(text) => fetched.push(text),
            Err(why) => failed.push(format!("{url}: {why}")),
        }
    }
    match failed.pop() {
        Some(last) if fetched.is_empty() => return Err(Exit::Unavailable.failure(last)),
        last => failed.extend(last),
    }
    failed.iter().for_each(|why| output::note(output::escape(why)));
    Ok(fetched)
}

/// The text at a URL, or why there is none.
fn fetch(url: &str) -> Result<Result<String, String>, Failure> {
    let most = usize::try_from(SECRET_BYTES).unwrap_or(usize::MAX);
    let got = block_on(async { Target::parse(url, "/", true)?.get(most).await })?;
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).map_err(|_| "not text".to_owned());
    Ok(got.and_then(text))
}

/// Picks from the fetched texts the key sets and the certificates with which a kept delivery of the source verifies.
fn proven(
    args: &cli::Keys,
    config: &Config,
    scheme: &Scheme,
    fetched: &[String],
) -> Result<Vec<String>, Failure> {
    let parts = |text: &String| if is_set(text) { vec![text.clone()] } else { blocks(text) };
    let mut parts: Vec<String> = fetched.iter().flat_map(parts).collect();
    parts.retain(|keys| verify::key(scheme, "fetched", keys).is_ok());
    if parts.is_empty() {
        return Ok(parts);
    }
    block_on(async {
        let client = store::receiver(config, &args.options.suffix()).await?;
        let mut proven = Vec::new();
        for keys in parts {
            if proves(&client, &args.source, &keys).await? {
                proven.push(keys);
            }
        }
        Ok::<_, Failure>(proven)
    })?
}

/// Whether a kept delivery of the source verifies with these keys alone.
async fn proves(client: &Client, source: &Name, keys: &str) -> Result<bool, Failure> {
    let mut next = Some(0);
    while let Some(after) = next {
        let (filter, keys) = (of(source), Some(keys.to_owned()));
        let judged = client.call(&VerifyQuarantine { filter, after, keys }).await?;
        if judged.sources.values().any(|one| one.good > 0) {
            return Ok(true);
        }
        next = judged.next;
    }
    Ok(false)
}

fn is_set(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// What the file then has: the fetched key set, or its own certificates and the fetched ones.
fn merged(old: &str, fetched: &str) -> String {
    if is_set(fetched) {
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Timestamp;

    fn pem(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----")
    }

    fn url(name: &str) -> String {
        format!("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-{name}.pem")
    }

    fn row(id: i64, address: &str, url: &str) -> QuarantinedRow {
        QuarantinedRow {
            id,
            source: "alerts".parse().unwrap(),
            received_at: Timestamp(0),
            address: Some(address.to_owned()),
            reason: "bad_signature".to_owned(),
            detail: format!("no signature{}{url}", verify::KEY_AT),
            unproven_event_id: None,
            body_bytes: 1,
            body_kept: true,
        }
    }

    #[test]
    fn a_client_with_many_networks_takes_no_turn_of_what_several_clients_name() {
        let sns = Scheme::embedded("aws-sns").unwrap();
        let published = sns.proof().published_keys.as_ref().unwrap();
        let mut kept: Vec<_> = (0..40)
            .map(|n| row(100 - n, &format!("2001:db8:0:{n:x}::1"), &url(&format!("n{n}"))))
            .collect();
        kept.push(row(2, "2001:db8:1::7", &url("own")));
        kept.push(row(1, "2001:db8:1:1::8", &url("own")));
        let holders = kept.iter().map(|one| holder(one.address.as_ref().unwrap().parse().ok()));
        let holders: Vec<_> = holders.collect();
        assert!(holders[..40].iter().all(|other| other < &holders[40]), "{holders:?}");
        let urls = named(&kept, published);
        assert_eq!((urls.len(), &urls[..2]), (URLS, &[url("own"), url("n0")][..]));
    }

    #[test]
    fn a_client_that_names_many_urls_takes_no_other_clients_turn() {
        let sns = Scheme::embedded("aws-sns").unwrap();
        let published = sns.proof().published_keys.as_ref().unwrap();
        let mut kept: Vec<_> = (0..200)
            .map(|n| row(1000 - n, "192.0.2.1", &url(&format!("n{n}"))))
            .chain((0..200).map(|n| {
                let url = url(&format!("v{n}"));
                row(800 - n, &format!("2001:db8::{n}"), &url)
            }))
            .collect();
        kept.push(row(2, "198.51.100.7", &url("own")));
        kept.push(row(1, "198.51.100.8", "https://sns.eu-west-1.amazonaws.com/other"));
        let urls = named(&kept, published);
        assert_eq!((urls.len(), &urls[..3]), (URLS, &[url("n0"), url("own"), url("v0")][..]));
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
