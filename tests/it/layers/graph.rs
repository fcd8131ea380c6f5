//! Which file of the product imports which, read from its paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A module, as the names from the crate's root to it.
type Module = Vec<String>;

pub(super) struct File {
    /// The path from `src/` on.
    pub(super) path: String,
    pub(super) text: String,
    module: Module,
    /// Every path in the code that begins at the root, at a parent, or at a child module: as written, made
    /// absolute.
    pub(super) paths: Vec<Found>,
}

/// A path in the code.
pub(super) struct Found {
    pub(super) path: Module,
    /// `pub use` of a child's item: no code of this file uses it.
    is_export: bool,
    /// It is in a `use`, so that the file's children and parents reach its last name by way of this file.
    is_use: bool,
    name: String,
}

impl File {
    fn read(root: &Path, path: &Path) -> Self {
        let inside = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let mut module: Module =
            inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().unwrap() == "mod" {
            module.pop();
        }
        let text = fs::read_to_string(path).unwrap();
        let paths = paths(&tokens(&code(&text)), &module);
        File { path: inside, text, module, paths }
    }

    pub(super) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap().trim_end_matches(".rs");
        self.path.contains("tests/") || name == "tests" || name.ends_with("_tests")
    }

    /// The module of the layer table that this file belongs to.
    pub(super) fn top(&self) -> &str {
        &self.module[0]
    }
}

/// The code before the file's unit tests, without comments.
pub(super) fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = product.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Every file of `src`, with its unit tests.
pub(super) fn files() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(read_files);
    &FILES
}

fn read_files() -> Vec<File> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    paths.sort();
    assert!(paths.len() > 20, "the walk found too little to mean anything");
    paths.iter().map(|path| File::read(&root, path)).collect()
}

fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

/// The paths of a file, absolute, whether they stand in a `use` or in the code.
fn paths(tokens: &[String], module: &Module) -> Vec<Found> {
    let at = |n: usize| tokens.get(n).map_or("", String::as_str);
    let mut children = BTreeSet::new();
    for n in 0..tokens.len() {
        if at(n) == "mod" && at(n + 2) == ";" {
            children.insert(at(n + 1));
        }
    }
    let mut found = Vec::new();
    let (mut is_use, mut is_public) = (false, false);
    for n in 0..tokens.len() {
        match at(n) {
            "use" => {
                is_use = true;
                is_public = n > 0 && (at(n - 1) == "pub" || at(n - 1) == ")");
            }
            ";" => is_use = false,
            _ => {}
        }
        let begins = n == 0 || (at(n - 1) != "::" && at(n - 1) != ".");
        let is_child = children.contains(at(n));
        if !begins
            || at(n + 1) != "::"
            || !(is_child || ["crate", "super", "self"].contains(&at(n)))
        {
            continue;
        }
        let start = match at(n) {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len() - 1].to_vec(),
            child => module.iter().cloned().chain([child.to_owned()]).collect(),
        };
        let mut leaves = Vec::new();
        tree(tokens, &mut (n + 2), start, &mut leaves);
        for (path, name) in leaves {
            found.push(Found { path, name, is_use, is_export: is_use && is_public && is_child });
        }
    }
    found
}

/// Reads `a::{b, c as d}` from `at` on: each path, and the name it gets here.
fn tree(tokens: &[String], at: &mut usize, mut path: Module, out: &mut Vec<(Module, String)>) {
    loop {
        match tokens.get(*at).map_or("", String::as_str) {
            "{" => {
                while tokens[*at] != "}" {
                    *at += 1;
                    if tokens[*at] != "}" {
                        tree(tokens, at, path.clone(), out);
                    }
                }
                *at += 1;
                return;
            }
            "super" => drop(path.pop()),
            "self" => {}
            word => path.push(word.to_owned()),
        }
        *at += 1;
        if tokens.get(*at).is_some_and(|token| token == "::") {
            *at += 1;
            continue;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if tokens.get(*at).is_some_and(|token| token == "as") {
            name = tokens[*at + 1].clone();
            *at += 2;
        }
        out.push((path, name));
        return;
    }
}

/// The files that each file imports, whether directly or by way of another file's `use`.
pub(super) fn imports(files: &[File]) -> BTreeMap<&str, BTreeSet<&str>> {
    let product = || files.iter().filter(|file| !file.is_test());
    let by_module: BTreeMap<&[String], &File> =
        product().map(|file| (file.module.as_slice(), file)).collect();
    let mut all = BTreeMap::new();
    for file in product() {
        let used = file.paths.iter().filter(|found| !found.is_export);
        let used = used.filter_map(|found| defining_file(&by_module, &found.path, 0));
        let others = used.filter(|used| used.path != file.path).map(|used| used.path.as_str());
        all.insert(file.path.as_str(), others.collect());
    }
    all
}

/// The file that defines what a path names.
fn defining_file<'a>(
    files: &BTreeMap<&[String], &'a File>,
    path: &[String],
    depth: usize,
) -> Option<&'a File> {
    let mut length = path.len();
    let file = loop {
        if length == 0 {
            return None;
        }
        match files.get(&path[..length]) {
            Some(file) => break *file,
            None => length -= 1,
        }
    };
    let Some(item) = path.get(length) else { return Some(file) };
    let other = file.paths.iter().find(|found| found.is_use && found.name == *item);
    match other {
        Some(other) if depth < 8 && other.path != path => {
            let more = path[length + 1..].iter().cloned();
            let path: Module = other.path.iter().cloned().chain(more).collect();
            defining_file(files, &path, depth + 1).or(Some(file))
        }
        _ => Some(file),
    }
}

/// The files that import each other, directly or through others: each circle once.
pub(super) fn circles(imports: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&str> = imports[from].iter().copied().collect();
        while let Some(file) = left.pop() {
            if reached.insert(file.to_owned()) {
                left.extend(&imports[file]);
            }
        }
        reached
    };
    let reached: BTreeMap<&str, _> = imports.keys().map(|file| (*file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, reaches) in &reached {
        let circle: Vec<String> = reaches
            .iter()
            .filter(|other| reached[other.as_str()].contains(*file))
            .cloned()
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}
