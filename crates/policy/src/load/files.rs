//! From paths to the files of a configuration and their text.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::bounds::{DIRECTORY_DEPTH_MAX, ENTRIES_MAX, FILE_BYTES_MAX, FILES_BYTES_MAX, FILES_MAX};
use super::problems::{Problems, whole};

/// A file and what is in it.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// All files that paths name, in order: files themselves, and of directories those that end in `.yaml` or `.yml`.
pub(crate) fn find(paths: &[PathBuf], problems: &mut Problems) -> Vec<PathBuf> {
    let mut walk = Walk { problems, files: Vec::new(), entries: 0, inside: Vec::new() };
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let before = walk.files.len();
                walk.directory(path);
                if walk.files.len() == before {
                    let hint = "rules stand in files that end in .yaml or .yml";
                    walk.problems.warning(whole(&path.to_string_lossy()), "no files in this directory", hint);
                }
            }
            Ok(metadata) if metadata.is_file() => walk.file(path.clone()),
            Ok(_) => walk.refuse(path, "neither a file nor a directory", "name a file or a directory"),
            Err(error) => walk.refuse(path, &format!("cannot be read: {error}"), "check the path and its permissions"),
        }
    }
    walk.files
}

/// Reads all files, as far as they can be.
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
                let message = format!("all files together have more than {FILES_BYTES_MAX} bytes");
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
        return Err((format!("has more than {FILE_BYTES_MAX} bytes"), "split it into several files"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        (format!("is not UTF-8 text at byte {good}"), "save it as UTF-8")
    })
}

struct Walk<'a> {
    problems: &'a mut Problems,
    files: Vec<PathBuf>,
    entries: usize,
    /// The directories around the one that is looked at, with links followed: one that leads back is not followed.
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
            return self.refuse(path, &message, "name the inner directory");
        }
        self.inside.push(real);
        for entry in self.names(path) {
            self.entry(entry);
        }
        self.inside.pop();
    }

    /// What is in a directory, in the order of names. Dot entries are not for us: Kubernetes keeps the real files of a
    /// ConfigMap behind `..data` and links to them by their names.
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
            self.refuse(path, &format!("there are more than {ENTRIES_MAX} entries"), "name an inner directory");
        }
        names.retain(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")));
        names.sort();
        names
    }

    fn entry(&mut self, path: PathBuf) {
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => self.directory(&path),
            Ok(metadata) if metadata.is_file() && is_yaml => self.file(path),
            Ok(_) => {}
            Err(error) if is_yaml => {
                self.refuse(&path, &format!("cannot be read: {error}"), "check the link and its permissions");
            }
            Err(_) => {}
        }
    }

    fn file(&mut self, path: PathBuf) {
        if self.files.len() == FILES_MAX {
            self.refuse(&path, &format!("there are more than {FILES_MAX} files"), "name fewer files");
        }
        if self.files.len() < FILES_MAX {
            self.files.push(path);
        }
    }

    fn refuse(&mut self, path: &Path, message: &str, hint: &str) {
        self.problems.error(whole(&path.to_string_lossy()), message, hint);
    }
}
