//! What a person fills in at the provider: words of the provider's own pages, for `hooklatch init`.
//!
//! Data for people only; nothing that is verified depends on it.

use crate::document::Section;

/// How an endpoint is set up at the provider. Everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Where the provider's page is: `Settings > Webhooks > Add webhook`.
    pub page: Option<String>,
    /// The fields of that page, `Name: value` each; `{url}` and `{secret}` are filled in.
    pub fields: Vec<String>,
    /// Where the provider shows the secret that it makes; nothing where whoever receives chooses it.
    pub secret_from: Option<String>,
    /// An event type to try the endpoint with.
    pub sample_type: Option<String>,
    /// How its events of some past days are sent again by hand, and how far back: what a person needs
    /// whose store was restored from a backup.
    pub redeliver: Option<String>,
}

/// Reads `[setup]`.
pub(super) fn read(root: &Section<'_>) -> Setup {
    let Some(section) = root.section("setup") else { return Setup::default() };
    let text = |key| section.get::<String>(key).map(|read| read.value);
    let setup = Setup {
        page: text("page"),
        fields: section.get::<Vec<String>>("fields").map(|read| read.value).unwrap_or_default(),
        secret_from: text("secret_from"),
        sample_type: text("sample_type"),
        redeliver: text("redeliver"),
    };
    for field in &setup.fields {
        if !field.contains(": ") {
            section
                .problem(format!("setup.fields: '{field}' is not of the form 'Name: value'"), None);
        }
    }
    section.finish();
    setup
}
