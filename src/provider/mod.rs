//! Signing schemes as data: the checked contents of a provider file.
//!
//! A [`Scheme`] is made from TOML only ([`Scheme::parse`]) and describes a provider; it takes no
//! decision. `scheme` groups its facts by caller; `config` parses the operator's own files. Must
//! stay true: `verify` needs no further check of a scheme that parsed; this module computes which
//! parts a signature covers, and a file cannot claim it.

pub(crate) mod handshake;
mod parse;
pub mod place;
mod published;
mod scheme;
pub(crate) mod template;

use std::collections::BTreeSet;

use crate::document::Problems;
pub use published::PublishedKeys;
pub(crate) use published::{Confirmation, KeyUrl};
pub(crate) use scheme::{
    Algorithm, AnswerText, BodyClaim, Encoding, Format, Hash, Jwt, JwtAlgorithm, KeyText, MERGED,
    Mechanism, PARTS, SENDER_LABEL, Signature, Stamp, StampPlace, StampUnit, ahead,
};
pub use scheme::{
    Answers, Delivery, Fact, Facts, Handshakes, How, Identity, Proof, Resends, Scheme, Setup,
};

/// Finds each provider's file by its name.
macro_rules! built_in {
    ($($name:literal)+) => {
        &[$(($name, include_str!(concat!("../../providers/", $name, ".toml")))),+]
    };
}

/// The built-in providers: name and the text of `providers/NAME.toml`.
const EMBEDDED: &[(&str, &str)] = built_in! {
    "adyen" "adyen-platform" "airtable" "alertmanager" "alertmanager-basic" "anthropic" "argilla"
    "asana" "aws-sns" "azure-event-grid" "basic" "bearer" "bitbucket" "bitbucket-data-center" "box" "braintree"
    "brevo" "brevo-batched" "brex" "buildkite" "cal-com" "calendly" "certificate" "chargebee"
    "checkout-com" "circleci" "clerk" "clickup" "cloudflare-notifications" "cloudflare-stream"
    "coinbase-cdp" "coinbase-commerce" "contentful" "customer-io" "directus" "discord" "docker-registry"
    "docusign" "dodo-payments" "doppler" "dropbox" "easypost" "elevenlabs" "fastly-logging"
    "flutterwave" "flutterwave-v4" "forgejo" "fusionauth" "ghost" "gitea" "gitea-form" "github"
    "gitlab" "gitlab-token" "gocardless" "gogs" "gogs-form" "google-pubsub" "grafana"
    "grafana-no-timestamp" "greenhouse" "header-token" "heroku" "hocuspocus" "hubspot" "hygraph"
    "incident-io" "intercom" "jira" "jira-data-center" "jotform" "kick" "ko-fi" "kontent-ai"
    "label-studio" "launchdarkly" "lemonsqueezy" "line" "linear" "lithic" "liveblocks" "livekit"
    "loops" "mailersend" "mailgun" "mandrill" "mcp-events" "meta" "microsoft-graph" "mlflow"
    "modern-treasury" "mollie" "mollie-classic" "monday" "mux" "netbox" "netlify" "none" "notion"
    "okta" "openai" "paddle" "pagerduty" "patreon" "paypal" "paystack" "plex" "plivo" "polar"
    "postmark" "pretix" "razorpay" "render" "replicate" "resend" "revenuecat" "rootly" "sanity"
    "sendgrid" "sendgrid-inbound" "sentry" "shopify" "slack" "square" "standard-webhooks"
    "standard-webhooks-v1a" "strapi" "strava" "stripe" "supabase-auth" "svix" "teams-outgoing"
    "telegram" "telnyx" "terraform-cloud" "tiktok" "trello" "twilio" "twitch" "typeform" "unleash"
    "uptime-kuma" "url-token" "vercel" "webflow" "weblate" "woocommerce" "workos" "x-twitter" "xero"
    "zendesk" "zoom"
};

/// The sample bodies of a built-in provider, see `verify::sample`.
fn samples(name: &str) -> &'static str {
    macro_rules! of {
        ($file:literal) => {
            include_str!(concat!("../../providers/samples/", $file, ".json"))
        };
    }
    match name {
        "airtable" => of!("airtable"),
        "github" => of!("github"),
        "gitlab" | "gitlab-token" => of!("gitlab"),
        "linear" => of!("linear"),
        "openai" => of!("openai"),
        "paddle" => of!("paddle"),
        "razorpay" => of!("razorpay"),
        "sentry" => of!("sentry"),
        "shopify" => of!("shopify"),
        "slack" => of!("slack"),
        "standard-webhooks" | "svix" => of!("standard-webhooks"),
        "stripe" => of!("stripe"),
        "typeform" => of!("typeform"),
        "woocommerce" => of!("woocommerce"),
        _ => of!("generic"),
    }
}

/// What an operator can do about a provider that is not built in.
const DESCRIBE: &str =
    "it can be described in providers/NAME.toml (docs/providers.md, \"A provider file\")";

/// How an operator finds the names of all of them.
pub const NAMES: &str = "`hooklatch providers` lists those that are known";

impl Scheme {
    /// The names of the built-in providers.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The help for a name that no provider has: the providers one letter away, or how to describe one. A larger
    /// difference is another company. `own` are the names of the operator's files.
    pub fn help<'a>(name: &str, own: impl IntoIterator<Item = &'a str>) -> String {
        let known: BTreeSet<&str> =
            own.into_iter().chain(EMBEDDED.iter().map(|(name, _)| *name)).collect();
        let slips = known.iter().filter(|known| strsim::damerau_levenshtein(name, known) <= 1);
        let slips: Vec<String> = slips.map(|known| format!("'{known}'")).collect();
        match slips.is_empty() {
            true => format!("{DESCRIBE}; {NAMES}"),
            false => format!("did you mean {}?", slips.join(" or ")),
        }
    }

    /// The built-in provider `name`, with its samples.
    pub fn embedded(name: &str) -> Option<Scheme> {
        let (name, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
        let mut scheme = Scheme::parse(name, text, &Problems::new())?;
        scheme.setup.samples = samples(name);
        Some(scheme)
    }

    /// Reads a provider file. Adds everything that is wrong with it to `problems`, and then returns
    /// `None`. `file` is the name that the problems give.
    pub fn parse(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
        parse::scheme(file, text, problems)
    }
}

#[cfg(test)]
mod tests;
