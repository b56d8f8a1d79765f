//! Rules that change while it runs: a good configuration replaces the old one at once, a bad one never does.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_engine::InstallError;
use tidegate_policy::{Diagnostic, LoadOptions, Loaded, Location, OneLine, Policy, Severity};

use crate::file_marks::{self, FileMark};
use crate::load_log::{self, ChangeFields};
use crate::service::Service;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    /// What it says cannot be used.
    #[error("{}", first(.0))]
    Problems(Vec<Diagnostic>),
    /// A store of it cannot be made.
    #[error(transparent)]
    Store(#[from] InstallError),
}

/// One line: the first error, and how to see the others.
fn first(diagnostics: &[Diagnostic]) -> String {
    let mut errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    // Whoever prints it says already that it is an error.
    let first = errors.next().map(|Diagnostic { location, message, hint, .. }| {
        format!("{location}: {}; {}", OneLine(message), OneLine(hint))
    });
    let more = match errors.count() {
        0 => String::new(),
        more => format!(" (and {more} more: see tidegate check)"),
    };
    first.unwrap_or_default() + &more
}

/// Loads the configuration, again and again.
#[derive(Debug)]
pub(crate) struct Reloader {
    paths: Arc<[PathBuf]>,
    options: LoadOptions,
    service: Arc<Service>,
    /// The files as they were when they were loaded.
    loaded: Vec<FileMark>,
    /// How many files the policy in force was read from.
    files: usize,
}

/// A configuration that was read, or why it was not, and the files as they were before.
#[derive(Debug)]
pub(crate) struct Read {
    marks: Vec<FileMark>,
    policy: Result<FilePolicy, BadConfig>,
}

/// A policy and the number of files that it was read from.
#[derive(Debug, Default)]
struct FilePolicy {
    policy: Policy,
    files: usize,
}

impl Reloader {
    /// Goes on from a configuration that `service` decides by already.
    pub(crate) fn new(first: First, options: LoadOptions, service: Arc<Service>) -> Reloader {
        let First { paths, marks, read: FilePolicy { files, .. } } = first;
        service.note_config_load(true);
        Reloader { paths: paths.into(), options, service, loaded: marks, files }
    }

    /// Logs the policy in force at the start.
    pub(crate) fn log_start(&self) {
        load_log::log_start(&self.service.engine.policy(), self.files);
    }

    /// Reads the configuration anew. That may take long, and needs nothing of what runs.
    pub(crate) fn reading(&self) -> impl FnOnce() -> Read + Send + 'static {
        let (paths, options) = (Arc::clone(&self.paths), self.options.clone());
        move || Read { marks: marks(&paths), policy: read(&paths, &options) }
    }

    /// Decides by what was read, and keeps the old configuration if that cannot be used.
    pub(crate) fn take(&mut self, reason: &str, read: Read) {
        match self.install(read) {
            Ok(changes) => load_log::log_reload(reason, &self.service.engine.policy(), self.files, &changes),
            Err(BadConfig::Problems(diagnostics)) => {
                for diagnostic in &diagnostics {
                    tracing::error!(%diagnostic, "configuration");
                }
                tracing::error!(
                    reason,
                    problems = diagnostics.len(),
                    "configuration refused: the old one stays in force"
                );
            }
            Err(error @ BadConfig::Store(_)) => {
                tracing::error!(reason, %error, "configuration refused: the old one stays in force");
            }
        }
    }

    /// Resolves when the files are other ones than those that were loaded, and have been the same twice in a row: who
    /// writes them may not be done.
    pub(crate) async fn changed(&self) {
        let look = || {
            let paths = Arc::clone(&self.paths);
            move || marks(&paths)
        };
        file_marks::changed(&self.loaded, look).await;
    }

    fn install(&mut self, read: Read) -> Result<ChangeFields, BadConfig> {
        self.loaded = read.marks;
        let result = read.policy.and_then(|FilePolicy { policy, files }| {
            self.refuse_nothing()?;
            let changes = ChangeFields::from(policy.changes_since(&self.service.engine.policy()));
            let unchanged = self.service.engine.install(policy)?;
            for store in unchanged {
                tracing::warn!(%store, "the size of the store stays as it is until the next start");
            }
            self.files = files;
            Ok(changes)
        });
        self.service.note_config_load(result.is_ok());
        result
    }

    /// Directories that were emptied are mostly about to be filled again: the limits must not be gone meanwhile.
    fn refuse_nothing(&self) -> Result<(), BadConfig> {
        if !self.loaded.is_empty() || self.service.engine.policy().rules().is_empty() {
            return Ok(());
        }
        let file = self.paths.first().map(|path| path.to_string_lossy()).unwrap_or_default();
        let location = Location { file: (*file).into(), line: 0, column: 0 };
        let message = "all configuration files are gone".to_owned();
        let hint = "restore them; to have no rules, keep a file with `domains: {}`".to_owned();
        Err(BadConfig::Problems(vec![Diagnostic { severity: Severity::Error, location, message, hint }]))
    }
}

