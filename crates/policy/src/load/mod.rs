//! From paths to a policy: finds, reads, merges and compiles files, and reports every problem.
//!
//! | to find | look in |
//! |---|---|
//! | bounds | `bounds.rs` |
//! | files and directories | `files.rs` |
//! | files of Tidegate | `native.rs`; checks of fields and types: `shape.rs` |
//! | files of envoyproxy/ratelimit | `../envoy/` |
//! | one configuration of several files, with the locations of its values | `assembly.rs` |

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
pub(crate) use problems::{Problems, at, list, nearest, suggest};

use crate::json::quote;
use crate::schema::Config;
use crate::yaml::{self, Kind, Mark, Node, Type};
use crate::{Diagnostic, Diagnostics, Outside, Policy, Severity, envoy};
use files::{Found, Source};
use problems::whole;

/// Options for loading files.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether rules of one domain may be in several files.
    pub merge_domains: bool,
    /// The algorithm of limits in files of envoyproxy/ratelimit that set none.
    pub envoy_algorithm: Algorithm,
    /// Facts about stores that are not in the files.
    pub outside: Outside,
}

impl Default for Options {
    fn default() -> Options {
        Options { merge_domains: false, envoy_algorithm: Algorithm::FixedWindow, outside: Outside::default() }
    }
}

/// The result of loading a configuration.
#[derive(Debug)]
pub struct Loaded {
    /// The policy, or `None` if there was an error.
    pub policy: Option<Policy>,
    /// The merged configuration of all files, without the parts that have errors.
    pub config: Config,
    /// The number of rules in the files, including those with errors.
    pub rules: usize,
    /// All problems, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
    /// The files in directories that were not read because their names do not end in `.yaml` or `.yml`, or begin with a
    /// dot, in order. Hidden files with other endings are not listed.
    pub skipped: Vec<PathBuf>,
}

/// Loads files and directories. Of a directory, reads the files that end in `.yaml` or `.yml`, sorted by name; a directory
/// without one is an error.
#[must_use]
pub fn load(paths: &[PathBuf], options: &Options) -> Loaded {
    let mut problems = Problems::default();
    let found = files::find(paths, &mut problems);
    let sources = files::read(&found.files, &mut problems);
    assemble(sources, found, options, problems)
}

/// Returns the files that [`load`] would read, in order.
#[must_use]
pub fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    files::find(paths, &mut Problems::default()).files
}

/// Loads a text as if it were a file of this name.
#[must_use]
pub fn load_text(name: &str, text: &str, options: &Options) -> Loaded {
    let mut problems = Problems::default();
    let mut sources = Vec::new();
    if text.len() as u64 > bounds::FILE_BYTES_MAX {
        let message = format!("larger than {} bytes", bounds::FILE_BYTES_MAX);
        problems.error(whole(name), message, "split it into several files");
    } else {
        sources.push(Source { name: name.to_owned(), text: text.to_owned() });
    }
    assemble(sources, Found { files: vec![PathBuf::from(name)], skipped: Vec::new() }, options, problems)
}

fn assemble(sources: Vec<Source>, found: Found, options: &Options, mut problems: Problems) -> Loaded {
    let mut assembly = Assembly::new(options.merge_domains);
    for source in sources {
        read(&source, &mut assembly, &mut problems);
    }
    envoy::write_rules(&mut assembly, options.envoy_algorithm, &mut problems);
    let policy = compile(&assembly, options, &mut problems);
    for mut aside in std::mem::take(&mut assembly.aside) {
        // Its rules may use stores of any file.
        assembly.lend(&mut aside);
        compile(&aside, options, &mut problems);
        assembly.lend(&mut aside);
    }
    let rules = assembly.written;
    let Found { files, skipped } = found;
    Loaded { policy, rules, config: assembly.into_config(), diagnostics: problems.finish(), files, skipped }
}

fn compile(assembly: &Assembly, options: &Options, problems: &mut Problems) -> Option<Policy> {
    let locate = |pointer: &str| assembly.locate(pointer);
    let mut diagnostics = Diagnostics::new(&locate).without(&assembly.left_out);
    let policy = crate::compile(&assembly.config, &options.outside, &mut diagnostics);
    // A warning may be caused by a part that was left out.
    let whole = problems.errors() == 0;
    let told = diagnostics.finish().into_iter().filter(|diagnostic| whole || diagnostic.severity == Severity::Error);
    // Problems of stores are reported once, though each assembly has all stores.
    told.for_each(|diagnostic| problems.push_once(diagnostic));
    (problems.errors() == 0).then_some(policy)
}

