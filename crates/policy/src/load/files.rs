//! From paths to the files of a configuration and their text.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::bounds::{DIRECTORY_DEPTH_MAX, ENTRIES_MAX, FILE_BYTES_MAX, FILES_BYTES_MAX, FILES_MAX};
use super::problems::{Problems, whole};

/// A file with its text.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The files that paths name.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The files to read, in order.
    pub(crate) files: Vec<PathBuf>,
    /// The files of directories that are not read because of their names, in order.
    pub(crate) skipped: Vec<PathBuf>,
}

/// Finds all files that paths name, in order: files themselves, and the files in directories that end in `.yaml` or
/// `.yml`. A directory without one is an error.
pub(crate) fn find(paths: &[PathBuf], problems: &mut Problems) -> Found {
    let mut walk = Walk { problems, found: Found::default(), entries: 0, inside: Vec::new() };
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let before = (walk.found.files.len(), walk.problems.errors());
                walk.directory(path);
                if (walk.found.files.len(), walk.problems.errors()) == before {
                    let hint = "add one, or name another file or directory";
                    walk.refuse(path, "no file in this directory ends in .yaml or .yml", hint);
                }
            }
            Ok(metadata) if metadata.is_file() => walk.file(path.clone()),
            Ok(_) => walk.refuse(path, "neither a file nor a directory", "name a file or a directory"),
            Err(error) => walk.refuse(path, &format!("cannot be read: {error}"), "check the path and its permissions"),
        }
    }
    walk.found
}

/// Reads all files that can be read.
pub(crate) fn read(files: &[PathBuf], problems: &mut Problems) -> Vec<Source> {
    let mut left = FILES_BYTES_MAX;
    let mut sources = Vec::new();
    for path in files {
        let name = path.to_string_lossy().into_owned();
        match text(path) {
            Ok(text) if text.len() as u64 <= left => {
                left -= text.len() as u64;
                sources.push(Source { name, text });
            }
            Ok(_) => {
                let message = format!("all files together are larger than {FILES_BYTES_MAX} bytes");
                problems.error(whole(&name), message, "name fewer files");
                break;
            }
            Err((message, hint)) => problems.error(whole(&name), message, hint),
        }
    }
    sources
}

fn text(path: &Path) -> Result<String, (String, &'static str)> {
    let unreadable = |error| (format!("cannot be read: {error}"), "check the path and its permissions");
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err((format!("larger than {FILE_BYTES_MAX} bytes"), "split it into several files"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        (format!("not UTF-8 text at byte {good}"), "save it as UTF-8")
    })
}

struct Walk<'a> {
    problems: &'a mut Problems,
    found: Found,
    entries: usize,
    /// The real paths of the directories around the current one: a link back to one of them is not followed.
    inside: Vec<PathBuf>,
}

impl Walk<'_> {
    fn directory(&mut self, path: &Path) {
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) => {
                return self.refuse(path, &format!("cannot be read: {error}"), "check the path and its permissions");
            }
        };
        if self.inside.contains(&real) {
            return;
        }
        if self.inside.len() >= DIRECTORY_DEPTH_MAX {
            let message = format!("directories are nested deeper than {DIRECTORY_DEPTH_MAX}");
            return self.refuse(path, &message, "name the directory inside");
        }
        self.inside.push(real);
        for entry in self.names(path) {
            self.entry(entry);
        }
        self.inside.pop();
    }

    /// Returns the entries of a directory, sorted by name.
    fn names(&mut self, path: &Path) -> Vec<PathBuf> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => {
                self.refuse(path, &format!("cannot be read: {error}"), "check the path and its permissions");
                return Vec::new();
            }
        };
        let left = ENTRIES_MAX - self.entries;
        let mut names: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).take(left).collect();
        self.entries += names.len();
        if self.entries >= ENTRIES_MAX {
            self.refuse(path, &format!("more than {ENTRIES_MAX} directory entries"), "name a directory inside");
        }
        names.sort();
        names
    }

    fn entry(&mut self, path: PathBuf) {
        // Kubernetes keeps the real files of a ConfigMap behind `..data` and links to them by their names.
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() && !is_hidden => self.directory(&path),
            Ok(metadata) if metadata.is_file() && is_yaml && !is_hidden => self.file(path),
            // A hidden file was hardly meant to be read unless its name says so.
            Ok(metadata) if metadata.is_file() && (is_yaml || !is_hidden) => self.found.skipped.push(path),
            _ if is_hidden => {}
            Ok(_) => {}
            Err(error) if is_yaml => {
                self.refuse(&path, &format!("cannot be read: {error}"), "check the link and its permissions");
            }
            Err(_) => {}
        }
    }

    fn file(&mut self, path: PathBuf) {
        if self.found.files.len() == FILES_MAX {
            self.refuse(&path, &format!("more than {FILES_MAX} files"), "name fewer files");
        }
        if self.found.files.len() < FILES_MAX {
            self.found.files.push(path);
        }
    }

    fn refuse(&mut self, path: &Path, message: &str, hint: &str) {
        self.problems.error(whole(&path.to_string_lossy()), message, hint);
    }
}
