//! Public keys that a provider publishes under a URL: which URL, and on which hosts it may be.
//!
//! Nothing here fetches. `hooklatch keys` does, and writes what it gets to the file of the source's secret.

use super::place::Place;
use crate::payload::Pointer;

/// The table `[keys]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedKeys {
    pub(crate) url: KeyUrl,
    /// `HOST` or `HOST:PORT`, each asked over TLS. They are compared as a whole: with a pattern, a storage bucket called
    /// `sns` would be an address of Amazon SNS.
    pub(crate) hosts: Vec<String>,
    /// The path where each request names its URL, with one `*` for letters, digits, `-` and `_`. Else a stranger could
    /// have anything of the hosts fetched.
    pub(crate) path: Option<String>,
    /// Whether they sign for one customer only. Else a request must name its sender.
    pub(crate) own: bool,
    /// The event by which the provider asks whether it may send events.
    pub(crate) confirmation: Option<Confirmation>,
}

/// A person confirms with a request to the URL that the event names, at one of the hosts: `hooklatch confirm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub(crate) event_type: String,
    pub(crate) url: Pointer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyUrl {
    Fixed(String),
    /// Each request names its own; the signature need not cover it.
    In(Place),
}

impl PublishedKeys {
    /// The URL that every request means; `None` if each names its own.
    pub fn fixed_url(&self) -> Option<&str> {
        match &self.url {
            KeyUrl::Fixed(url) => Some(url),
            KeyUrl::In(_) => None,
        }
    }

    /// Whether a key may be fetched from `url`: by https, from one of the hosts, and from a path of the form.
    pub fn allows_key(&self, url: &str) -> bool {
        let fits = |form: &String| {
            let (begin, end) = form.split_once('*').unwrap_or((form.as_str(), ""));
            let rest = url.strip_prefix("https://").unwrap_or_default();
            let path = rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]);
            let part = path.strip_prefix(begin).and_then(|path| path.strip_suffix(end));
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            part.is_some_and(|part| !part.is_empty() && part.bytes().all(is_plain))
        };
        self.allows(url) && self.path.as_ref().is_none_or(fits)
    }

    /// Whether `url` may be asked at all: by https, at one of the hosts.
    pub fn allows(&self, url: &str) -> bool {
        let rest = url.strip_prefix("https://");
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
        let plain = url.len() <= URL_BYTES && url.bytes().all(|byte| byte.is_ascii_graphic());
        plain && host.is_some_and(|host| self.hosts.iter().any(|known| known == host))
    }
}

/// The longest URL of a key. Amazon's have about 100 bytes.
const URL_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::provider::Scheme;

    #[test]
    fn a_key_is_fetched_over_tls_from_a_known_host_alone() {
        let url = KeyUrl::Fixed("https://keys.example/a".to_owned());
        let keys = PublishedKeys {
            url,
            hosts: vec!["keys.example".into(), "b.example:8443".into()],
            path: None,
            own: true,
            confirmation: None,
        };
        for (url, allowed) in [
            ("https://keys.example/a.pem", true),
            ("https://keys.example", true),
            ("https://keys.example?x", true),
            ("https://b.example:8443/a", true),
            ("https://b.example/a", false),
            ("http://keys.example/a", false),
            ("https://keys.example.evil.example/a", false),
            ("https://evil.example/keys.example", false),
            ("https://keys.example@evil.example/", false),
            ("https://evil.example#keys.example", false),
            ("https://keys.example:444/", false),
            ("https://KEYS.example/", false),
            ("https://keys.example/a b", false),
            ("https://keys.example/\r\nHost: x", false),
            ("keys.example/a", false),
            ("", false),
        ] {
            assert_eq!(keys.allows(url), allowed, "{url}");
            assert_eq!(keys.allows_key(url), allowed, "{url}");
        }
        assert!(!keys.allows(&format!("https://keys.example/{}", "a".repeat(URL_BYTES))));
    }

    #[test]
    fn a_key_that_a_request_names_has_a_path_of_the_files_form() {
        let aws = Scheme::embedded("aws-sns").unwrap();
        let keys = aws.proof().published_keys.as_ref().unwrap();
        for (path, allowed) in [
            ("/SimpleNotificationService-0123abcdef.pem", true),
            ("/SimpleNotificationService-a_B-9.pem", true),
            ("/SimpleNotificationService-.pem", false),
            ("/SimpleNotificationService-a", false),
            ("/SimpleNotificationService-a.pem?a.pem", false),
            ("/SimpleNotificationService-a/b.pem", false),
            ("/SimpleNotificationService-../a.pem", false),
            ("/SimpleNotificationService-%2e.pem", false),
            ("/SimpleNotificationService-a.pem#.pem", false),
            ("/x/SimpleNotificationService-a.pem", false),
            ("?x=/SimpleNotificationService-a.pem", false),
            ("/?Action=ConfirmSubscription", false),
            ("/", false),
            ("", false),
        ] {
            let url = format!("https://sns.eu-west-1.amazonaws.com{path}");
            assert_eq!(keys.allows_key(&url), allowed, "{url}");
            assert!(keys.allows(&url), "{url}");
        }
        let paypal = Scheme::embedded("paypal").unwrap();
        let keys = paypal.proof().published_keys.as_ref().unwrap();
        let at = |path: &str| keys.allows_key(&format!("https://api.paypal.com/v1/{path}"));
        assert!(at("notifications/certs/CERT-0123-abc") && !at("notifications/webhooks"));
    }
}
