//! Published keys and subscriptions, with a key server over TLS on loopback, in the form of Amazon SNS; but with an
//! elliptic curve, because `ring` makes no RSA keys.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use data_encoding::BASE64;
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::operator::text;
use crate::public::authority;
use crate::support::{Receiver, Site, post};

/// A pair that signs, and the certificate that is published.
fn signer() -> (EcdsaKeyPair, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let random = SystemRandom::new();
    let der = key.serialize_der();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &random).unwrap();
    (pair, certificate.pem())
}

/// Starts a server that answers a GET of a confirmation, or of one of the `pages` by their paths, and notes the paths.
fn server(
    config: Arc<ServerConfig>,
    pages: BTreeMap<String, String>,
) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let paths = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut client = BufReader::new(StreamOwned::new(session, stream));
            let mut lines = Vec::new();
            while !lines.last().is_some_and(|line: &String| line.trim().is_empty()) {
                let mut line = String::new();
                if client.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
                lines.push(line);
            }
            let Some(first) = lines.first() else { continue };
            let path = first.split(' ').nth(1).unwrap().to_owned();
            let (status, page) = match pages.get(&path) {
                Some(page) => ("200 OK", page.as_str()),
                None if path.starts_with("/confirm") => ("200 OK", "confirmed"),
                None => ("404 Not Found", ""),
            };
            paths.lock().unwrap().push(path);
            let client = client.get_mut();
            let length = page.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{page}");
            client.write_all(answer.as_bytes()).unwrap();
            client.conn.send_close_notify();
            client.flush().unwrap();
        }
    });
    (port, asked)
}

/// A notification as SNS signs it.
fn notification(
    key: &EcdsaKeyPair,
    [id, topic, kind]: [&str; 3],
    url: &str,
    subscribe: &str,
) -> Vec<u8> {
    let now = jiff::Timestamp::now().to_string();
    let mut lines = vec![("Message", "hello\nworld"), ("MessageId", id)];
    if kind != "Notification" {
        lines.push(("SubscribeURL", subscribe));
    }
    lines.extend([("Timestamp", now.as_str()), ("TopicArn", topic), ("Type", kind)]);
    let signed: String = lines.iter().map(|(name, value)| format!("{name}\n{value}\n")).collect();
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    let mut body: serde_json::Map<String, Value> =
        lines.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    body.insert("SigningCertURL".to_owned(), json!(url));
    body.insert("Signature".to_owned(), json!(BASE64.encode(signature.as_ref())));
    Value::Object(body).to_string().into_bytes()
}

const TOPIC: &str = "arn:aws:sns:eu-west-1:111111111111:deploys-a";

/// How many other certificates the server has: more than the file keeps.
const OTHERS: usize = 9;

