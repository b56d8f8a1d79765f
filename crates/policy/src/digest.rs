//! The hash of a configuration, and the difference between two: for logs, for metrics, and to compare nodes.
//!
//! The schema is hashed as it was read: files, comments, quotes and the order of maps make no difference, nor does the order
//! of the rules of a domain, which may come from several files. Passwords of stores are left out, since the hash is public.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use crate::policy::Policy;
use crate::rule::Rule;
use crate::schema::{self, But, Config, Entries, Match, Store, Value};

/// The digest of a part of a configuration.
type Part = [u8; 16];

/// Bytes of the hash of the whole configuration, which has two digits for each.
const HASH_BYTES: usize = 6;

/// The hash of a configuration and of its parts.
#[derive(Clone, Debug)]
pub(crate) struct Digest {
    hash: Box<str>,
    stores: Part,
    client_address: Part,
    /// The digest of each rule, in the order of [`Policy::rules`]. It covers the `response` of its domain.
    rules: Box<[Part]>,
}

impl Default for Digest {
    /// Returns the digest of an empty configuration.
    fn default() -> Digest {
        Digest::of(&Config::default())
    }
}

impl Digest {
    pub(crate) fn of(config: &Config) -> Digest {
        let stores: Vec<(&String, Store)> =
            config.stores.iter().map(|(name, store)| (name, without_passwords(store))).collect();
        let (stores, client_address) = (part(&stores), part(&config.client_address));
        let mut whole = blake3::Hasher::new();
        whole.update(&stores).update(&client_address);
        let (mut rules, mut lists) = (Vec::new(), Lists::default());
        for (name, domain) in &config.domains {
            let of_domain = part(&(name, &domain.response));
            let mut own: Vec<Part> = domain.rules.iter().map(|rule| part(&(of_domain, lists.shorten(rule)))).collect();
            rules.extend_from_slice(&own);
            own.sort_unstable();
            whole.update(&of_domain).update(&(own.len() as u64).to_le_bytes());
            own.iter().for_each(|rule| {
                whole.update(rule);
            });
        }
        let hash = digits(whole.finalize().as_bytes().iter().take(HASH_BYTES));
        Digest { hash: hash.into(), stores, client_address, rules: rules.into() }
    }
}

/// Digests of lists of exceptions, by their place in memory. Rules from files of envoyproxy/ratelimit share such lists: to write
/// them out for each rule would take time with the square of the files.
#[derive(Default)]
struct Lists(HashMap<(*const String, usize), Arc<[String]>>);

impl Lists {
    /// Returns the rule with the digests of its lists of exceptions in their place.
    fn shorten(&mut self, rule: &schema::Rule) -> schema::Rule {
        let mut rule = rule.clone();
        for value in values(&mut rule.matching) {
            if let Value::But(But { except, .. }) = value {
                let digest = self.0.entry((except.as_ptr(), except.len())).or_insert_with(|| {
                    let digest = part(&*except);
                    Arc::from([digits(digest.iter())])
                });
                *except = Arc::clone(digest);
            }
        }
        rule
    }
}

/// Returns all values that a rule compares parts of a request with.
fn values(matching: &mut Match) -> impl Iterator<Item = &mut Value> {
    let Match { entries, method, host, path, header, cookie, query, .. } = matching;
    let entries = match entries {
        Entries::Among(entries) => std::slice::from_mut(entries),
        Entries::Exactly(entries) => entries.as_mut_slice(),
    };
    let maps = entries.iter_mut().chain([header, cookie, query]);
    maps.flat_map(|map| map.values_mut()).chain([method, host, path].into_iter().flatten())
}

/// Returns bytes as hexadecimal digits.
fn digits<'a>(bytes: impl Iterator<Item = &'a u8>) -> String {
    let mut digits = String::new();
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Returns the digest of a part. Maps of the schema are sorted, so equal parts have the same JSON.
fn part(value: &impl Serialize) -> Part {
    // Numbers, text and maps with text as keys always are JSON.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let mut part = Part::default();
    part.iter_mut().zip(blake3::hash(&json).as_bytes()).for_each(|(byte, digest)| *byte = *digest);
    part
}

/// Returns the store with a URL that has no password.
fn without_passwords(store: &Store) -> Store {
    let without = |url: &String| {
        // A URL that is right has one @ and, before it, one colon between user and password.
        let (login, place) = url.rsplit_once('@').unwrap_or(("", url.as_str()));
        let user = login.rsplit_once(':').map_or("", |(user, _)| user);
        let (place, query) = place.split_once('?').unwrap_or((place, ""));
        let query = query.split('&').filter(|parameter| !parameter.starts_with("sentinel_password="));
        format!("{user}@{place}?{}", query.collect::<Vec<_>>().join("&"))
    };
    Store { url: store.url.as_ref().map(without), ..store.clone() }
}

/// The difference between two policies.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// Rules that only the new one has.
    pub added: Vec<&'a Rule>,
    /// Rules that only the old one has.
    pub removed: Vec<&'a Rule>,
    /// Rules of the new one that have the same name in the old one, but other settings.
    pub changed: Vec<&'a Rule>,
    /// Whether the stores differ. Passwords are not compared.
    pub stores: bool,
    /// Whether `client_address` differs.
    pub client_address: bool,
}

