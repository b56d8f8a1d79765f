//! Where counts are kept: the part of compiling that concerns stores, and what has to be known from outside for it.

use tidegate_core::bounds::{KEYS_MAX, LOG_ENTRIES_MAX};
use tidegate_core::{Limit, LimitExt};

use crate::bounds::{LEASED_SPAN_MIN, LEASED_UNITS_MIN, LEASED_WINDOW_MIN, STORES_MAX};
use crate::compile::{Compiler, child};
use crate::json::quote;
use crate::policy::{StorePlace, StoreSpec};
use crate::schema;

/// Reports what is behind the URL of a store that is not in memory, or what is wrong with it and how to fix that.
pub type CheckStore = fn(&str) -> Result<StoreFacts, (String, String)>;

/// What a configuration needs to know of a store that is not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    /// Whether it keeps states in slots that a hash tag chooses.
    pub has_slots: bool,
    /// Whether a password stands in its URL.
    pub has_password: bool,
}

/// The value of a variable of the environment.
pub type LookUp = fn(&str) -> Option<String>;

/// What a configuration does not say of stores, and those who use it know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside {
    /// Whether a URL is that of a store elsewhere, and what is wrong with it; without this, all stores are in memory.
    pub check_store: Option<CheckStore>,
    /// Looks up a variable of the environment that stands for a URL. Without this, such URLs are not checked.
    pub variable: Option<LookUp>,
    /// Whether the default store is another than the memory of this process where the configuration does not say; nothing if
    /// that is not known.
    pub default_is_elsewhere: Option<bool>,
}

impl Compiler<'_, '_> {
    pub(crate) fn stores(&mut self, config: &schema::Config) -> Vec<StoreSpec> {
        if config.stores.len() > STORES_MAX {
            let message = format!("{} stores are too many", config.stores.len());
            self.diagnostics.error("/stores", message, format!("use at most {STORES_MAX}"));
        }
        let default = schema::Store::default();
        let mut stores = vec![self.store("default", config.stores.get("default").unwrap_or(&default))];
        for (name, store) in config.stores.iter().filter(|(name, _)| *name != "default") {
            self.check_name("the name of a store", name, &child("/stores", name));
            stores.push(self.store(name, store));
        }
        stores
    }

    fn store(&mut self, name: &str, store: &schema::Store) -> StoreSpec {
        let pointer = child("/stores", name);
        let mut facts = None;
        let place = match store.url.as_deref() {
            Some(url) if is_memory(url) => Some(StorePlace::Memory),
            Some(url) => self.store_elsewhere(url, store, &pointer, &mut facts),
            // Where the default store is can be said elsewhere.
            None => (name != "default").then_some(StorePlace::Memory),
        };
        StoreSpec {
            name: name.into(),
            place,
            facts,
            keys: self.capacity("keys", store.keys, KEYS_MAX, &pointer),
            log_entries: self.capacity("log_entries", store.log_entries, LOG_ENTRIES_MAX, &pointer),
        }
    }

    /// The place of a store that is not said to be in memory, if it is one.
    fn store_elsewhere(
        &mut self,
        written: &str,
        store: &schema::Store,
        pointer: &str,
        facts: &mut Option<StoreFacts>,
    ) -> Option<StorePlace> {
        for (field, is_set) in [("keys", store.keys.is_some()), ("log_entries", store.log_entries.is_some())] {
            if is_set {
                let message = format!("{field}: only a store in memory is sized");
                self.diagnostics.error(&child(pointer, field), message, format!("leave out {field}"));
            }
        }
        let at = child(pointer, "url");
        let Some(check) = self.outside.check_store else {
            let message = format!("url: `{}` is not a store that there is", quote(written));
            self.diagnostics.error(&at, message, "write memory:");
            return None;
        };
        let url = match variable(written) {
            None => written.to_owned(),
            Some("") => {
                let message = "url: a variable of the environment has a name of letters, digits and underscores";
                self.diagnostics.error(&at, message, "write its name and nothing else, like url: $REDIS_URL");
                return None;
            }
            Some(name) => match self.outside.variable {
                // Who only checks need not have the secrets of who serves.
                None => return Some(StorePlace::At(written.into())),
                Some(look_up) => look_up(name).or_else(|| {
                    let message = format!("url: there is no variable `{name}` in the environment, or it is not text");
                    self.diagnostics.error(&at, message, "set it, or write the URL here");
                    None
                })?,
            },
        };
        // Where nothing is shared, a variable can say so.
        if is_memory(&url) {
            return Some(StorePlace::Memory);
        }
        match check(&url) {
            Ok(found) => *facts = Some(found),
            Err((problem, hint)) => self.diagnostics.error(&at, format!("url: {problem}"), hint),
        }
        Some(StorePlace::At(url.into()))
    }

    fn capacity(&mut self, field: &str, value: Option<u64>, max: usize, pointer: &str) -> Option<usize> {
        let value = value?;
        match usize::try_from(value) {
            Ok(value) if (1..=max).contains(&value) => Some(value),
            _ => {
                let message = format!("{field}: {value} is out of bounds");
                self.diagnostics.error(&child(pointer, field), message, format!("use 1 to {max}"));
                None
            }
        }
    }

    pub(crate) fn store_of(&mut self, name: Option<&str>, pointer: &str) -> usize {
        let Some(name) = name else { return 0 };
        self.stores.iter().position(|store| *store.name == *name).unwrap_or_else(|| {
            let names: Vec<&str> = self.stores.iter().map(|store| &*store.name).collect();
            let message = format!("store: there is no `{}`", quote(name));
            self.diagnostics.error(pointer, message, format!("name one of {}, or add it to stores", names.join(", ")));
            0
        })
    }

    /// Refuses what an algorithm cannot do without letting too much pass.
    pub(crate) fn check_consistency(&mut self, rule: &schema::Rule, limit: &Limit, pointer: &str) {
        let (can, those) = match rule.consistency {
            schema::Consistency::Exact => (true, ""),
            schema::Consistency::Leased => (limit.can_lease(), " or fixed_window"),
            schema::Consistency::Async => (limit.can_be_copied(), ", fixed_window, calendar_window or sliding_counter"),
        };
        if !can {
            let message = format!("consistency: {} cannot be {}", limit.algorithm(), rule.consistency);
            let hint = format!("leave it out, or use gcra, token_bucket, leaky_bucket{those}");
            self.diagnostics.error(pointer, message, hint);
        }
    }

    pub(crate) fn hash_tag(&mut self, tag: Option<&str>, pointer: &str) -> Option<Box<str>> {
        let tag = tag?;
        self.check_name("hash_tag", tag, pointer);
        if tag.contains(['{', '}']) {
            let message = format!("hash_tag: `{}` has braces, which stand around it already", quote(tag));
            self.diagnostics.error(pointer, message, "leave them out");
        }
        Some(tag.into())
    }
}

fn is_memory(url: &str) -> bool {
    matches!(url, "memory" | "memory:" | "memory://")
}

/// Whether slices of a limit can be leased, rather than each unit be asked for.
#[must_use]
pub fn can_be_leased(limit: &Limit) -> bool {
    let least = if limit.algorithm().is_bucket() { LEASED_SPAN_MIN } else { LEASED_WINDOW_MIN };
    limit.can_lease() && limit.units() >= LEASED_UNITS_MIN && limit.period() >= least
}

/// The variable of the environment that stands for a URL, as in `$REDIS_URL` and `${REDIS_URL}`. An empty name is none that
/// a variable can have.
fn variable(url: &str) -> Option<&str> {
    let name = url.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(name);
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    Some(if is_name { name } else { "" })
}
