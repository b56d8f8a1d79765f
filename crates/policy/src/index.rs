//! The index of the rules of a domain: finds the rules that may match a request without testing the others.
//!
//! Each rule is listed under one of its conditions, the one that it shares with the fewest other rules. The properties of a
//! request are looked up, and the caller tests the few rules found.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;

use crate::affix::{Affixes, End};
use crate::anchor::{Anchor, Known, Place, ways};
use crate::matching::{Facts, Matching};
use crate::network::Network;
use crate::networks::Networks;
use crate::path::Forms;
use crate::request::Entry;

type Map<K, V> = HashMap<K, V, RandomState>;

/// The rules of a domain, by properties of requests.
#[derive(Debug, Default)]
pub(crate) struct Index {
    always: Vec<u32>,
    sequences: Sequences,
    entries: Names,
    headers: Names,
    cookies: Names,
    query: Names,
    /// `None` if no rule is listed under it, which is common: then nothing is looked up.
    method: Option<Values>,
    host: Option<Values>,
    path: Option<Values>,
    folded_path: Option<Values>,
    networks: Networks,
}

impl Index {
    /// Makes the index of rules, which are identified by number.
    pub(crate) fn new<'a>(rules: impl Iterator<Item = (u32, &'a Matching)>) -> Index {
        let rules: Vec<(u32, Vec<Vec<Anchor>>)> = rules.map(|(rule, matching)| (rule, ways(matching))).collect();
        let mut shared: Map<&Anchor, usize> = Map::default();
        for anchor in rules.iter().flat_map(|(_, ways)| ways.iter().flatten()) {
            *shared.entry(anchor).or_default() += 1;
        }
        let rank = |way: &Vec<Anchor>| {
            let most = way.iter().filter_map(|anchor| shared.get(anchor)).max().copied();
            (most.unwrap_or_default(), way.iter().max().cloned())
        };
        let mut builder = Builder::default();
        for (rule, ways) in &rules {
            // A way without anchors is an empty list of values, which nothing matches: the rule is not listed at all.
            for anchor in ways.iter().min_by_key(|way| rank(way)).into_iter().flatten() {
                builder.add(anchor, *rule);
            }
        }
        builder.finish()
    }

    /// Calls `found` with the rules that may match a request. Some may be given twice.
    #[inline]
    pub(crate) fn candidates(&self, facts: &Facts<'_>, mut found: impl FnMut(&[u32])) {
        let found = &mut found;
        let question = facts.question;
        found(&self.always);
        self.sequences.find(question.entries, found);
        if !self.entries.is_empty() {
            for entry in question.entries {
                self.entries.find(entry.key.as_bytes(), entry.value.as_bytes(), found);
            }
        }
        if let Some(address) = facts.address {
            self.networks.around(address, found);
        }
        let Some(http) = question.http else { return };
        if let Some(path) = &self.path {
            path.find_path(http.path_forms(), found);
        }
        if let Some(path) = &self.folded_path {
            path.find_path(facts.folded_path(http), found);
        }
        if let Some(method) = &self.method {
            method.find(http.method.as_bytes(), found);
        }
        if let (Some(rules), Some(host)) = (&self.host, &facts.host) {
            rules.find(host, found);
        }
        if !self.headers.is_empty() {
            for (name, value) in http.headers {
                self.headers.find(name.as_bytes(), value.as_bytes(), found);
            }
        }
        if !self.cookies.is_empty() {
            for (name, value) in http.cookies() {
                self.cookies.find(name.as_bytes(), value.as_bytes(), found);
            }
        }
        if !self.query.is_empty() {
            for (name, value) in http.parameters() {
                self.query.find(&name, &value, found);
            }
        }
    }
}

/// Rules by a name and its value.
#[derive(Debug, Default)]
struct Names {
    values: Map<Box<[u8]>, Values>,
    /// A bit for each length of a name, the last for all longer ones, so that most headers are not hashed.
    lengths: u64,
}

impl Names {
    fn new(values: Map<Box<[u8]>, Values>) -> Names {
        let lengths = values.keys().fold(0, |lengths, name| lengths | length_bit(name));
        Names { values, lengths }
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[inline]
    fn find(&self, name: &[u8], value: &[u8], found: &mut impl FnMut(&[u32])) {
        if self.lengths & length_bit(name) != 0
            && let Some(values) = self.values.get(name)
        {
            values.find(value, found);
        }
    }
}

fn length_bit(name: &[u8]) -> u64 {
    1 << name.len().min(63)
}

/// Rules by a value.
#[derive(Debug, Default)]
struct Values {
    exact: Map<Box<[u8]>, Vec<u32>>,
    prefixes: Affixes,
    suffixes: Affixes,
    present: Vec<u32>,
}

impl Values {
    #[inline]
    fn find(&self, value: &[u8], found: &mut impl FnMut(&[u32])) {
        if !self.exact.is_empty()
            && let Some(rules) = self.exact.get(value)
        {
            found(rules);
        }
        self.prefixes.of(value, found);
        self.suffixes.of(value, found);
        found(&self.present);
    }

