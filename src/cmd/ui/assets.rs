//! The files that pages refer to: embedded, and named by their digests, so that browsers keep them for good.

use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// A file by its kind.
pub(super) struct Asset {
    /// Its path in a page.
    pub(super) path: String,
    pub(super) mime: &'static str,
    pub(super) text: &'static str,
}

macro_rules! asset {
    ($name:literal, $mime:literal) => {
        LazyLock::new(|| {
            let text = include_str!(concat!("assets/", $name));
            Asset::new($name, $mime, text)
        })
    };
}

pub(super) static STYLE: LazyLock<Asset> = asset!("style.css", "text/css; charset=utf-8");
pub(super) static SCRIPT: LazyLock<Asset> = asset!("app.js", "text/javascript; charset=utf-8");
pub(super) static ICON: LazyLock<Asset> = asset!("icon.svg", "image/svg+xml");
pub(super) static ICONS: LazyLock<Asset> = asset!("icons.svg", "image/svg+xml");

impl Asset {
    fn new(name: &str, mime: &'static str, text: &'static str) -> Self {
        let digest = HEXLOWER.encode(&Sha256::digest(text)[..6]);
        let path = format!("/assets/{digest}-{name}");
        Asset { path, mime, text }
    }
}

pub(super) fn find(path: &str) -> Option<&'static Asset> {
    let all: [&Asset; 4] = [&STYLE, &SCRIPT, &ICON, &ICONS];
    all.into_iter().find(|asset| asset.path == path)
}
