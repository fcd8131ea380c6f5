//! `hooklatch.toml`, as a file in a separate folder.

use std::fs;

use hooklatch::config;
use hooklatch::limits;

pub(super) fn check(data: &[u8]) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a folder");
    }
    FOLDER.with(|folder| {
        let path = folder.path().join("hooklatch.toml");
        let load = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a file");
            config::load(&path)
        };
        match load(data) {
            Err(problems) => {
                assert!(!problems.is_empty(), "refused without a word");
                let lines = data.iter().filter(|&&byte| byte == b'\n').count() + 1;
                for problem in &problems {
                    assert!(problem.line <= lines, "{problem}: there is no such line");
                    assert!(!problem.message.is_empty());
                }
            }
            Ok(config) => {
                for limit in limits::TABLE {
                    let value = config.limits().get(limit.key).expect("every limit has a value");
                    assert!(limit.range.contains(&value), "{} is out of range", limit.key);
                }
                let shown = serde_json::to_string(&config).expect("it can be shown");
                let behind = |front: &[u8]| load(&[front, data].concat());
                if !data.starts_with(b"\xef\xbb\xbf") {
                    let Ok(same) = behind(b"# a comment\n") else {
                        panic!("a comment changes nothing")
                    };
                    assert_eq!(serde_json::to_string(&same).ok(), Some(shown));
                    assert!(
                        behind(b"nobody-knows-this = 1\n").is_err(),
                        "an unknown key is refused"
                    );
                }
            }
        }
    });
}
