//! The folders of the store, lowest first: each imports only lower ones.
use std::path::Path;

const FOLDERS: &[&[&str]] = &[
    &["mutex", "border"],
    &["decide"],
    &["tables"],
    &["engine"],
    &["quarantine"],
    &["intake", "jobs"],
    &["admin"],
];

fn height(folder: &str) -> Option<usize> {
    FOLDERS.iter().position(|folders| folders.contains(&folder))
}

#[test]
fn a_folder_imports_only_lower_folders() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let (mut wrong, mut files) = (Vec::new(), 0);
    for (own, folders) in FOLDERS.iter().enumerate().skip(1) {
        for folder in *folders {
            for file in std::fs::read_dir(store.join(folder)).unwrap() {
                let path = file.unwrap().path();
                if path.ends_with("tests.rs") {
                    continue;
                }
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                for used in text.split("crate::store::").skip(1) {
                    let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                    let used = used.unwrap();
                    let is_lower = height(used).is_some_and(|height| height < own);
                    if !is_lower && used != *folder {
                        wrong.push(format!("{}: {used}", path.display()));
                    }
                }
            }
        }
    }
    assert!(files > 40, "found only {files} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
