//! Limits by address where accounts are known: all clients behind one address share them, and a client with many addresses
//! evades them.

use std::collections::HashMap;

use super::Both;
use crate::diagnostic::Diagnostics;
use crate::schema::{Action, Entries, KeyPart, Match, Rule};

pub(super) fn of_rules(rules: &[Both<'_>], diagnostics: &mut Diagnostics<'_>) {
    let mut accounts: HashMap<String, String> = HashMap::new();
    for both in rules {
        if let Some(account) = account_of_key(both.written) {
            accounts.entry(subject(&both.written.matching)).or_insert(account);
        }
    }
    for both in rules.iter().filter(|both| is_by_address_alone(both.written)) {
        let matching = &both.written.matching;
        let found = account_of_match(matching).or_else(|| accounts.get(&subject(matching)).cloned());
        if let Some(account) = found {
            let message = format!("key: limits by address although the account is known ({account})");
            let hint = "add the account to the key: many clients share one address, and some clients have many";
            diagnostics.warning(&both.at("key"), message, hint);
        }
    }
}

/// Returns the conditions of a rule that are not about the client, to be compared. An expression may select requests without an
/// account.
fn subject(matching: &Match) -> String {
    format!("{:?}", (&matching.method, &matching.host, &matching.path, matching.path_case, &matching.when))
}

fn is_by_address_alone(rule: &Rule) -> bool {
    rule.action == Action::Limit && rule.key.as_slice() == [KeyPart::Address]
}

/// Returns a condition of a rule that names an account.
fn account_of_match(matching: &Match) -> Option<String> {
    let entries: Vec<&String> = match &matching.entries {
        Entries::Among(all) => all.keys().collect(),
        Entries::Exactly(all) => all.iter().flat_map(|entry| entry.keys()).collect(),
    };
    let entries = entries.into_iter().map(|name| ("entry", name));
    let headers = matching.header.keys().map(|name| ("header", name));
    let cookies = matching.cookie.keys().map(|name| ("cookie", name));
    let mut all = entries.chain(headers).chain(cookies);
    all.find(|(_, name)| is_account(name)).map(|(kind, name)| format!("{kind} {name}"))
}

fn account_of_key(rule: &Rule) -> Option<String> {
    rule.key.as_slice().iter().find_map(|part| {
        let (kind, name) = match part {
            KeyPart::Entry(name) => ("entry", name),
            KeyPart::Header(name) => ("header", name),
            KeyPart::Cookie(name) => ("cookie", name),
            _ => return None,
        };
        is_account(name).then(|| format!("{kind} {name}, in the key of rule {}", rule.name))
    })
}

/// Whether a name is a usual one for an account.
fn is_account(name: &str) -> bool {
    const WORDS: [&str; 14] = [
        "user",
        "userid",
        "uid",
        "username",
        "account",
        "tenant",
        "customer",
        "apikey",
        "authorization",
        "session",
        "sessionid",
        "subject",
        "organization",
        "member",
    ];
    const PAIRS: [[&str; 2]; 2] = [["api", "key"], ["client", "id"]];
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let is_agent = words.contains(&"agent");
    !is_agent
        && (words.iter().any(|word| WORDS.contains(word))
            || words.windows(2).any(|pair| PAIRS.iter().any(|known| pair == known)))
}

#[cfg(test)]
mod tests {
    use super::is_account;
    use crate::lint::tests::{of_rule, warnings};
    use serde_json::json;

    #[test]
    fn names_of_accounts() {
        for name in ["user", "X-User-Id", "x-api-key", "Authorization", "tenant_id", "session"] {
            assert!(is_account(name), "{name}");
        }
        for name in ["user-agent", "path", "accept", "x-request-id", "origin", "key"] {
            assert!(!is_account(name), "{name}");
        }
    }

    #[test]
    fn an_address_where_an_account_is_known() {
        let rule = json!({"key": "address", "match": {"header": {"X-Api-Key": "*"}}, "limit": "1/s"});
        assert!(of_rule(rule)[0].contains("key: limits by address although the account is known (header X-Api-Key)"));
        let both = json!({"key": ["address", {"header": "x-api-key"}], "match": {"header": {"x-api-key": "*"}}, "limit": "1/s"});
        assert_eq!(of_rule(both), [""; 0]);
        let rules = |path: &str| {
            json!({"domains": {"d": {"rules": [
                {"name": "a", "key": "address", "match": {"path": "/login"}, "limit": "1/s"},
                {"name": "u", "key": {"entry": "user"}, "match": {"path": path}, "limit": "1/s"},
            ]}}})
        };
        assert!(warnings(rules("/login"))[0].contains("(entry user, in the key of rule u)"));
        assert_eq!(warnings(rules("/orders")), [""; 0]);
        let others = json!({"domains": {"d": {"rules": [
            {"name": "u", "key": {"entry": "user"}, "limit": "1/s"},
            {"name": "a", "key": "address", "match": {"when": "!has(entries.user)"}, "limit": "1/s"},
        ]}}});
        assert_eq!(warnings(others), [""; 0], "it is for those without");
    }
}
