//! One configuration of several files, with the location of each value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bounds::PROBLEMS_MAX;
use super::problems::{Problems, at, whole};
use crate::Location;
use crate::envoy::Tree;
use crate::json::quote;
use crate::schema::{ClientAddress, Config, Response, Rule, Store};
use crate::yaml::{Mark, Node, escape, unescape};

/// The files that were read, merged.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(crate) config: Config,
    /// Whether rules of one domain may be in several files.
    merge_domains: bool,
    /// Trees of descriptors of files of envoyproxy/ratelimit, by domain.
    pub(crate) trees: BTreeMap<String, Tree>,
    documents: Vec<(Arc<str>, Arc<Node>)>,
    /// The first location of each domain.
    domains: BTreeMap<String, Place>,
    stores: BTreeMap<String, Place>,
    address: Option<Place>,
    responses: BTreeMap<String, usize>,
    /// The origins of the rules, by domain, in order.
    rules: BTreeMap<String, Vec<Origin>>,
    /// Pointers to values whose errors were reported already. They are missing or placeholders.
    pub(crate) left_out: BTreeSet<String>,
    /// The number of rules in the files, including those with errors.
    pub(crate) written: usize,
    /// Domains that are in another file already, by file. Their rules are only checked.
    pub(crate) aside: Vec<Assembly>,
}

/// A location in a document.
#[derive(Clone, Copy, Debug)]
struct Place {
    document: usize,
    mark: Mark,
}

/// The origin of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) document: usize,
    /// The pointer to the rule in a file of Tidegate, or to the descriptor in a file of envoyproxy/ratelimit.
    pub(crate) pointer: String,
    pub(crate) native: bool,
    /// Whether it has no error.
    pub(crate) is_good: bool,
}

impl Assembly {
    pub(crate) fn new(merge_domains: bool) -> Assembly {
        Assembly { merge_domains, ..Assembly::default() }
    }

    /// Keeps a tree, for the locations of its values.
    pub(crate) fn add_document(&mut self, file: Arc<str>, root: Arc<Node>) {
        self.documents.push((file, root));
    }

    /// Returns the number of documents, which is the index of the next one.
    pub(crate) fn documents(&self) -> usize {
        self.documents.len()
    }

    pub(crate) fn file(&self, document: usize) -> Arc<str> {
        self.documents.get(document).map_or_else(|| "".into(), |(file, _)| file.clone())
    }

    pub(crate) fn client_address(
        &mut self,
        document: usize,
        mark: Mark,
        value: ClientAddress,
        problems: &mut Problems,
    ) {
        if let Some(first) = self.address {
            let hint = format!("keep one of them; the first is at {}", self.location(first));
            let place = self.location(Place { document, mark });
            return problems.error(place, "`client_address` is set in two files", hint);
        }
        self.address = Some(Place { document, mark });
        self.config.client_address = value;
    }

    pub(crate) fn store(&mut self, document: usize, mark: Mark, name: String, value: Store, problems: &mut Problems) {
        let place = Place { document, mark };
        if let Some(&first) = self.stores.get(&name) {
            let hint = format!("keep one of them; the first is at {}", self.location(first));
            let message = format!("store `{}` is defined in two files", quote(&name));
            return problems.error(self.location(place), message, hint);
        }
        self.stores.insert(name.clone(), place);
        self.config.stores.insert(name, value);
    }

    /// Whether a file may add rules to this domain. Reports an error if not.
    pub(crate) fn domain(&mut self, document: usize, mark: Mark, name: &str, problems: &mut Problems) -> bool {
        let place = Place { document, mark };
        if let Some(&first) = self.domains.get(name) {
            if !self.merge_domains {
                let hint =
                    format!("the first is at {}; keep one, or merge them with --merge-domains", self.location(first));
                let message = format!("domain `{}` is defined in two files", quote(name));
                problems.error(self.location(place), message, hint);
            }
            return self.merge_domains;
        }
        self.domains.insert(name.to_owned(), place);
        self.config.domains.entry(name.to_owned()).or_default();
        true
    }

    pub(crate) fn response(&mut self, document: usize, domain: &str, value: Response, problems: &mut Problems) {
        if let Some(&first) = self.responses.get(domain) {
            let pointer = format!("/domains/{}/response", escape(domain));
            let hint = format!("keep one of them; the first is at {}", self.locate_in(first, &pointer));
            let message = format!("`response` of domain `{}` is set in two files", quote(domain));
            return problems.error(self.locate_in(document, &pointer), message, hint);
        }
        self.responses.insert(domain.to_owned(), document);
        self.config.domains.entry(domain.to_owned()).or_default().response = value;
    }

    pub(crate) fn rule(&mut self, domain: &str, rule: Rule, origin: Origin) {
        self.config.domains.entry(domain.to_owned()).or_default().rules.push(rule);
        self.rules.entry(domain.to_owned()).or_default().push(origin);
    }

