//! The parameters of a store's URL, behind the question mark.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::link::bounds::{BUDGET_MAX, BUDGET_MIN, LINKS_MAX, PREFIX_BYTES_MAX, WAIT_MAX};
use super::url::{Secret, TargetError, database, secret, wrong};

/// What stands behind the question mark.
#[derive(Default)]
pub(super) struct Query {
    pub(super) prefix: Option<String>,
    pub(super) budget: Option<Duration>,
    pub(super) wait: Option<Duration>,
    pub(super) links: Option<usize>,
    pub(super) authorities: Option<PathBuf>,
    pub(super) database: Option<u32>,
    pub(super) sentinel_user: Option<String>,
    pub(super) sentinel_password: Option<Secret>,
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Query, TargetError> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if query.set(name, value)? {
                return Err(wrong("parameter", name, "it is given twice: leave one out"));
            }
        }
        Ok(query)
    }

    /// Sets a parameter and says whether it was set before.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, TargetError> {
        Ok(match name {
            "prefix" => self.prefix.replace(prefix(value)?).is_some(),
            "timeout" => self.budget.replace(time(name, value, BUDGET_MIN, BUDGET_MAX)?).is_some(),
            "wait" => self.wait.replace(time(name, value, Duration::ZERO, WAIT_MAX)?).is_some(),
            "links" => self.links.replace(links(value)?).is_some(),
            "ca" => self.authorities.replace(PathBuf::from(filled(name, value)?)).is_some(),
            "db" => self.database.replace(database(value)?).is_some(),
            "sentinel_user" => self.sentinel_user.replace(filled(name, value)?).is_some(),
            "sentinel_password" => {
                let not_text = |_| secret(name, "its escapes (%XX) are not valid UTF-8 text");
                let password = percent_decode_str(value).decode_utf8().map_err(not_text)?.into_owned();
                self.sentinel_password.replace(Secret::new(password)).is_some()
            }
            _ => {
                let known =
                    "write prefix, timeout, wait, links, ca, db, sentinel_user or sentinel_password, or leave it out";
                return Err(wrong("parameter", name, known));
            }
        })
    }
}

pub(super) fn text(part: &str, escaped: &str) -> Result<String, TargetError> {
    match percent_decode_str(escaped).decode_utf8() {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        _ => Err(wrong(part, escaped, "its escapes (%XX) are not valid UTF-8 text without NUL")),
    }
}

fn filled(name: &str, value: &str) -> Result<String, TargetError> {
    let text = text(name, value)?;
    if text.is_empty() { Err(wrong(name, value, "write a value, or leave the parameter out")) } else { Ok(text) }
}

fn prefix(value: &str) -> Result<String, TargetError> {
    let prefix = filled("prefix", value)?;
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(wrong("prefix", &prefix, format!("write at most {PREFIX_BYTES_MAX} bytes")));
    }
    if prefix.contains(['{', '}']) {
        return Err(wrong("prefix", &prefix, "leave braces out: they would put every key into one slot of a Cluster"));
    }
    Ok(prefix)
}

fn time(name: &str, value: &str, least: Duration, most: Duration) -> Result<Duration, TargetError> {
    let fix = || format!("write a time from {least:?} to {most:?}, as in {name}=10ms");
    let digits = value.trim_end_matches(|character: char| !character.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| wrong(name, value, fix()))?;
    let time = match value.get(digits.len()..) {
        Some("ms") => Duration::from_millis(number),
        Some("s") => Duration::from_secs(number),
        _ => return Err(wrong(name, value, fix())),
    };
    if time < least || time > most { Err(wrong(name, value, fix())) } else { Ok(time) }
}

fn links(value: &str) -> Result<usize, TargetError> {
    let links = value.parse().ok().filter(|links| (1..=LINKS_MAX).contains(links));
    links.ok_or_else(|| wrong("links", value, format!("write a number of connections from 1 to {LINKS_MAX}")))
}
