//! Files, directories, links, and domains in several files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use tidegate_policy::{LoadOptions as Options, Loaded};

/// A directory that is removed at the end.
struct Directory(tempfile::TempDir);

impl Directory {
    fn new(files: &[(&str, &str)]) -> Directory {
        let directory = Directory(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = directory.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, options: &Options) -> Loaded {
        tidegate_policy::load(&[self.0.path().to_owned()], options)
    }

    /// What is said, with the directory's name left out.
    fn told(&self, loaded: &Loaded) -> String {
        super::told(loaded).replace(self.0.path().to_str().unwrap(), "DIR")
    }

    fn names(&self, loaded: &Loaded) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(self.0.path()).unwrap_or(Path::new("?")).display().to_string();
        loaded.files.iter().map(name).collect()
    }
}

const NATIVE: &str = "domains: {api: {rules: [{name: a, limit: 5/minute}]}}";
const ENVOYS: &str = "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1}}]";

fn merging() -> Options {
    Options { merge_domains: true, ..Options::default() }
}

#[test]
fn a_directory_is_read_in_the_order_of_names() {
    let directory = Directory::new(&[
        ("b.yaml", NATIVE),
        ("a/z.yml", ENVOYS),
        ("readme.md", "not: [yaml"),
        (".hidden.yaml", "not: [yaml"),
        (".git/x.yaml", "not: [yaml"),
    ]);
    let loaded = directory.load(&Options::default());
    assert_eq!(directory.told(&loaded), "");
    assert_eq!(directory.names(&loaded), ["a/z.yml", "b.yaml"]);
    assert_eq!(loaded.config.domains.keys().collect::<Vec<_>>(), ["api", "edge"]);
}

#[test]
fn files_with_other_names_are_skipped_by_name() {
    let directory = Directory::new(&[
        ("a.yaml", NATIVE),
        ("rules.json", ""),
        ("b/rules.yaml.bak", ""),
        (".hidden.yml", ""),
        (".gitignore", ""),
        (".git/x.yaml", ""),
    ]);
    let loaded = directory.load(&Options::default());
    assert_eq!(directory.told(&loaded), "");
    let skipped = |loaded: &Loaded| -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(directory.0.path()).unwrap().display().to_string();
        loaded.skipped.iter().map(name).collect()
    };
    assert_eq!(skipped(&loaded), [".hidden.yml", "b/rules.yaml.bak", "rules.json"]);
    // A file that is named itself is read, whatever it is called.
    fs::write(directory.path("rules.json"), NATIVE).unwrap();
    let named = tidegate_policy::load(&[directory.path("rules.json")], &Options::default());
    assert!(named.policy.is_some() && named.skipped.is_empty(), "{named:?}");
}

#[test]
fn a_directory_without_a_file_is_an_error() {
    let directory = Directory::new(&[("rules.json", NATIVE), ("sub/notes.txt", "")]);
    let loaded = directory.load(&Options::default());
    assert!(loaded.policy.is_none());
    assert_snapshot!(directory.told(&loaded), @"DIR: error: no file in this directory ends in .yaml or .yml; add one, or name another file or directory");
    assert_eq!(loaded.skipped.len(), 2);
    fs::write(directory.path("rules.yml"), NATIVE).unwrap();
    assert!(directory.load(&Options::default()).policy.is_some());
}

#[test]
fn a_mounted_config_map_and_its_swap() {
    let directory = Directory::new(&[("..1/rules.yaml", NATIVE), ("..2/rules.yaml", ENVOYS)]);
    symlink("..1", directory.path("..data")).unwrap();
    symlink("..data/rules.yaml", directory.path("rules.yaml")).unwrap();
    let before = directory.load(&Options::default());
    assert_eq!((directory.told(&before).as_str(), before.config.domains.contains_key("api")), ("", true));
    symlink("..2", directory.path("..tmp")).unwrap();
    fs::rename(directory.path("..tmp"), directory.path("..data")).unwrap();
    let after = directory.load(&Options::default());
    assert_eq!((directory.told(&after).as_str(), after.config.domains.contains_key("edge")), ("", true));
}

