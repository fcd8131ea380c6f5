//! The files that pages refer to: embedded, and named by their digests, so that browsers keep them for good.

use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// A file by its kind.
pub(super) struct Asset {
    /// Its path in a page.
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

macro_rules! asset {
    ($name:literal, $content_type:literal) => {
        LazyLock::new(|| Asset::new($name, $content_type, include_str!(concat!("assets/", $name))))
    };
}

pub(super) static STYLE: LazyLock<Asset> = asset!("style.css", "text/css; charset=utf-8");
pub(super) static SCRIPT: LazyLock<Asset> = asset!("app.js", "text/javascript; charset=utf-8");
pub(super) static ICON: LazyLock<Asset> = asset!("icon.svg", "image/svg+xml");
pub(super) static ICONS: LazyLock<Asset> = asset!("icons.svg", "image/svg+xml");

impl Asset {
    fn new(name: &str, content_type: &'static str, text: &'static str) -> Self {
        let digest = HEXLOWER.encode(&Sha256::digest(text)[..6]);
        Asset { path: format!("/assets/{digest}-{name}"), content_type, text }
    }
}

pub(super) fn find(path: &str) -> Option<&'static Asset> {
    [&STYLE, &SCRIPT, &ICON, &ICONS]
        .into_iter()
        .map(|asset| &**asset)
        .find(|asset| asset.path == path)
}
