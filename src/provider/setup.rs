//! Instructions for setting up an endpoint at the provider, in the words of the provider's pages.
//!
//! `hooklatch init` prints them. They are for people only: verification does not depend on them.

use crate::document::Section;

/// How to set up an endpoint at the provider. Every key is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// The path to the provider's page, such as `Settings > Webhooks > Add webhook`.
    pub page: Option<String>,
    /// The fields of that page, each `Name: value`; `{url}`, `{secret}` and `{verify_token}` are placeholders.
    pub fields: Vec<String>,
    /// Where the provider shows the secret that it generates; `None` if the operator chooses the
    /// secret.
    pub secret_from: Option<String>,
    /// Where the provider shows what belongs into `verify_token`; `None` if the operator chooses it.
    pub verify_token_from: Option<String>,
    /// An event type for a test of the endpoint.
    pub sample_type: Option<String>,
    /// How to make the provider send past events again, and how many days back. An operator needs it
    /// after restoring the store from a backup.
    pub redeliver: Option<String>,
}

/// Reads the table `[setup]`; problems go to those of `root`.
pub(super) fn read(root: &Section<'_>) -> Setup {
    let Some(section) = root.section("setup") else { return Setup::default() };
    let text = |key| section.get::<String>(key).map(|read| read.value);
    let setup = Setup {
        page: text("page"),
        fields: section.value::<Vec<String>>("fields").unwrap_or_default(),
        secret_from: text("secret_from"),
        verify_token_from: text("verify_token_from"),
        sample_type: text("sample_type"),
        redeliver: text("redeliver"),
    };
    for field in &setup.fields {
        if !field.contains(": ") {
            section.problem(format!("setup.fields: '{field}' is not of the form 'Name: value'"));
        }
    }
    section.finish();
    setup
}