/// A configuration that was read before there is a service to decide by it: its stores have their sizes from it.
#[derive(Debug)]
pub(crate) struct First {
    paths: Vec<PathBuf>,
    marks: Vec<FileMark>,
    read: FilePolicy,
}

impl First {
    pub(crate) fn read(paths: Vec<PathBuf>, options: &LoadOptions) -> Result<First, BadConfig> {
        let marks = marks(&paths);
        let read = read(&paths, options)?;
        Ok(First { paths, marks, read })
    }

    /// The policy, which is read once.
    pub(crate) fn take_policy(&mut self) -> Policy {
        std::mem::take(&mut self.read.policy)
    }
}

/// Reads the configuration, and logs what is odd in it.
fn read(paths: &[PathBuf], options: &LoadOptions) -> Result<FilePolicy, BadConfig> {
    let Loaded { policy, diagnostics, files, .. } = tidegate_policy::load(paths, options);
    let Some(policy) = policy else { return Err(BadConfig::Problems(diagnostics)) };
    for diagnostic in &diagnostics {
        tracing::warn!(%diagnostic, "configuration");
    }
    Ok(FilePolicy { policy, files: files.len() })
}

/// The marks of all files below the paths, in order. What cannot be read has none, and is told when it is loaded.
fn marks(paths: &[PathBuf]) -> Vec<FileMark> {
    let mut all = Vec::new();
    for path in tidegate_policy::files(paths) {
        all.extend(FileMark::of(&path));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tidegate_engine::{Engine, Options};
    use tidegate_testkit::logs::capture;

    /// A service that decides by the files of a directory, and what reloads them.
    fn start(directory: &Path) -> (Arc<Service>, Reloader) {
        let mut first = First::read(vec![directory.to_owned()], &LoadOptions::default()).unwrap();
        let engine = Engine::with_policy(Options::default(), first.take_policy()).unwrap();
        let service = Arc::new(Service::new(engine));
        let reloader = Reloader::new(first, LoadOptions::default(), Arc::clone(&service));
        (service, reloader)
    }

    #[test]
    fn the_log_says_what_was_loaded_and_what_changed() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("1.yaml", "domains: {logged: {rules: [{name: kept, limit: 3/minute}, {name: gone, limit: 1/s}]}}");
        write("2.yaml", "domains: {other: {rules: [{name: same, limit: 3/minute}]}}");
        let (service, mut reloader) = start(directory.path());
        let captured = capture();
        // The last line about the configuration in force, whose hash no other test has.
        let last = || {
            let hash = format!("hash=\"{}\"", service.engine.policy().hash());
            let lines = captured.lines_with(&["configuration", &hash]);
            lines.last().map(|line| line.replace(&hash, "HASH")).unwrap_or_default()
        };
        reloader.log_start();
        assert_eq!(last(), "INFO configuration loaded HASH files=2 domains=2 rules=3 stores=1");
        let mut reload = || {
            let read = reloader.reading()();
            reloader.take("a test", read);
            last()
        };
        let before = service.engine.policy().hash().to_owned();
        write(
            "1.yaml",
            "# The same\ndomains: {logged: {rules: [{limit: 3/minute, name: kept}, {limit: 1/s, name: gone}]}}",
        );
        assert_eq!(
            reload(),
            "INFO configuration reloaded, no changes reason=\"a test\" HASH files=2 domains=2 rules=3 stores=1"
        );
        assert_eq!(service.engine.policy().hash(), before);
        write("1.yaml", "domains: {logged: {rules: [{name: kept, limit: 4/minute}, {name: new, limit: 1/s}]}}");
        write("3.yaml", "client_address: {trusted_hops: 1}");
        assert_eq!(
            reload(),
            "INFO configuration reloaded reason=\"a test\" HASH files=3 domains=2 rules=3 stores=1 \
             rules_added=\"logged/new\" rules_removed=\"logged/gone\" rules_changed=\"logged/kept\" \
             settings_changed=\"client_address\""
        );
        let changed = service.engine.policy().hash().to_owned();
        assert_ne!(changed, before);
        write("1.yaml", "domains: {logged: {rules: [{name: kept, limit: 0/s}]}}");
        let _ = reload();
        assert_eq!(service.engine.policy().hash(), changed, "a bad configuration changes nothing");
    }

    #[test]
    fn an_emptied_directory_keeps_the_rules() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, "domains: {api: {rules: [{name: all, limit: 3/minute}]}}").unwrap();
        let (service, mut reloader) = start(directory.path());
        let mut reload = || {
            let read = reloader.reading()();
            reloader.take("test", read);
        };
        std::fs::remove_file(&file).unwrap();
        for _ in 0..2 {
            reload();
            assert_eq!(service.engine.policy().rules().len(), 1);
        }
        assert_eq!(service.config_loads(), (1, 2));
        std::fs::write(&file, "domains: {}").unwrap();
        reload();
        assert_eq!(service.engine.policy().rules().len(), 0, "who says that there are no rules has none");
    }
}
