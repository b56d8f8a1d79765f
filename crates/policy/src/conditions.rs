//! The conditions of a rule: from the configuration to the form that requests are matched against.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bounds::{CONDITIONS_MAX, NETWORKS_MAX, PATTERN_BYTES_MAX, STARS_MAX, VALUES_MAX, VALUES_TOTAL_MAX};
use crate::compile::{Compiler, child};
use crate::expression::{Expression, Purpose};
use crate::json::quote;
use crate::matching::{Entries, Matching, Named};
use crate::network::{Network, NetworkError};
use crate::networks::Networks;
use crate::path;
use crate::pattern::{Glob, Pattern, Set};
use crate::schema;

/// How the case of a value is handled.
#[derive(Clone, Copy)]
enum Case {
    Kept,
    Upper,
    Lower,
    /// Case-folded like paths.
    Folded,
}

impl Compiler<'_, '_> {
    pub(crate) fn matching(&mut self, written: &schema::Match, pointer: &str) -> Matching {
        let at = |name: &str| child(pointer, name);
        let networks = self.networks(written.address.as_slice(), &at("address"));
        let path_case = match written.path_case {
            schema::PathCase::Exact => Case::Kept,
            schema::PathCase::Ignore => Case::Folded,
        };
        Matching {
            entries: self.entries(&written.entries, &at("entries")),
            method: written.method.as_ref().map(|value| self.pattern(value, Case::Upper, &at("method"))),
            host: written.host.as_ref().map(|value| self.pattern(value, Case::Lower, &at("host"))),
            path: written.path.as_ref().map(|value| self.pattern(value, path_case, &at("path"))),
            path_case: written.path_case,
            headers: self.headers(&written.header, &at("header")),
            cookies: self.named(written.cookie.iter().map(|(name, value)| (&**name, value)), &at("cookie")),
            query: self.named(written.query.iter().map(|(name, value)| (&**name, value)), &at("query")),
            around: Networks::plain(&networks),
            networks: networks.into(),
            when: written.when.as_ref().and_then(|source| self.expression(source, Purpose::When, &at("when"))),
        }
    }

    fn entries(&mut self, written: &schema::Entries, pointer: &str) -> Entries {
        match written {
            schema::Entries::Among(all) => {
                Entries::Among(self.named(all.iter().map(|(name, value)| (&**name, value)), pointer))
            }
            schema::Entries::Exactly(all) => {
                for (place, entry) in all.iter().enumerate().filter(|(_, entry)| entry.len() != 1) {
                    let place = child(pointer, &place.to_string());
                    if entry.is_empty() && self.diagnostics.is_left_out_within(&place) {
                        continue;
                    }
                    let message = format!("entries: an item of the list has {} entries", entry.len());
                    self.diagnostics.error(&place, message, "write one entry in each item, like `- user: \"*\"`");
                }
                let entries = all.iter().flatten().map(|(name, value)| (&**name, value));
                Entries::Exactly(self.named(entries, pointer))
            }
        }
    }

    fn headers(&mut self, written: &BTreeMap<String, schema::Value>, pointer: &str) -> Box<[Named]> {
        let mut named = self.named(written.iter().map(|(name, value)| (&**name, value)), pointer);
        for header in &mut named {
            self.check_header(&header.name, &child(pointer, &header.name));
            header.name = header.name.to_ascii_lowercase().into();
        }
        named
    }

    pub(crate) fn check_header(&mut self, name: &str, pointer: &str) {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !name.bytes().all(is_token) {
            let message = format!("`{}` is not a valid header name", quote(name));
            self.diagnostics.error(pointer, message, "use letters, digits and dashes, like x-api-key");
        }
    }