    /// Returns the number of rules of a domain so far.
    pub(crate) fn rules_of(&self, domain: &str) -> usize {
        self.rules.get(domain).map_or(0, Vec::len)
    }

    /// Makes an empty assembly for rules that are only checked.
    pub(crate) fn beside() -> Assembly {
        Assembly::new(true)
    }

    /// Keeps rules that are only checked. Each has an error already, so beyond the bound nothing more would be reported.
    pub(crate) fn keep_aside(&mut self, aside: Assembly) {
        if !aside.config.domains.is_empty() && self.aside.len() < PROBLEMS_MAX {
            self.aside.push(aside);
        }
    }

    /// Swaps all documents and stores with another assembly: a second call returns them. Copies would take quadratic memory.
    pub(crate) fn lend(&mut self, other: &mut Assembly) {
        std::mem::swap(&mut self.documents, &mut other.documents);
        std::mem::swap(&mut self.config.stores, &mut other.config.stores);
        std::mem::swap(&mut self.stores, &mut other.stores);
    }

    /// Returns the configuration without rules that have errors.
    pub(crate) fn into_config(mut self) -> Config {
        for (name, domain) in &mut self.config.domains {
            let mut origins = self.rules.get(name).into_iter().flatten();
            domain.rules.retain(|_| origins.next().is_none_or(|origin| origin.is_good));
        }
        self.config
    }

    /// Returns the location of the value at a pointer into the merged configuration, or of the nearest value around it.
    pub(crate) fn locate(&self, pointer: &str) -> Location {
        let tokens: Vec<String> = pointer.split('/').skip(1).map(unescape).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let place = match tokens.as_slice() {
            ["domains", domain, "rules", index, rest @ ..] => {
                let origins = self.rules.get(*domain);
                let origin = index.parse::<usize>().ok().and_then(|index| origins?.get(index));
                match origin {
                    Some(origin) => return self.locate_in(origin.document, &origin.resolve(rest)),
                    None => self.domains.get(*domain),
                }
            }
            ["domains", domain, "response", ..] => match self.responses.get(*domain) {
                Some(&document) => return self.locate_in(document, pointer),
                None => self.domains.get(*domain),
            },
            ["domains", domain, ..] => self.domains.get(*domain),
            ["stores", name, ..] => match self.stores.get(*name) {
                Some(place) => return self.locate_in(place.document, pointer),
                None => None,
            },
            ["client_address", ..] => match self.address {
                Some(place) => return self.locate_in(place.document, pointer),
                None => None,
            },
            _ => None,
        };
        match place {
            Some(&place) => self.location(place),
            None => whole(&self.file(0)),
        }
    }

    fn locate_in(&self, document: usize, pointer: &str) -> Location {
        match self.documents.get(document) {
            Some((file, root)) => at(file, root.locate(pointer)),
            None => whole(""),
        }
    }

    fn location(&self, place: Place) -> Location {
        at(&self.file(place.document), place.mark)
    }
}

impl Origin {
    /// Returns the pointer to a field of the rule in its file.
    fn resolve(&self, rest: &[&str]) -> String {
        let mut pointer = self.pointer.clone();
        if self.native {
            for token in rest {
                pointer.push('/');
                pointer.push_str(&escape(token));
            }
            return pointer;
        }
        pointer.push_str(match rest.first() {
            Some(&("limit" | "limits" | "action" | "report_as" | "count_denied")) => "/rate_limit",
            Some(&"replaces") => "/rate_limit/replaces",
            Some(&"metadata") => "/metadata",
            Some(&("match" | "key")) => "/value",
            _ => "",
        });
        pointer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_in_many_files_is_kept_once() {
        let mut problems = Problems::default();
        let mut assembly = Assembly::new(false);
        let files = 1_000;
        for number in 0..files {
            let text =
                format!("{{stores: {{s{number}: {{}}}}, domains: {{api: {{rules: [{{name: r, limit: 5/s}}]}}}}}}");
            let root = Arc::new(crate::yaml::parse(&text).unwrap().root);
            assembly.add_document(format!("{number}.yaml").into(), Arc::clone(&root));
            crate::load::native::read(number, &root, &mut assembly, &mut problems);
        }
        let copies = |aside: &Assembly| aside.documents.len() + aside.stores.len() + aside.config.stores.len();
        assert_eq!(assembly.documents(), files);
        assert_eq!(assembly.rules_of("api"), 1);
        assert_eq!(assembly.aside.len(), PROBLEMS_MAX);
        assert_eq!(assembly.aside.iter().map(copies).sum::<usize>(), 0);
        assert!(problems.errors() >= files - 1, "{}", problems.errors());
    }
}
