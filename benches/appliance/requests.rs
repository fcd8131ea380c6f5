//! Deliveries as the providers make them: unique bodies with unique ids, signed before the measurement.
//!
//! They have the form that the providers document (the push event, the charge object) and a typical size.
//! Values that differ between real events also differ here; otherwise the bodies would compress better than
//! real ones.

use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The secret of every source in this bench.
pub(crate) const SECRET: &str = "whsec_a-secret-for-benches-only";

/// The time of the first GitHub delivery, in steps of 100 ns since 1582: a day in 2025.
pub(crate) const FIRST_AT: u64 = 0x1f0_b5d0_0000_0000;

/// The kind of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A GitHub push of 7 KB.
    GitHub,
    /// A Stripe event of 2.5 KB.
    Stripe,
}

impl Kind {
    /// The path of its source.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Kind::GitHub => "/github",
            Kind::Stripe => "/stripe",
        }
    }
}

/// A whole HTTP request for the event with this number.
pub(crate) fn request(kind: Kind, number: u64) -> Vec<u8> {
    let mut random = Random::new(kind, number);
    match kind {
        Kind::GitHub => github(number, &mut random),
        Kind::Stripe => stripe(number, &mut random),
    }
}

/// Requests for the next `count` events of `kind`, from `first` on.
pub(crate) fn requests(kind: Kind, first: u64, count: usize) -> Vec<Vec<u8>> {
    let half = |from: u64, to: u64| {
        std::thread::spawn(move || (from..to).map(|number| request(kind, number)).collect())
    };
    let (middle, end) = (first + count as u64 / 2, first + count as u64);
    let halves = [half(first, middle), half(middle, end)];
    halves.into_iter().flat_map(|half| -> Vec<Vec<u8>> { half.join().unwrap() }).collect()
}

fn github(number: u64, random: &mut Random) -> Vec<u8> {
    let body = push(random);
    github_delivery(Kind::GitHub.path(), "push", number, &body, random)
}

/// A whole HTTP request for a small GitHub event with this number, to a source with this path.
pub(crate) fn small(path: &str, number: u64) -> Vec<u8> {
    let mut random = Random::new(Kind::GitHub, number);
    let body = format!(
        r#"{{"zen":"{}","hook_id":{},"hook":{{"type":"Repository","name":"web","active":true}}}}"#,
        random.sentence(6),
        random.number(100_000_000, 600_000_000)
    );
    github_delivery(path, "ping", number, &body, &mut random)
}

fn github_delivery(
    path: &str,
    event: &str,
    number: u64,
    body: &str,
    random: &mut Random,
) -> Vec<u8> {
    let delivery = guid(number, random);
    let signature = mac(body.as_bytes());
    let hook = random.number(100_000_000, 600_000_000);
    format!(
        "POST {path} HTTP/1.1\r\nHost: hooks.example.com\r\nUser-Agent: GitHub-Hookshot/{}\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nX-GitHub-Event: {event}\r\nX-GitHub-Delivery: {delivery}\r\n\
         X-GitHub-Hook-ID: {hook}\r\nX-GitHub-Hook-Installation-Target-ID: {}\r\n\
         X-GitHub-Hook-Installation-Target-Type: repository\r\nX-Hub-Signature-256: sha256={signature}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        random.hex(7),
        random.number(100_000_000, 900_000_000),
        body.len()
    )
    .into_bytes()
}

fn stripe(number: u64, random: &mut Random) -> Vec<u8> {
    let body = charge(number, random);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let signature = mac(format!("{now}.{body}").as_bytes());
    format!(
        "POST {} HTTP/1.1\r\nHost: hooks.example.com\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n\
         Accept: */*; q=0.5, application/xml\r\nCache-Control: no-cache\r\n\
         Content-Type: application/json; charset=utf-8\r\nStripe-Signature: t={now},v1={signature}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        Kind::Stripe.path(),
        body.len()
    )
    .into_bytes()
}

