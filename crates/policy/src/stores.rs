//! The stores of a configuration: how they are compiled, and the facts about them that callers provide.

use tidegate_core::bounds::{KEYS_MAX, LOG_ENTRIES_MAX};
use tidegate_core::{Limit, LimitExt};

use crate::bounds::{LEASED_SPAN_MIN, LEASED_UNITS_MIN, LEASED_WINDOW_MIN, STORES_MAX};
use crate::compile::{Compiler, child};
use crate::json::quote;
use crate::policy::{StorePlace, StoreSpec};
use crate::schema;

/// Checks the URL of a store outside of this process. Returns facts about the store, or the problem and a remedy.
pub type CheckStore = fn(&str) -> Result<StoreFacts, (String, String)>;

/// Facts about a store outside of this process, from its URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    /// Whether hash tags choose the slot of a state, as on a Redis Cluster.
    pub has_slots: bool,
    /// Whether the URL contains a password.
    pub has_password: bool,
}

/// Returns the value of an environment variable, or `None` if it is not set or not text.
pub type LookUp = fn(&str) -> Option<String>;

/// Facts about stores that are not in the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outside {
    /// Checks the URLs of stores outside of this process. With `None`, all stores must be in memory.
    pub check_store: Option<CheckStore>,
    /// Looks up an environment variable that holds a URL. With `None`, such URLs are not checked.
    pub variable: Option<LookUp>,
    /// Whether the default store is outside of this process if the configuration does not set its URL. `None` if unknown.
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
            self.check_name("store name", name, &child("/stores", name));
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
            // The place of the default store can be set outside of the configuration.
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

    /// Returns the place of a store whose URL is not that of memory, if the URL is valid.
    fn store_elsewhere(
        &mut self,
        written: &str,
        store: &schema::Store,
        pointer: &str,
        facts: &mut Option<StoreFacts>,
    ) -> Option<StorePlace> {
        for (field, is_set) in [("keys", store.keys.is_some()), ("log_entries", store.log_entries.is_some())] {
            if is_set {
                let message = format!("{field}: only allowed for a store in memory");
                self.diagnostics.error(&child(pointer, field), message, format!("remove {field}"));
            }
        }
        let at = child(pointer, "url");
        let Some(check) = self.outside.check_store else {
            let message = format!("url: unknown store type `{}`", quote(written));
            self.diagnostics.error(&at, message, "write memory:");
            return None;
        };
        let url = match variable(written) {
            None => written.to_owned(),
            Some("") => {
                let message = "url: names of environment variables have only letters, digits and underscores";
                self.diagnostics.error(&at, message, "write the name alone, like url: $REDIS_URL");
                return None;
            }
            Some(name) => match self.outside.variable {
                // A check need not have the secrets of the server.
                None => return Some(StorePlace::At(written.into())),
                Some(look_up) => look_up(name).or_else(|| {
                    let message = format!("url: the environment variable `{name}` is not set, or is not valid text");
                    self.diagnostics.error(&at, message, "set it, or write the URL instead");
                    None
                })?,
            },
        };
        // The variable may name memory too.
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
            let message = format!("store: unknown store `{}`", quote(name));
            self.diagnostics.error(pointer, message, format!("use one of {}, or add it to stores", names.join(", ")));
            0
        })
    }

    /// Refuses a consistency that the algorithm does not support.
    pub(crate) fn check_consistency(&mut self, rule: &schema::Rule, limit: &Limit, pointer: &str) {
        let (can, those) = match rule.consistency {
            schema::Consistency::Exact => (true, ""),
            schema::Consistency::Leased => (limit.can_lease(), " or fixed_window"),
            schema::Consistency::Async => (limit.can_be_copied(), ", fixed_window, calendar_window or sliding_counter"),
        };
        if !can {
            let message = format!("consistency: {} does not support {}", limit.algorithm(), rule.consistency);
            let hint = format!("remove it, or use gcra, token_bucket, leaky_bucket{those}");
            self.diagnostics.error(pointer, message, hint);
        }
    }

    pub(crate) fn hash_tag(&mut self, tag: Option<&str>, pointer: &str) -> Option<Box<str>> {
        let tag = tag?;
        self.check_name("hash_tag", tag, pointer);
        if tag.contains(['{', '}']) {
            let message = format!("hash_tag: `{}` contains braces, which are added automatically", quote(tag));
            self.diagnostics.error(pointer, message, "remove them");
        }
        Some(tag.into())
    }
}

fn is_memory(url: &str) -> bool {
    matches!(url, "memory" | "memory:" | "memory://")
}

/// Returns whether nodes can lease slices of a limit. If not, each unit is taken from the store.
#[must_use]
pub fn can_be_leased(limit: &Limit) -> bool {
    let least = if limit.algorithm().is_bucket() { LEASED_SPAN_MIN } else { LEASED_WINDOW_MIN };
    limit.can_lease() && limit.units() >= LEASED_UNITS_MIN && limit.period() >= least
}

/// Returns the name of the environment variable in `$REDIS_URL` or `${REDIS_URL}`, empty if it is not a valid name. Returns
/// `None` for any other text.
fn variable(url: &str) -> Option<&str> {
    let name = url.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(name);
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    Some(if is_name { name } else { "" })
}
