//! The folders of the store, lowest first: each imports only lower ones, and no engine the other one.
use std::path::{Path, PathBuf};

const FOLDERS: &[&[&str]] = &[
    &["mutex", "codec", "border"],
    &["sum"],
    &["answer", "decide", "columns"],
    &["node", "rows"],
    &["quarantine", "check"],
    &["sqlite::tables", "postgres"],
    &["sqlite::engine"],
    &["sqlite::intake", "sqlite::jobs"],
    &["sqlite::admin"],
    &["sqlite::store", "sqlite"],
    &["handles", "transfer"],
];

const ENGINES: [&str; 2] = ["postgres", "sqlite"];

/// The height of the folder of this path in the store, by its longest name, and that name.
fn folder(path: &str) -> Option<(usize, &'static str)> {
    let is_in = |folder: &str| {
        path == folder
            || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with([':', ';', '.']))
    };
    let heights = FOLDERS.iter().enumerate();
    let named =
        heights.flat_map(|(height, folders)| folders.iter().map(move |folder| (height, *folder)));
    named.filter(|(_, folder)| is_in(folder)).max_by_key(|(_, folder)| folder.len())
}

/// The engine that this folder belongs to.
fn engine(folder: &str) -> Option<&'static str> {
    ENGINES.into_iter().find(|engine| folder.split("::").next() == Some(engine))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn a_folder_imports_only_lower_folders_and_no_other_engine() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let (mut wrong, mut paths, mut looked_at) = (Vec::new(), Vec::new(), 0);
    files(&store, &mut paths);
    for path in paths.iter().filter(|path| !path.ends_with("tests.rs")) {
        let path = path.strip_prefix(&store).unwrap().with_extension("");
        let own = path.to_str().unwrap().replace('/', "::");
        let Some((height, name)) = folder(&own) else { continue };
        looked_at += 1;
        let text = std::fs::read_to_string(store.join(path.with_extension("rs"))).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for used in text.split("crate::store::").skip(1) {
            let is_allowed = folder(used).is_some_and(|(theirs, folder)| {
                let is_other = engine(folder).is_some()
                    && engine(name).is_some_and(|own| Some(own) != engine(folder));
                folder == name || (theirs < height && !is_other)
            });
            if !is_allowed {
                wrong.push(format!("{own}: {}", used.lines().next().unwrap()));
            }
        }
    }
    assert!(looked_at > 100, "found only {looked_at} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
