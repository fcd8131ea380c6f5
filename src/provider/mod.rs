//! Signing schemes as data: the checked contents of a provider file.
//!
//! A [`Scheme`] is made from TOML only ([`Scheme::parse`]) and describes a provider; it takes no
//! decision. `verify` reads it, `http` reads its limits and headers, and `config` parses the
//! operator's own files. Must stay true: `verify` needs no further check of a scheme that parsed;
//! this module computes which parts a signature covers, and a file cannot claim it.

mod parse;
pub mod place;
mod published;
mod scheme;
mod setup;
pub(crate) mod template;

use crate::document::{Problems, nearest};
pub use published::PublishedKeys;
pub(crate) use published::{Confirmation, KeyUrl};
pub use scheme::Scheme;
pub(crate) use scheme::{
    Algorithm, BodyClaim, Delivery, Encoding, Event, Format, Hash, Jwt, JwtAlgorithm, KeyText,
    Proof, Signature, Stamp, StampPlace, StampUnit,
};
pub use setup::Setup;

/// Finds each provider's file by its name.
macro_rules! built_in {
    ($($name:literal)+) => {
        &[$(($name, include_str!(concat!("../../providers/", $name, ".toml")))),+]
    };
}

/// The built-in providers: name and the text of `providers/NAME.toml`.
const EMBEDDED: &[(&str, &str)] = built_in! {
    "adyen"
    "adyen-platform"
    "airtable"
    "anthropic"
    "aws-sns"
    "bearer"
    "bitbucket"
    "box"
    "brevo"
    "brex"
    "buildkite"
    "cal-com"
    "calendly"
    "certificate"
    "chargebee"
    "checkout-com"
    "circleci"
    "clerk"
    "clickup"
    "cloudflare-notifications"
    "cloudflare-stream"
    "coinbase-cdp"
    "coinbase-commerce"
    "customer-io"
    "discord"
    "docusign"
    "dodo-payments"
    "doppler"
    "easypost"
    "elevenlabs"
    "flutterwave"
    "forgejo"
    "fusionauth"
    "gitea"
    "github"
    "gitlab"
    "gitlab-token"
    "gocardless"
    "gogs"
    "google-pubsub"
    "grafana"
    "grafana-no-timestamp"
    "greenhouse"
    "heroku"
    "hubspot"
    "incident-io"
    "intercom"
    "jira"
    "kick"
    "kontent-ai"
    "launchdarkly"
    "lemonsqueezy"
    "line"
    "linear"
    "lithic"
    "liveblocks"
    "livekit"
    "loops"
    "mailersend"
    "mailgun"
    "mandrill"
    "modern-treasury"
    "mollie"
    "mux"
    "netlify"
    "none"
    "openai"
    "paddle"
    "pagerduty"
    "paypal"
    "paystack"
    "plivo"
    "polar"
    "postmark"
    "razorpay"
    "render"
    "replicate"
    "resend"
    "revenuecat"
    "rootly"
    "sanity"
    "sendgrid"
    "sentry"
    "shopify"
    "square"
    "standard-webhooks"
    "standard-webhooks-v1a"
    "stripe"
    "supabase-auth"
    "svix"
    "teams-outgoing"
    "telegram"
    "telnyx"
    "terraform-cloud"
    "tiktok"
    "trello"
    "twilio"
    "typeform"
    "url-token"
    "vercel"
    "webflow"
    "woocommerce"
    "workos"
    "xero"
    "zendesk"
};

/// The sample bodies of a built-in provider, see `verify::sample`.
fn samples(name: &str) -> &'static str {
    match name {
        "github" => include_str!("../../providers/samples/github.json"),
        "stripe" => include_str!("../../providers/samples/stripe.json"),
        "standard-webhooks" | "svix" => {
            include_str!("../../providers/samples/standard-webhooks.json")
        }
        _ => include_str!("../../providers/samples/generic.json"),
    }
}

/// Where an operator finds the names of all of them.
pub const NAMES: &str = "docs/providers.md names those that are built in";

impl Scheme {
    /// The names of the built-in providers.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// What may be meant by a name that no built-in provider has.
    pub fn help(name: &str) -> String {
        let near = nearest(name, Scheme::embedded_names());
        near.map_or_else(|| NAMES.to_owned(), |near| format!("did you mean '{near}'?"))
    }

    /// The built-in provider `name`, with its samples.
    pub fn embedded(name: &str) -> Option<Scheme> {
        let (name, text) = EMBEDDED.iter().find(|(known, _)| *known == name)?;
        let scheme = Scheme::parse(name, text, &Problems::new())?;
        Some(Scheme { samples: samples(name), ..scheme })
    }

    /// Reads a provider file. Adds everything that is wrong with it to `problems`, and then returns
    /// `None`. `file` is the name that the problems give.
    pub fn parse(file: &str, text: &str, problems: &Problems) -> Option<Scheme> {
        parse::scheme(file, text, problems)
    }
}

#[cfg(test)]
mod tests;
