//! Facts that a server reports about itself.

use std::collections::HashMap;

use super::super::link::{DirectConnection, Reply, Why};
use super::finding::{Notes, Topic};

/// The settings that matter and that INFO does not show.
const SETTINGS: [&str; 5] =
    ["save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag"];

/// What INFO and CONFIG GET reply: nothing for what was refused.
#[derive(Debug, Default)]
pub(super) struct Facts {
    info: HashMap<String, String>,
    settings: HashMap<String, String>,
}

impl Facts {
    /// Asks a server, and notes what remains unknown if it refuses.
    pub(super) async fn ask(connection: &mut DirectConnection, notes: &mut Notes) -> Result<Facts, Why> {
        let mut facts = Facts::default();
        match connection.ask(&[b"INFO", b"EVERYTHING"]).await? {
            Reply::Error(error) => notes.warning(
                Topic::Permissions,
                format!(
                    "unknown: version, clients, memory, eviction, persistence and replicas: INFO was refused: {error}"
                ),
                "grant the user +info for this check, or run `redis-cli INFO` as an administrator",
            ),
            reply => facts.info = read_info(reply.text().unwrap_or_default()),
        }
        for name in SETTINGS {
            match connection.ask(&[b"CONFIG", b"GET", name.as_bytes()]).await? {
                Reply::Error(error) => {
                    let names = SETTINGS.join(", ");
                    notes.warning(
                        Topic::Permissions,
                        format!("unknown: the settings {names}: CONFIG GET was refused: {error}"),
                        "grant the user +config|get for this check, or check them as an administrator",
                    );
                    break;
                }
                Reply::Array(pair) => {
                    if let Some(value) = pair.get(1).and_then(Reply::text) {
                        facts.settings.insert(name.to_owned(), value.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(facts)
    }

    /// Facts that a test makes up, in the form of INFO and of a configuration file.
    #[cfg(test)]
    pub(super) fn told(info: &str, settings: &[(&str, &str)]) -> Facts {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Facts { info: read_info(info), settings: settings.collect() }
    }

    /// Returns whether the server replied to INFO.
    pub(super) fn has_info(&self) -> bool {
        !self.info.is_empty()
    }

    /// Returns a line of INFO by its name.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    /// Returns a line of INFO that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// Returns a setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}

fn read_info(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Returns a field of a line of INFO such as `ip=127.0.0.1,port=6380`.
pub(super) fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(',').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}