impl Policy {
    /// Returns the hash of the configuration, 12 hexadecimal digits. It is the same for the same rules, stores and settings
    /// in other files, with other comments or in another order of maps and rules. Versions of Tidegate may differ in it.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.digest.hash
    }

    /// Returns what differs between this policy and the one `before`.
    #[must_use]
    pub fn changes_since<'a>(&'a self, before: &'a Policy) -> Changes<'a> {
        let mut changes = Changes {
            stores: self.digest.stores != before.digest.stores,
            client_address: self.digest.client_address != before.digest.client_address,
            ..Changes::default()
        };
        let mut old: HashMap<(&str, &str), &Part> = before.parts().map(|(rule, part)| (name(rule), part)).collect();
        for (rule, part) in self.parts() {
            match old.remove(&name(rule)) {
                None => changes.added.push(rule),
                Some(other) if other != part => changes.changed.push(rule),
                Some(_) => {}
            }
        }
        changes.removed = before.rules.iter().filter(|rule| old.contains_key(&name(rule))).collect();
        changes
    }

    /// Returns each rule with its digest.
    fn parts(&self) -> impl Iterator<Item = (&Rule, &Part)> {
        self.rules.iter().zip(&self.digest.rules)
    }
}

fn name(rule: &Rule) -> (&str, &str) {
    (&rule.domain, &rule.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadOptions, Outside, StoreFacts, load, load_text};

    const RULES: &str = "
stores: {default: {keys: 1000}, shared: {url: 'redis://app:secret@h:1/2?timeout=5ms&sentinel_password=x'}}
client_address: {trusted_hops: 1}
domains:
  api:
    response: {headers: legacy}
    rules:
    - {name: a, match: {entries: {user: '*', plan: free}}, key: {entry: user}, limit: 3/minute, metadata: {x: 1, y: 2}}
    - {name: b, match: {path: {is: '/*', except: [/y, /z]}}, limit: 5/minute}
  web: {rules: [{name: a, limit: 3/minute}]}
";

    fn options() -> LoadOptions {
        let outside = Outside { check_store: Some(|_| Ok(StoreFacts::default())), ..Outside::default() };
        LoadOptions { merge_domains: true, outside, ..LoadOptions::default() }
    }

    fn policy(text: &str) -> Policy {
        let loaded = load_text("test.yaml", text, &options());
        loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
    }

    fn names(rules: &[&Rule]) -> Vec<String> {
        rules.iter().map(|rule| format!("{}/{}", rule.domain, rule.name)).collect()
    }

    #[test]
    fn files_comments_and_order_make_no_difference() {
        let hash = policy(RULES).hash().to_owned();
        assert!(hash.len() == 12 && hash.bytes().all(|byte| b"0123456789abcdef".contains(&byte)), "{hash}");
        for text in [
            &RULES.replace("domains:", "# What may pass.\ndomains:"),
            &RULES.replace("{user: '*', plan: free}", "{plan: \"free\", user: '*'}"),
            &RULES.replace("{x: 1, y: 2}", "{y: 2, x: 1}"),
            &RULES.replace("name: b, match", "mode: enforce, name: b, match"),
            &RULES.replace(":secret@", ":changed@").replace("password=x", "password=y"),
        ] {
            assert_ne!(text, RULES);
            assert_eq!(policy(text).hash(), hash, "{text}");
        }
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = RULES.split_once("    - {name: b").unwrap();
        let second = format!("domains:\n  api:\n    rules:\n    - {{name: b{second}");
        std::fs::write(directory.path().join("2.yaml"), first).unwrap();
        std::fs::write(directory.path().join("1.yaml"), second).unwrap();
        let loaded = load(&[directory.path().to_owned()], &options());
        assert_eq!(loaded.policy.unwrap().hash(), hash);
    }

    #[test]
    fn whatever_counts_makes_a_difference() {
        let mut hashes = vec![policy(RULES).hash().to_owned(), Policy::default().hash().to_owned()];
        for (old, new) in [
            ("5/minute", "6/minute"),
            ("name: b", "name: c"),
            ("keys: 1000", "keys: 1001"),
            ("h:1/2", "h:1/3"),
            ("app:", "application:"),
            ("trusted_hops: 1", "trusted_hops: 2"),
            ("headers: legacy", "headers: none"),
            ("y: 2", "y: 3"),
            ("  web: {rules: [{name: a, limit: 3/minute}]}", ""),
            ("  web: {rules: [{name: a, limit: 3/minute}]}", "  web: {}"),
            ("  web:", "  www:"),
            ("except: [/y, /z]", "except: [/y]"),
            ("except: [/y, /z]", "except: [/y, /x]"),
        ] {
            hashes.push(policy(&RULES.replace(old, new)).hash().to_owned());
        }
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn changes_name_the_rules() {
        let before = policy(RULES);
        let same = before.changes_since(&before);
        assert!(same.added.is_empty() && same.removed.is_empty() && same.changed.is_empty());
        assert!(!same.stores && !same.client_address);
        let after = RULES.replace("name: b", "name: c").replace("[{name: a, limit: 3", "[{name: a, limit: 4");
        let after = policy(&after.replace("keys: 1000", "keys: 2000").replace("hops: 1", "hops: 2"));
        let changes = after.changes_since(&before);
        assert_eq!(names(&changes.added), ["api/c"]);
        assert_eq!(names(&changes.removed), ["api/b"]);
        assert_eq!(names(&changes.changed), ["web/a"]);
        assert!(changes.stores && changes.client_address);
        // What a domain says of answers holds for each of its rules.
        let after = policy(&RULES.replace("headers: legacy", "headers: none"));
        assert_eq!(names(&after.changes_since(&before).changed), ["api/a", "api/b"]);
    }
}
