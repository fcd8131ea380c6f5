//! The steps at the provider, as `init` and `providers show` print them.

use std::path::Path;

use serde_json::{Value, json};

use crate::exit::Failure;
use crate::provider::Scheme;

use super::super::output::{self, escape};

/// The fields of the provider's page, with name and value. `secret` is `None` for an unsigned provider.
pub(crate) fn fields(
    scheme: &Scheme,
    url: &str,
    secret: Option<&str>,
    verify_token: &str,
) -> Vec<(String, String)> {
    let fields = scheme.setup().fields.iter();
    let mut fields: Vec<(String, String)> = fields
        .filter_map(|field| field.split_once(": "))
        .map(|(name, value)| {
            let value = value.replace("{url}", url).replace("{secret}", secret.unwrap_or_default());
            let value = value.replace("{verify_token}", verify_token);
            (name.to_owned(), value)
        })
        .collect();
    if fields.is_empty() {
        fields.push(("URL".to_owned(), url.to_owned()));
        fields.extend(secret.map(|secret| ("Secret".to_owned(), secret.to_owned())));
    }
    fields
}

/// The fields of the provider's page as JSON, for programs.
pub(crate) fn json(fields: &[(String, String)]) -> Vec<Value> {
    fields.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

/// Prints what to fill in, and where the provider shows the secret that belongs into `secret_file`.
pub(crate) fn print(
    scheme: &Scheme,
    fields: &[(String, String)],
    secret_file: &Path,
) -> Result<(), Failure> {
    let setup = scheme.setup();
    let page = setup.page.as_deref().unwrap_or("the provider");
    output::line(format!("\nFill in at {}:\n", escape(page)))?;
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in fields {
        output::line(format!("  {:<width$}  {}", escape(name), escape(value)))?;
    }
    let file = secret_file.display();
    let word = scheme.proof().secret_word();
    match &setup.secret_from {
        Some(from) => {
            output::line(format!("\nThen put the {word} into {file}; it is at\n{}", escape(from)))
        }
        None if scheme.proof().has_public_key() => {
            output::line(format!("\nThen put the provider's {word} into {file}"))
        }
        None => Ok(()),
    }
}