    #[inline]
    fn find_path(&self, forms: Forms<'_>, found: &mut impl FnMut(&[u32])) {
        self.find(forms.canonical, found);
        for form in forms.odd.into_iter().flatten() {
            self.find(form, found);
        }
    }
}

/// Rules by the exact list of entries. Equal hashes of different lists only add rules that do not match.
#[derive(Debug, Default)]
struct Sequences {
    hasher: RandomState,
    /// Bit masks of the entries with known values, by a hash of the keys.
    masks: Map<u64, Vec<u64>>,
    /// Rules, by a hash of the keys and the known values.
    rules: Map<u64, Vec<u32>>,
}

impl Sequences {
    fn add(&mut self, sequence: &[Known], rule: u32) {
        let keys = self.hash(sequence.iter().map(|(key, _)| key.as_bytes()), sequence.len() as u64);
        let known = (0_u32..).zip(sequence).filter(|(_, (_, value))| value.is_some());
        let mask = known.fold(0, |mask, (place, _)| mask | bit(place));
        let values = self.hash(sequence.iter().filter_map(|(_, value)| value.as_deref()), keys ^ mask);
        let masks = self.masks.entry(keys).or_default();
        if !masks.contains(&mask) {
            masks.push(mask);
        }
        self.rules.entry(values).or_default().push(rule);
    }

    #[inline]
    fn find(&self, entries: &[Entry<'_>], found: &mut impl FnMut(&[u32])) {
        if self.masks.is_empty() {
            return;
        }
        let keys = self.hash(entries.iter().map(|entry| entry.key.as_bytes()), entries.len() as u64);
        for mask in self.masks.get(&keys).into_iter().flatten() {
            let known = (0_u32..).zip(entries).filter(|(place, _)| mask & bit(*place) != 0);
            let values = self.hash(known.map(|(_, entry)| entry.value.as_bytes()), keys ^ mask);
            if let Some(rules) = self.rules.get(&values) {
                found(rules);
            }
        }
    }

    #[inline]
    fn hash<'a>(&self, parts: impl Iterator<Item = &'a [u8]>, start: u64) -> u64 {
        parts.fold(start, |hash, part| self.hasher.hash_one(Chained(hash, part)))
    }
}

#[derive(Hash)]
struct Chained<'a>(u64, &'a [u8]);

/// Returns the bit of an index. Entries beyond the last bit are only tested by the caller.
fn bit(place: u32) -> u64 {
    1_u64.checked_shl(place).unwrap_or_default()
}

/// Builds an index: prefixes, suffixes and networks are sorted at the end.
#[derive(Default)]
struct Builder {
    index: Index,
    places: BTreeMap<Place, Found>,
    networks: BTreeMap<Network, Vec<u32>>,
}

#[derive(Default)]
struct Found {
    exact: Map<Box<[u8]>, Vec<u32>>,
    prefixes: BTreeMap<Box<[u8]>, Vec<u32>>,
    suffixes: BTreeMap<Box<[u8]>, Vec<u32>>,
    present: Vec<u32>,
}

impl Builder {
    fn add(&mut self, anchor: &Anchor, rule: u32) {
        let rules = match anchor {
            Anchor::Sequence(sequence) => return self.index.sequences.add(sequence, rule),
            Anchor::Always => &mut self.index.always,
            Anchor::Network(network) => self.networks.entry(*network).or_default(),
            Anchor::Exact(at, value) => self.at(at).exact.entry(value.clone()).or_default(),
            Anchor::Prefix(at, value) => self.at(at).prefixes.entry(value.clone()).or_default(),
            Anchor::Suffix(at, value) => self.at(at).suffixes.entry(value.clone()).or_default(),
            Anchor::Present(at) => &mut self.at(at).present,
        };
        rules.push(rule);
    }

    fn at(&mut self, place: &Place) -> &mut Found {
        self.places.entry(place.clone()).or_default()
    }

    fn finish(self) -> Index {
        let mut index = self.index;
        let mut names: [Map<Box<[u8]>, Values>; 4] = Default::default();
        let [entries, headers, cookies, query] = &mut names;
        for (place, found) in self.places {
            let values = Values {
                exact: found.exact,
                prefixes: Affixes::new(End::Front, found.prefixes),
                suffixes: Affixes::new(End::Back, found.suffixes),
                present: found.present,
            };
            let (names, name) = match place {
                Place::Entry(name) => (&mut *entries, name),
                Place::Header(name) => (&mut *headers, name),
                Place::Cookie(name) => (&mut *cookies, name),
                Place::Query(name) => (&mut *query, name),
                Place::Method => {
                    index.method = Some(values);
                    continue;
                }
                Place::Host => {
                    index.host = Some(values);
                    continue;
                }
                Place::Path => {
                    index.path = Some(values);
                    continue;
                }
                Place::FoldedPath => {
                    index.folded_path = Some(values);
                    continue;
                }
            };
            names.insert(name.into_boxed_bytes(), values);
        }
        let [entries, headers, cookies, query] = names.map(Names::new);
        Index { entries, headers, cookies, query, networks: Networks::new(self.networks), ..index }
    }
}