struct Sns {
    site: Site,
    receiver: Receiver,
    key: EcdsaKeyPair,
    certificate: String,
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Sns {
    fn new() -> Self {
        let site = Site::new(
            "[sources.alerts]\nprovider = \"own-sns\"\npath = \"/alerts\"\nsecrets = [\"file:keys/alerts\"]\n\
             sender = [\"arn:aws:sns:eu-west-1:111111111111:deploys-*\", \"arn:aws:sns:eu-west-1:222222222222:one\"]\n\
             [handlers.note]\nsource = \"alerts\"\nevents = [\"Notification\"]\ncommand = [\"./note\"]\n",
        );
        site.script("note", "cat >> \"$SITE/notes\"");
        let (root, config) = authority();
        fs::write(site.path("root.pem"), root).unwrap();
        let (key, certificate) = signer();
        // At the same host, and by themselves as good.
        let others = (0..OTHERS).map(|n| (format!("/key-other{n}.pem"), signer().1));
        let own = ("/key-a.pem".to_owned(), certificate.clone());
        let (port, asked) = server(config, others.chain([own]).collect());
        let own = format!(
            "name = \"own-sns\"\nlike = \"aws-sns\"\n[signature]\nalgorithm = \"ecdsa-p256\"\nfield = \"json:/Signature\"\n\
             encoding = \"base64\"\nsigned = \"{{lines:Message,MessageId,SubscribeURL,Subject,Timestamp,Token,TopicArn,Type}}\"\nsender = \"json:/TopicArn\"\n[keys]\nurl = \"json:/SigningCertURL\"\nhosts = [\"localhost:{port}\"]\npath = \"/key-*.pem\"\n\
             confirm_type = \"SubscriptionConfirmation\"\nconfirm_url = \"json:/SubscribeURL\"\n"
        );
        fs::create_dir(site.path("providers")).unwrap();
        fs::create_dir(site.path("keys")).unwrap();
        fs::write(site.path("providers/own-sns.toml"), own).unwrap();
        fs::write(site.path("keys/alerts"), "").unwrap();
        let receiver = site.start();
        Sns { site, receiver, key, certificate, port, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn deliver(&self, kind: &str, url: &str) -> u16 {
        self.deliver_of("m-1", TOPIC, kind, url)
    }

    fn deliver_of(&self, id: &str, topic: &str, kind: &str, url: &str) -> u16 {
        let subscribe = self.url(&format!("/confirm?Token={id}"));
        let body = notification(&self.key, [id, topic, kind], url, &subscribe);
        post(self.receiver.address, "/alerts", "Content-Type: text/plain\r\n", &body).0
    }

    /// A delivery that names this URL, signed by nobody who has a certificate.
    fn forge(&self, url: &str) -> u16 {
        let names = ["m-forged", TOPIC, "Notification"];
        let body = notification(&signer().0, names, url, "");
        post(self.receiver.address, "/alerts", "Content-Type: text/plain\r\n", &body).0
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = self.site.command(args);
        let output = command.env("SSL_CERT_FILE", self.site.path("root.pem")).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }
}

#[test]
fn a_delivery_waits_in_the_quarantine_until_an_operator_fetches_its_key() {
    let sns = Sns::new();
    // Nothing is fetched by the receiver, and nothing from a foreign host by anyone.
    assert_eq!(sns.deliver("Notification", "https://evil.example/key-a.pem"), 401);
    let (code, said) = sns.run(&["keys", "alerts"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no delivery names a key that may be fetched"), "{said}");
    assert_eq!(sns.deliver("Notification", &sns.url("/key-a.pem")), 401);
    assert_eq!(*sns.asked.lock().unwrap(), Vec::<String>::new());

    let (code, said) = sns.run(&["keys", "alerts"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("written and loaded; then: hooklatch quarantine accept"), "{said}");
    assert_eq!(*sns.asked.lock().unwrap(), ["/key-a.pem"]);
    let check = text(&sns.site.run(&["config", "check"]).stdout);
    assert!(!check.contains("keys/alerts can be read"), "it is public: {check}");
    let kept = fs::read_to_string(sns.site.path("keys/alerts")).unwrap();
    assert!(kept.starts_with("-----BEGIN CERTIFICATE-----\n"), "{kept}");
    let judged = sns.site.json(&["quarantine", "accept", "--yes"]);
    assert_eq!(judged["sources"]["alerts"]["accepted"], 1, "{judged}");
    assert_eq!(sns.deliver("Notification", &sns.url("/key-a.pem")), 200);
    assert_eq!(sns.deliver("Notification", "https://evil.example/key-a.pem"), 401);
    assert_eq!(sns.deliver("Notification", &sns.url("/key-a.pem").replace("https", "http")), 401);
    let (_, said) = sns.run(&["keys", "alerts", "--url", &sns.url("/key-a.pem")]);
    assert!(said.contains("nothing new"), "{said}");
}

/// Anybody can name any URL of the provider's hosts.
#[test]
fn strangers_neither_keep_a_key_from_being_fetched_nor_evict_it() {
    let sns = Sns::new();
    assert_eq!(sns.deliver("Notification", &sns.url("/key-a.pem")), 401);
    let flood = || {
        for n in 0..OTHERS {
            assert_eq!(sns.forge(&sns.url(&format!("/key-other{n}.pem"))), 401);
            assert_eq!(sns.forge(&sns.url(&format!("/key-missing{n}.pem"))), 401);
        }
        for path in ["/", "/key-a.pem?n=1", "/x/key-a.pem", "/key-a.pem.pem", "/confirm"] {
            assert_eq!(sns.forge(&sns.url(path)), 401);
        }
    };
    flood();
    let (code, said) = sns.run(&["keys", "alerts"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("written and loaded"), "{said}");
    assert!(said.contains("key-missing0.pem: the answer is 404"), "{said}");
    let mut asked = std::mem::take(&mut *sns.asked.lock().unwrap());
    asked.sort();
    let named = |what: &'static str| (0..OTHERS).map(move |n| format!("/key-{what}{n}.pem"));
    let all = ["/key-a.pem".to_owned()].into_iter().chain(named("missing")).chain(named("other"));
    assert_eq!(asked, all.collect::<Vec<_>>(), "and no other form");
    let file = || fs::read_to_string(sns.site.path("keys/alerts")).unwrap();
    assert!(file().lines().eq(sns.certificate.lines()), "{}", file());
    let judged = sns.site.json(&["quarantine", "accept", "--yes"]);
    assert_eq!(judged["sources"]["alerts"]["accepted"], 1, "{judged}");

    flood();
    let (code, said) = sns.run(&["keys", "alerts"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no kept delivery verifies with a key that was fetched"), "{said}");
    assert!(file().lines().eq(sns.certificate.lines()), "{}", file());
    assert_eq!(sns.deliver("Notification", &sns.url("/key-a.pem")), 200);
}

#[test]
fn a_person_confirms_a_subscription_at_a_host_of_the_provider_alone() {
    let sns = Sns::new();
    let (code, said) = sns.run(&["confirm", "alerts", "--yes"]);
    assert_eq!(code, Some(66), "{said}");
    let (code, said) = sns.run(&["keys", "alerts", "--url", &sns.url("/key-a.pem")]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = sns.run(&["keys", "alerts", "--url", "https://evil.example/key-a.pem"]);
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(sns.deliver("SubscriptionConfirmation", &sns.url("/key-a.pem")), 200);
    assert_eq!(*sns.asked.lock().unwrap(), ["/key-a.pem"], "the receiver follows nothing");
    let (code, said) = sns.run(&["confirm", "alerts"]);
    assert_eq!(code, Some(2), "nobody can answer: {said}");
    let (code, said) = sns.run(&["confirm", "alerts", "--yes"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), format!("confirmed {TOPIC}, by event m-1\n").as_str())
    );
    assert_eq!(*sns.asked.lock().unwrap(), ["/key-a.pem", "/confirm?Token=m-1"]);
    // A source whose provider publishes nothing.
    assert_eq!(sns.run(&["keys", "github"]).0, Some(2));
    assert_eq!(sns.run(&["confirm", "github"]).0, Some(2));
    assert_eq!(sns.run(&["keys", "nobody"]).0, Some(66));
}

/// Amazon signs the messages of every customer's topics with one key: the topic alone tells them apart.
#[test]
fn a_genuine_message_of_another_customers_topic_is_refused_and_runs_nothing() {
    let sns = Sns::new();
    let key = sns.url("/key-a.pem");
    let (code, said) = sns.run(&["keys", "alerts", "--url", &key]);
    assert_eq!(code, Some(0), "{said}");
    let foreign = [
        "arn:aws:sns:eu-west-1:666666666666:deploys-a",
        "arn:aws:sns:eu-west-1:111111111111:other",
        "arn:aws:sns:eu-west-1:222222222222:one-more",
        "arn:aws:sns:eu-west-1:111111111111:deploys-*".trim_end_matches("-*"),
        "",
    ];
    for (n, topic) in foreign.iter().enumerate() {
        for kind in ["Notification", "SubscriptionConfirmation"] {
            assert_eq!(sns.deliver_of(&format!("f-{n}"), topic, kind, &key), 401, "{topic}");
        }
    }
    let kept = sns.site.json(&["quarantine", "--reason", "bad_claim"]);
    assert_eq!(kept["deliveries"].as_array().unwrap().len(), 2 * foreign.len(), "{kept}");
    let judged = sns.site.json(&["quarantine", "accept", "--yes"]);
    assert_eq!(judged["sources"]["alerts"]["accepted"], 0, "{judged}");
    assert_eq!(
        sns.deliver_of("m-2", "arn:aws:sns:eu-west-1:222222222222:one", "Notification", &key),
        200
    );
    assert_eq!(sns.deliver("Notification", &key), 200);
    sns.site.all_jobs(2, "succeeded");
    let notes = fs::read_to_string(sns.site.path("notes")).unwrap();
    assert_eq!(
        (notes.matches("TopicArn").count(), notes.contains("666666666666")),
        (2, false),
        "{notes}"
    );
}

/// The configuration may have had another sender when the event was stored.
#[test]
fn a_subscription_of_another_sender_is_not_confirmed_even_where_it_is_the_newest() {
    let sns = Sns::new();
    let key = sns.url("/key-a.pem");
    assert_eq!(sns.run(&["keys", "alerts", "--url", &key]).0, Some(0));
    let kind = "SubscriptionConfirmation";
    assert_eq!(sns.deliver_of("own", TOPIC, kind, &key), 200);
    assert_eq!(sns.deliver_of("old", "arn:aws:sns:eu-west-1:222222222222:one", kind, &key), 200);
    let (code, said) = sns.run(&["confirm", "alerts", "--yes", "--json"]);
    assert!(said.contains(r#""event": "old""#), "{code:?} {said}");
    let config = fs::read_to_string(sns.site.path("hooklatch.toml")).unwrap();
    let narrow = config.replace(", \"arn:aws:sns:eu-west-1:222222222222:one\"", "");
    assert_ne!(narrow, config);
    fs::write(sns.site.path("hooklatch.toml"), narrow.clone()).unwrap();
    let (code, said) = sns.run(&["confirm", "alerts", "--yes"]);
    assert_eq!((code, said), (Some(0), format!("confirmed {TOPIC}, by event own\n")));
    fs::write(sns.site.path("hooklatch.toml"), narrow.replace("deploys-*", "none")).unwrap();
    let (code, said) = sns.run(&["confirm", "alerts", "--yes"]);
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.contains("no event of type SubscriptionConfirmation is from the source's sender"),
        "{said}"
    );
    let asked = sns.asked.lock().unwrap().clone();
    assert_eq!(asked, ["/key-a.pem", "/confirm?Token=old", "/confirm?Token=own"]);
}
