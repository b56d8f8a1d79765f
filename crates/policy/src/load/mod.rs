//! From paths to a policy: files are found, read, told apart, merged and compiled, and every problem is told.
//!
//! | to find | look in |
//! |---|---|
//! | bounds | `bounds.rs` |
//! | files and directories | `files.rs` |
//! | Tidegate's own files | `native.rs`; what is said of a wrong shape: `shape.rs` |
//! | the files of envoyproxy/ratelimit | `../envoy/` |
//! | one configuration of several files, and where its values stand | `assembly.rs` |

mod assembly;
pub mod bounds;
mod files;
mod native;
mod problems;
mod shape;

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_core::Algorithm;

pub(crate) use assembly::{Assembly, Origin};
pub(crate) use problems::{Problems, at, list, suggest};

use crate::json::quote;
use crate::schema::Config;
use crate::yaml::{self, Kind, Node};
use crate::{Diagnostic, Diagnostics, Outside, Policy, Severity, envoy};
use files::Source;
use problems::{nearest, whole};

/// How files are loaded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether several files may have rules of one domain.
    pub merge_domains: bool,
    /// How the limits of Envoy's files count, unless those say so themselves.
    pub envoy_algorithm: Algorithm,
    /// What the files do not say of stores.
    pub outside: Outside,
}

impl Default for Options {
    fn default() -> Options {
        Options { merge_domains: false, envoy_algorithm: Algorithm::FixedWindow, outside: Outside::default() }
    }
}

/// What was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// The policy, if there was no error.
    pub policy: Option<Policy>,
    /// The configuration that all files make, without the parts that have errors.
    pub config: Config,
    /// How many rules the files have, also those with errors.
    pub rules: usize,
    /// All problems, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
}

/// Loads files, and of directories the files that end in `.yaml` or `.yml`, in the order of their names.
#[must_use]
pub fn load(paths: &[PathBuf], options: &Options) -> Loaded {
    let mut problems = Problems::default();
    let files = files::find(paths, &mut problems);
    let sources = files::read(&files, &mut problems);
    assemble(sources, files, options, problems)
}

/// The files that [`load`] would read, in order.
#[must_use]
pub fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    files::find(paths, &mut Problems::default())
}

/// Loads a text as if it were in a file of this name.
#[must_use]
pub fn load_text(name: &str, text: &str, options: &Options) -> Loaded {
    let mut problems = Problems::default();
    let mut sources = Vec::new();
    if text.len() as u64 > bounds::FILE_BYTES_MAX {
        let message = format!("has more than {} bytes", bounds::FILE_BYTES_MAX);
        problems.error(whole(name), message, "split it into several files");
    } else {
        sources.push(Source { name: name.to_owned(), text: text.to_owned() });
    }
    assemble(sources, vec![PathBuf::from(name)], options, problems)
}

fn assemble(sources: Vec<Source>, files: Vec<PathBuf>, options: &Options, mut problems: Problems) -> Loaded {
    let mut assembly = Assembly::new(options.merge_domains);
    for source in sources {
        read(&source, &mut assembly, &mut problems);
    }
    envoy::write_rules(&mut assembly, options.envoy_algorithm, &mut problems);
    let policy = compile(&assembly, options, &mut problems);
    for mut aside in std::mem::take(&mut assembly.aside) {
        // Its rules find all stores, wherever those stand.
        assembly.lend(&mut aside);
        compile(&aside, options, &mut problems);
        assembly.lend(&mut aside);
    }
    let rules = assembly.written;
    Loaded { policy, rules, config: assembly.into_config(), diagnostics: problems.finish(), files }
}

fn compile(assembly: &Assembly, options: &Options, problems: &mut Problems) -> Option<Policy> {
    let locate = |pointer: &str| assembly.locate(pointer);
    let mut diagnostics = Diagnostics::new(&locate).without(&assembly.left_out);
    let policy = crate::compile(&assembly.config, &options.outside, &mut diagnostics);
    // What was left out may be just what a warning misses.
    let whole = problems.errors() == 0;
    let told = diagnostics.finish().into_iter().filter(|diagnostic| whole || diagnostic.severity == Severity::Error);
    // Of stores it is told once, though all rules need them.
    told.for_each(|diagnostic| problems.push_once(diagnostic));
    (problems.errors() == 0).then_some(policy)
}

/// Tells whose file this is by the keys at its top, and reads it.
fn read(source: &Source, assembly: &mut Assembly, problems: &mut Problems) {
    let file: Arc<str> = source.name.as_str().into();
    let document = match yaml::parse(&source.text) {
        Ok(document) => document,
        Err(fault) => return problems.error(at(&file, fault.mark), fault.message, fault.hint),
    };
    let root = Arc::new(document.root);
    let has = |names: &[&str]| names.iter().any(|name| root.get(name).is_some());
    // By its key it would be a file of envoyproxy/ratelimit, where this is text.
    let domain = root.pair("domain").filter(|pair| matches!(pair.value.kind, Kind::Map(_)));
    if let Some(pair) = domain.filter(|_| !has(&["domains", "descriptors"])) {
        let hint = "did you mean `domains`? In a file of envoyproxy/ratelimit it must be text";
        return problems.error(at(&file, pair.mark), "`domain` is a map", hint);
    }
    let (native, envoys) = (has(NATIVE_KEYS), has(ENVOY_KEYS));
    if native == envoys {
        return tell_unknown(&file, &root, native, problems);
    }
    for duplicate in &document.duplicates {
        let location = at(&file, duplicate.mark);
        let message = format!("`{}` stands twice in this map", quote(&duplicate.key));
        let first = format!("the first is in line {}", duplicate.first.line);
        if native {
            problems.error(location, message, format!("{first}; keep one"));
        } else {
            problems.warning(location, message, format!("{first}, but the last one counts; keep one"));
        }
    }
    let number = assembly.documents();
    assembly.add_document(file, root.clone());
    if native {
        native::read(number, &root, assembly, problems);
    } else {
        envoy::read(number, &root, assembly, problems);
    }
}

const NATIVE_KEYS: &[&str] = &["domains", "stores", "client_address"];
const ENVOY_KEYS: &[&str] = &["domain", "descriptors"];

fn tell_unknown(file: &Arc<str>, root: &Node, both: bool, problems: &mut Problems) {
    let all = || NATIVE_KEYS.iter().chain(ENVOY_KEYS).copied();
    let known = format!(
        "Tidegate's own files have {}, those of envoyproxy/ratelimit {}",
        list(NATIVE_KEYS.iter().copied()),
        list(ENVOY_KEYS.iter().copied())
    );
    let Kind::Map(pairs) = &root.kind else {
        let what =
            if root.is_null() { "this file is empty".to_owned() } else { format!("this file is {}", root.describe()) };
        return problems.error(at(file, root.mark), what, known);
    };
    if both {
        let message = "this file has keys of both Tidegate's own files and those of envoyproxy/ratelimit";
        return problems.error(at(file, root.mark), message, known);
    }
    let slip = pairs.iter().find_map(|pair| Some((pair, nearest(&pair.key.text, all())?)));
    match (slip, pairs.first()) {
        (Some((pair, meant)), _) => {
            let message = format!("unknown field `{}`", quote(&pair.key.text));
            problems.error(at(file, pair.mark), message, format!("did you mean `{meant}`?"));
        }
        (None, Some(pair)) => {
            let message = format!("this file has none of the known keys; its first is `{}`", quote(&pair.key.text));
            problems.error(at(file, pair.mark), message, known);
        }
        (None, None) => problems.error(at(file, root.mark), "this file is an empty map", known),
    }
}