/// Reads a file. The keys at its top say whether it is one of Tidegate or of envoyproxy/ratelimit.
fn read(source: &Source, assembly: &mut Assembly, problems: &mut Problems) {
    let file: Arc<str> = source.name.as_str().into();
    let document = match yaml::parse(&source.text) {
        Ok(document) => document,
        Err(fault) => return problems.error(at(&file, fault.mark), fault.message, fault.hint),
    };
    let root = Arc::new(document.root);
    let has = |names: &[&str]| names.iter().any(|name| root.get(name).is_some());
    // In a file of envoyproxy/ratelimit, `domain` is text.
    let domain = root.pair("domain").filter(|pair| matches!(pair.value.kind, Kind::Map(_)));
    if let Some(pair) = domain.filter(|_| !has(&["domains", "descriptors"])) {
        let hint = "did you mean `domains`? In files of envoyproxy/ratelimit it is text";
        return problems.error(at(&file, pair.mark), "`domain` is a map", hint);
    }
    let (native, envoys) = (has(NATIVE_KEYS), has(ENVOY_KEYS));
    let has_their_parents = has(&["domains", "descriptors"]) || (native && !envoys);
    if let Some(pair) = root.pair("rules").filter(|_| !has_their_parents) {
        return rules_at_the_top(&file, &root, pair.mark, problems);
    }
    if native == envoys {
        return report_unknown(&file, &root, native, problems);
    }
    for duplicate in &document.duplicates {
        let location = at(&file, duplicate.mark);
        let message = format!("duplicate key `{}`", quote(&duplicate.key));
        let first = format!("the first is on line {}", duplicate.first.line);
        if native {
            problems.error(location, message, format!("{first}; keep one"));
        } else {
            problems.warning(location, message, format!("{first}, the last one is used; keep one"));
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

/// Reports `rules` at the top of a file, with or without `domain` beside it.
fn rules_at_the_top(file: &Arc<str>, root: &Node, mark: Mark, problems: &mut Problems) {
    let domain = match root.get("domain").map(|node| &node.kind) {
        Some(Kind::Scalar(scalar)) if scalar.kind != Type::Null => Some(quote(&scalar.text)),
        _ => None,
    };
    let message = match &domain {
        Some(_) => "`rules` beside `domain`: only files of envoyproxy/ratelimit have `domain`, with `descriptors`",
        None => "`rules` belongs to a domain",
    };
    let hint = format!("write `domains: {{{}: {{rules: …}}}}`", domain.as_deref().unwrap_or("NAME"));
    problems.error(at(file, mark), message, hint);
}

const NATIVE_KEYS: &[&str] = &["domains", "stores", "client_address"];
const ENVOY_KEYS: &[&str] = &["domain", "descriptors"];

fn report_unknown(file: &Arc<str>, root: &Node, both: bool, problems: &mut Problems) {
    let all = || NATIVE_KEYS.iter().chain(ENVOY_KEYS).copied();
    let known = format!(
        "files of Tidegate have {}, files of envoyproxy/ratelimit have {}",
        list(NATIVE_KEYS.iter().copied()),
        list(ENVOY_KEYS.iter().copied())
    );
    let Kind::Map(pairs) = &root.kind else {
        let what =
            if root.is_null() { "the file is empty".to_owned() } else { format!("the file is {}", root.describe()) };
        return problems.error(at(file, root.mark), what, known);
    };
    if both {
        let message = "the file has keys of both Tidegate and envoyproxy/ratelimit";
        return problems.error(at(file, root.mark), message, known);
    }
    let slip = pairs.iter().find_map(|pair| Some((pair, nearest(&pair.key.text, all())?)));
    match (slip, pairs.first()) {
        (Some((pair, meant)), _) => {
            let message = format!("unknown field `{}`", quote(&pair.key.text));
            problems.error(at(file, pair.mark), message, format!("did you mean `{meant}`?"));
        }
        (None, Some(pair)) => {
            let message =
                format!("no known field at the top of the file, which starts with `{}`", quote(&pair.key.text));
            problems.error(at(file, pair.mark), message, known);
        }
        (None, None) => problems.error(at(file, root.mark), "the file is an empty map", known),
    }
}
