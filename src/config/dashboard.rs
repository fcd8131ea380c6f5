//! Reads `[dashboard]`: where `hooklatch ui --configured` listens, and who may use it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::document::{Fault, Section, Value};
use crate::limits::BY_NAME_BYTES;

use super::read::{bad_text, header, normal, parse_address};
use super::secrets::{Reference, read_references};
use super::shown;

/// The section `[dashboard]`. Secrets are references.
#[derive(Serialize)]
pub struct Dashboard {
    pub listen: Listen,
    /// The origin under which browsers reach it: scheme, host and port. Always https.
    pub public_url: Option<String>,
    pub(super) operate: Vec<Value<Reference>>,
    pub(super) view: Vec<Value<Reference>>,
    /// Whether the role view sees bodies, headers and outputs.
    pub view_payloads: bool,
    pub(super) proxy: Option<Proxy>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        shown::text(self, serializer)
    }
}

#[derive(Serialize)]
pub(super) struct Proxy {
    pub(super) user_header: String,
    pub(super) secret: Option<Value<Reference>>,
    pub(super) operate: Vec<String>,
}

/// The header in which a proxy proves itself.
pub const PROXY_SECRET: &str = "hooklatch-proxy-secret";

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8484);

/// Reads the section. `others` are the addresses of the receiver.
pub(super) fn read(section: Section<'_>, folder: &Path, others: &[SocketAddr]) -> Dashboard {
    let parsed = section.parse("listen", |text: String| listen(text, folder));
    let public_url = section.parse("public_url", |url: String| {
        origin(&url).ok_or_else(|| {
            let help =
                "write https:// and a host, as browsers show it: \"https://hooks.example.net\"";
            Fault::new(format!("'{url}' is not the https address of a whole host"), help)
        })
    });
    let [operate, view] = ["operate", "view"]
        .map(|key| read_references(&section, section.texts(key).unwrap_or_default(), folder));
    for twin in view.iter().filter(|one| operate.iter().any(|other| other.value == one.value)) {
        let help = "give each role tokens of its own";
        section.reject(&twin.at, format!("'{}' is in operate too", twin.value), help);
    }
    let view_payloads = section.value("view_payloads").unwrap_or_default();
    let proxy = section.section("proxy").map(|table| (table.here(), read_proxy(table, folder)));
    let at = section.place_of("listen").unwrap_or_else(|| section.here());
    let listen = parsed.map_or(Listen::Tcp(LISTEN), |listen| listen.value);
    let has_url = section.has("public_url");
    match &listen {
        Listen::Tcp(address) if !address.ip().is_loopback() && !has_url => {
            let help = "listen on 127.0.0.1, or put a TLS proxy in front and write its public_url = \"https://…\"";
            section.reject(
                &at,
                format!("{address} can be reached from other machines, without TLS"),
                help,
            );
        }
        Listen::Tcp(address) if address.port() != 0 && others.contains(address) => {
            let help = "give the dashboard a port of its own";
            section.reject(&at, format!("{address} is the receiver's"), help);
        }
        _ => {}
    }
    match &proxy {
        Some((at, proxy)) => {
            for key in ["operate", "view"] {
                section.refuse(key, "tokens and a proxy exclude each other", "keep one of the two");
            }
            let has_secret = proxy.as_ref().is_none_or(|proxy| proxy.secret.is_some());
            if !has_secret && matches!(listen, Listen::Tcp(_)) {
                let help = "add secret = \"credential:ui-proxy\", which the proxy sends in the header Hooklatch-Proxy-Secret, or listen on a Unix socket that only the proxy may open";
                section.reject(at, "every program of this machine could name a user", help);
            }
        }
        None if operate.is_empty() && view.is_empty() => {
            let help =
                "add operate = [\"credential:ui-operate\"], a token of 32 characters or more";
            section.reject(&at, "nobody may log in", help);
        }
        None => {}
    }
    if !has_url && (proxy.is_some() || matches!(listen, Listen::Unix(_))) {
        let help = "add public_url = \"https://…\", the address of the proxy in front";
        section.reject(&at, "browsers come through a proxy, and public_url is missing", help);
    }
    section.finish();
    Dashboard {
        listen,
        public_url: public_url.map(|url| url.value),
        operate,
        view,
        view_payloads,
        proxy: proxy.and_then(|(_, proxy)| proxy),
    }
}

fn listen(text: String, folder: &Path) -> Result<Listen, Fault> {
    match text.strip_prefix("unix:") {
        None => parse_address(&text, "127.0.0.1:8484").map(Listen::Tcp),
        Some(path) => match bad_text(path) {
            None => Ok(Listen::Unix(normal(&folder.join(path)))),
            Some(wrong) => Err(format!("the path {wrong}").into()),
        },
    }
}

/// The origin as browsers write it: lower case, without the default port. `None` for another URL.
fn origin(url: &str) -> Option<String> {
    let url = url.to_ascii_lowercase();
    let authority = url.strip_prefix("https://")?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
        _ => (authority, None),
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
    let port = port.filter(|port| *port != 443).map(|port| format!(":{port}")).unwrap_or_default();
    (!host.is_empty() && host.bytes().all(fits)).then(|| format!("https://{host}{port}"))
}

fn read_proxy(table: Section<'_>, folder: &Path) -> Option<Proxy> {
    table.demand("user_header", "add user_header = \"X-Forwarded-User\"");
    let user_header = header(&table, "user_header");
    if user_header.as_ref().is_some_and(|header| header.value.eq_ignore_ascii_case(PROXY_SECRET)) {
        table.refuse("user_header", "this header has the proxy's secret", "name another one");
    }
    let secret = table.parse("secret", |text: String| Reference::parse(&text, folder));
    let operate = table.list("operate", |name| match name.len() {
        1..=BY_NAME_BYTES => Ok(name),
        _ => Err(format!("a user's name has 1 to {BY_NAME_BYTES} bytes")),
    });
    table.finish();
    Some(Proxy {
        user_header: user_header?.value,
        secret,
        operate: operate.into_iter().map(|name| name.value).collect(),
    })
}

impl Dashboard {
    /// Every secret that it refers to.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Value<Reference>> {
        let of_proxy = self.proxy.iter().flat_map(|proxy| &proxy.secret);
        self.operate.iter().chain(&self.view).chain(of_proxy)
    }
}