    fn named<'v>(&mut self, all: impl Iterator<Item = (&'v str, &'v schema::Value)>, pointer: &str) -> Box<[Named]> {
        let mut named = Vec::new();
        for (name, value) in all {
            let at = child(pointer, name);
            self.check_name("name", name, &at);
            named.push(Named { name: name.into(), value: self.pattern(value, Case::Kept, &at) });
        }
        if named.len() > CONDITIONS_MAX {
            let message = format!("{} conditions of this kind are too many", named.len());
            self.diagnostics.error(pointer, message, format!("use at most {CONDITIONS_MAX}"));
        }
        named.into()
    }

    fn pattern(&mut self, value: &schema::Value, case: Case, pointer: &str) -> Pattern {
        match value {
            schema::Value::Is(text) => Pattern::Is(self.glob(text, case, pointer)),
            schema::Value::OneOf(list) => Pattern::OneOf(self.set(list, case, pointer)),
            schema::Value::But(but) => {
                let glob = self.glob(&but.is, case, &child(pointer, "is"));
                Pattern::But(glob, self.except(&but.except, case, &child(pointer, "except")))
            }
        }
    }

    /// Returns a set of exceptions. Many rules may share one list, which is kept once.
    fn except(&mut self, list: &Arc<[String]>, case: Case, pointer: &str) -> Arc<Set> {
        let identity = (list.as_ptr().addr(), list.len(), case as u8);
        if let Some(set) = self.excepts.get(&identity) {
            return Arc::clone(set);
        }
        let set = Arc::new(self.set(list, case, pointer));
        self.excepts.insert(identity, Arc::clone(&set));
        set
    }

    fn set(&mut self, list: &[String], case: Case, pointer: &str) -> Set {
        match list.len() {
            0 => self.diagnostics.error(pointer, "an empty list matches nothing", "add a value, or remove the list"),
            1..=VALUES_MAX => (),
            count => {
                let message = format!("{count} values are too many");
                self.diagnostics.error(pointer, message, format!("use at most {VALUES_MAX}"));
                return Set::default();
            }
        }
        for (place, text) in list.iter().enumerate() {
            self.check_pattern(text, || child(pointer, &place.to_string()));
        }
        let texts: Vec<String> = list.iter().map(|text| case.apply(text)).collect();
        Set::new(texts.iter().map(String::as_str))
    }

    fn glob(&mut self, text: &str, case: Case, pointer: &str) -> Glob {
        self.check_pattern(text, || pointer.to_owned());
        Glob::new(&case.apply(text))
    }

    fn check_pattern(&mut self, text: &str, pointer: impl Fn() -> String) {
        self.values += 1;
        if self.values == VALUES_TOTAL_MAX + 1 {
            let message = "too many values in all rules together";
            self.diagnostics.error(&pointer(), message, format!("use at most {VALUES_TOTAL_MAX}"));
        }
        if text.len() > PATTERN_BYTES_MAX {
            let message = format!("a value of {} bytes is too long", text.len());
            self.diagnostics.error(&pointer(), message, format!("use at most {PATTERN_BYTES_MAX} bytes"));
        }
        let stars = text.bytes().filter(|byte| *byte == b'*').count();
        if stars > STARS_MAX {
            let message = format!("`{}`: {stars} wildcards are too many", quote(text));
            self.diagnostics.error(&pointer(), message, format!("use at most {STARS_MAX}"));
        }
    }

    pub(crate) fn networks(&mut self, list: &[String], pointer: &str) -> Vec<Network> {
        if list.len() > NETWORKS_MAX {
            let message = format!("{} networks are too many", list.len());
            self.diagnostics.error(pointer, message, format!("use at most {NETWORKS_MAX}"));
            return Vec::new();
        }
        let mut networks = Vec::with_capacity(list.len());
        for (place, text) in list.iter().enumerate() {
            match Network::read(text) {
                Ok(network) => networks.push(network),
                Err(error) => {
                    let at = child(pointer, &place.to_string());
                    let (message, hint) = match error {
                        NetworkError::Unreadable => (
                            format!("`{}` is not a network", quote(text)),
                            "write an address and a prefix length, like 10.0.0.0/8 or 2001:db8::/32".to_owned(),
                        ),
                        NetworkError::Beyond(network) => {
                            (format!("`{text}` has bits set beyond the prefix length"), format!("write {network}"))
                        }
                    };
                    self.diagnostics.error(&at, message, hint);
                }
            }
        }
        networks
    }

    pub(crate) fn expression(&mut self, source: &str, purpose: Purpose, pointer: &str) -> Option<Box<Expression>> {
        match Expression::compile(source, purpose, &self.expression_errors) {
            Ok(expression) => Some(Box::new(expression)),
            Err(problem) => {
                self.diagnostics.error(pointer, problem.message, problem.hint);
                None
            }
        }
    }
}

impl Case {
    fn apply(self, text: &str) -> String {
        match self {
            Case::Kept => text.to_owned(),
            Case::Upper => text.to_ascii_uppercase(),
            Case::Lower => text.to_ascii_lowercase(),
            Case::Folded => String::from_utf8_lossy(&path::fold(text.as_bytes())).into_owned(),
        }
    }
}