#[test]
fn links_that_lead_back_end() {
    let directory = Directory::new(&[("a/b/rules.yaml", NATIVE)]);
    symlink("..", directory.path("a/up")).unwrap();
    symlink("loop.yaml", directory.path("loop.yaml")).unwrap();
    symlink("gone", directory.path("gone.yaml")).unwrap();
    let loaded = directory.load(&Options::default());
    assert_eq!(directory.names(&loaded), ["a/b/rules.yaml"]);
    assert_snapshot!(directory.told(&loaded));
}

#[test]
fn what_cannot_be_read() {
    let directory = Directory::new(&[("empty/x.txt", "")]);
    fs::write(directory.path("latin.yaml"), b"domains: {caf\xe9: {}}").unwrap();
    fs::write(directory.path("large.yaml"), vec![b'#'; 9 << 20]).unwrap();
    let paths = ["latin.yaml", "large.yaml", "missing.yaml", "empty"].map(|name| directory.path(name));
    let mut paths = paths.to_vec();
    paths.push(PathBuf::from("/dev/null"));
    let loaded = tidegate_policy::load(&paths, &Options::default());
    assert!(loaded.policy.is_none());
    assert_snapshot!(directory.told(&loaded));
}

#[test]
fn a_domain_in_two_files() {
    let directory = Directory::new(&[
        ("a.yaml", "domains: {api: {rules: [{name: a, limit: 5/minute}]}}\nstores: {one: {}}"),
        ("b.yaml", "stores: {one: {}}\ndomains:\n  api:\n    rules: [{name: b, limit: 5/minute}]"),
        ("c.yaml", ENVOYS),
        ("d.yaml", "domain: edge\ndescriptors: [{key: b, rate_limit: {unit: second, requests_per_unit: 1}}]"),
        ("e.yaml", "client_address: {trusted_hops: 1}"),
        ("f.yaml", "client_address: {trusted_hops: 1}"),
    ]);
    assert_snapshot!(directory.told(&directory.load(&Options::default())));
}

#[test]
fn a_domain_in_two_files_hides_no_mistake_in_its_rules() {
    let directory = Directory::new(&[
        ("a.yaml", "domains: {api: {rules: [{name: a, limit: 5/minute, store: s}]}}"),
        ("b.yaml", "domains: {api: {rules: [{name: a, limit: 5/foo, store: s}, {name: b, limit: 5/bar, nope: 1}]}}"),
        ("c.yaml", "stores: {s: {keys: 0}}"),
    ]);
    let loaded = directory.load(&Options::default());
    assert_eq!(loaded.rules, 3);
    assert_eq!(loaded.config.domains["api"].rules.len(), 1);
    assert_snapshot!(directory.told(&loaded));
}

#[test]
fn merged_domains() {
    let directory = Directory::new(&[
        ("a.yaml", "domains: {edge: {response: {hidden: true}, rules: [{name: a, limit: 5/minute}]}}"),
        (
            "b.yaml",
            "domain: edge\ndescriptors: [{key: k, value: x*, rate_limit: {unit: second, requests_per_unit: 1}}]",
        ),
        (
            "c.yaml",
            "domain: edge\ndescriptors: [{key: k, value: xy, rate_limit: {unit: second, requests_per_unit: 1}}]",
        ),
        ("d.yaml", "domains: {edge: {rules: [{name: d, limit: 5/minute}]}}"),
    ]);
    let loaded = directory.load(&merging());
    assert_eq!(directory.told(&loaded), "");
    // The exact value of another file goes before the wildcard.
    assert_snapshot!(tidegate_policy::migrate::to_yaml(&loaded.config));
}

#[test]
fn merged_domains_with_the_same_descriptor() {
    let directory = Directory::new(&[
        ("b.yaml", ENVOYS),
        ("c.yaml", ENVOYS),
        ("d.yaml", "domains: {edge: {response: {hidden: true}}}"),
        ("e.yaml", "domains: {edge: {response: {hidden: true}}}"),
    ]);
    assert_snapshot!(directory.told(&directory.load(&merging())));
}