fn mac(message: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(message);
    data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// The links of a repository in a push event, each below its own.
const REPOSITORY_LINKS: &[&str] = &[
    "forks",
    "keys{/key_id}",
    "collaborators{/collaborator}",
    "teams",
    "hooks",
    "issues/events{/number}",
    "events",
    "assignees{/user}",
    "branches{/branch}",
    "tags",
    "git/blobs{/sha}",
    "git/tags{/sha}",
    "git/refs{/sha}",
    "git/trees{/sha}",
    "statuses/{sha}",
    "languages",
    "stargazers",
    "contributors",
    "subscribers",
    "subscription",
    "commits{/sha}",
    "git/commits{/sha}",
    "comments{/number}",
    "issues/comments{/number}",
    "contents/{+path}",
    "compare/{base}...{head}",
    "merges",
    "{archive_format}{/ref}",
    "downloads",
    "issues{/number}",
    "pulls{/number}",
    "milestones{/number}",
    "notifications{?since,all,participating}",
    "labels{/name}",
    "releases{/id}",
    "deployments",
];

/// The links of an account.
const ACCOUNT_LINKS: &[&str] = &[
    "followers",
    "following{/other_user}",
    "gists{/gist_id}",
    "starred{/owner}{/repo}",
    "subscriptions",
    "orgs",
    "repos",
    "events{/privacy}",
    "received_events",
];

fn push(random: &mut Random) -> String {
    let (owner, repository) = (random.word(8), random.word(10));
    let (before, after, tree) = (random.hex(40), random.hex(40), random.hex(40));
    let (id, at) =
        (random.number(100_000_000, 900_000_000), random.number(1_760_000_000, 1_790_000_000));
    let home = format!("https://github.com/{owner}/{repository}");
    let api = format!("https://api.github.com/repos/{owner}/{repository}");
    let mut links = String::new();
    for link in REPOSITORY_LINKS {
        let name: String = link.split(['{', '.']).next().unwrap().replace('/', "_");
        let _ = write!(links, r#""{}_url":"{api}/{link}","#, name.trim_matches('_'));
    }
    let sender = account(random, &owner);
    let commit = format!(
        r#"{{"id":"{after}","tree_id":"{tree}","distinct":true,"message":"{}","timestamp":"2026-11-{:02}T10:{:02}:{:02}+01:00","url":"{home}/commit/{after}","author":{{"name":"{owner}","email":"{owner}@example.com","username":"{owner}"}},"committer":{{"name":"{owner}","email":"{owner}@example.com","username":"{owner}"}},"added":["src/{}.rs"],"removed":[],"modified":["src/{}.rs","README.md"]}}"#,
        random.sentence(9),
        random.number(10, 28),
        random.number(10, 59),
        random.number(10, 59),
        random.word(7),
        random.word(9),
    );
    format!(
        r#"{{"ref":"refs/heads/main","before":"{before}","after":"{after}","repository":{{"id":{id},"node_id":"R_{}","name":"{repository}","full_name":"{owner}/{repository}","private":false,"owner":{sender},"html_url":"{home}","description":"{}","fork":false,"url":"{home}",{links}"created_at":{at},"updated_at":"2026-11-20T08:00:00Z","pushed_at":{},"git_url":"git://github.com/{owner}/{repository}.git","ssh_url":"git@github.com:{owner}/{repository}.git","clone_url":"{home}.git","homepage":null,"size":{},"stargazers_count":{},"watchers_count":{},"language":"Rust","has_issues":true,"has_projects":true,"has_downloads":true,"has_wiki":true,"has_pages":false,"forks_count":{},"mirror_url":null,"archived":false,"disabled":false,"open_issues_count":{},"license":null,"allow_forking":true,"is_template":false,"topics":[],"visibility":"public","default_branch":"main","master_branch":"main"}},"pusher":{{"name":"{owner}","email":"{owner}@example.com"}},"sender":{sender},"created":false,"deleted":false,"forced":false,"base_ref":null,"compare":"{home}/compare/{}...{}","commits":[{commit}],"head_commit":{commit}}}"#,
        random.word(10),
        random.sentence(8),
        at + 1_000,
        random.number(10, 90_000),
        random.number(0, 900),
        random.number(0, 900),
        random.number(0, 90),
        random.number(0, 90),
        &before[..12],
        &after[..12],
    )
}

fn account(random: &mut Random, name: &str) -> String {
    let id = random.number(1_000_000, 90_000_000);
    let api = format!("https://api.github.com/users/{name}");
    let mut links = String::new();
    for link in ACCOUNT_LINKS {
        let _ = write!(links, r#""{}_url":"{api}/{link}","#, link.split('{').next().unwrap());
    }
    format!(
        r#"{{"login":"{name}","id":{id},"node_id":"U_{}","avatar_url":"https://avatars.githubusercontent.com/u/{id}?v=4","gravatar_id":"","url":"{api}","html_url":"https://github.com/{name}",{links}"type":"User","site_admin":false}}"#,
        random.word(12)
    )
}

fn charge(number: u64, random: &mut Random) -> String {
    let (charge, customer) = (random.word(24), random.word(14));
    let (at, amount) = (random.number(1_760_000_000, 1_790_000_000), random.number(100, 90_000));
    format!(
        r#"{{"id":"{}","object":"event","api_version":"2026-01-28","created":{at},"data":{{"object":{{"id":"ch_{charge}","object":"charge","amount":{amount},"amount_captured":{amount},"amount_refunded":0,"application":null,"application_fee":null,"application_fee_amount":null,"balance_transaction":"txn_{}","billing_details":{{"address":{{"city":null,"country":"DE","line1":null,"line2":null,"postal_code":"{}","state":null}},"email":"{customer}@example.com","name":"{}","phone":null,"tax_id":null}},"calculated_statement_descriptor":"EXAMPLE SHOP","captured":true,"created":{at},"currency":"eur","customer":"cus_{customer}","description":"{}","destination":null,"dispute":null,"disputed":false,"failure_balance_transaction":null,"failure_code":null,"failure_message":null,"fraud_details":{{}},"invoice":"in_{}","livemode":true,"metadata":{{"order":"{}"}},"on_behalf_of":null,"order":null,"outcome":{{"advice_code":null,"network_status":"approved_by_network","reason":null,"risk_level":"normal","risk_score":{},"seller_message":"Payment complete.","type":"authorized"}},"paid":true,"payment_intent":"pi_{}","payment_method":"pm_{}","payment_method_details":{{"card":{{"amount_authorized":{amount},"brand":"visa","checks":{{"address_line1_check":null,"address_postal_code_check":"pass","cvc_check":"pass"}},"country":"DE","exp_month":{},"exp_year":2029,"fingerprint":"{}","funding":"credit","installments":null,"last4":"{}","mandate":null,"network":"visa","three_d_secure":null,"wallet":null}},"type":"card"}},"receipt_email":null,"receipt_number":null,"receipt_url":"https://pay.stripe.com/receipts/payment/{}","refunded":false,"review":null,"shipping":null,"source":null,"statement_descriptor":null,"status":"succeeded","transfer_data":null,"transfer_group":null}}}},"livemode":true,"pending_webhooks":1,"request":{{"id":"req_{}","idempotency_key":"{}"}},"type":"charge.succeeded"}}"#,
        event_id(number, random),
        random.word(24),
        random.number(10_000, 99_999),
        random.sentence(2),
        random.sentence(3),
        random.word(24),
        random.number(100_000, 999_999),
        random.number(1, 60),
        random.word(24),
        random.word(24),
        random.number(1, 12),
        random.word(16),
        random.number(1_000, 9_999),
        random.word(60),
        random.word(14),
        random.uuid(),
    )
}

/// A delivery's id as GitHub's documentation shows it: a UUID of version 1, whose first digits are the time
/// in steps of 100 ns (RFC 9562, section 5.1). Events come 100 µs apart.
fn guid(number: u64, random: &mut Random) -> String {
    let time = FIRST_AT + number * 1000;
    let (low, middle, high) = (time & 0xffff_ffff, time >> 32 & 0xffff, time >> 48);
    format!("{low:08x}-{middle:04x}-1{high:03x}-9{}-{}", random.hex(3), random.hex(12))
}

/// An event's id as Stripe's documentation shows it: the time in seconds and the account lead.
fn event_id(number: u64, random: &mut Random) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut time = 1_790_000_000 + number / 10_000;
    let mut digits = Vec::new();
    while time > 0 {
        digits.insert(0, char::from(DIGITS[(time % 62) as usize]));
        time /= 62;
    }
    format!("evt_{}AccountOfAll{}", digits.iter().collect::<String>(), random.word(8))
}

/// Random values for an event; the same number gives the same values in every run.
struct Random {
    seed: [u8; 32],
    left: Vec<u8>,
}

impl Random {
    fn new(kind: Kind, number: u64) -> Self {
        let seed = Sha256::digest(format!("{kind:?} {number}")).into();
        Random { seed, left: Vec::new() }
    }

    fn byte(&mut self) -> u8 {
        if self.left.is_empty() {
            self.seed = Sha256::digest(self.seed).into();
            self.left.extend(self.seed);
        }
        self.left.pop().unwrap()
    }

    fn number(&mut self, from: u64, to: u64) -> u64 {
        let mut bytes = [0; 8];
        bytes.fill_with(|| self.byte());
        from + u64::from_le_bytes(bytes) % (to - from + 1)
    }

    /// `length` random characters of `alphabet`.
    fn of(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length)
            .map(|_| char::from(alphabet[usize::from(self.byte()) % alphabet.len()]))
            .collect()
    }

    fn hex(&mut self, length: usize) -> String {
        self.of(b"0123456789abcdef", length)
    }

    fn word(&mut self, length: usize) -> String {
        self.of(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", length)
    }

    fn sentence(&mut self, words: usize) -> String {
        const WORDS: [&str; 16] = [
            "the", "order", "adds", "a", "reader", "for", "large", "files", "and", "fixes", "what",
            "was", "left", "of", "an", "account",
        ];
        let words: Vec<&str> =
            (0..words).map(|_| WORDS[usize::from(self.byte()) % WORDS.len()]).collect();
        words.join(" ")
    }

    fn uuid(&mut self) -> String {
        let parts = [8, 4, 4, 4, 12].map(|length| self.hex(length));
        parts.join("-")
    }
}
