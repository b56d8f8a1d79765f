//! From texts and files to a configuration. To accept changed snapshots: `INSTA_UPDATE=always cargo test -p tidegate-policy`.

#![allow(clippy::unwrap_used)]

mod answers;
mod bad_envoy;
mod bad_native;
mod bombs;
mod envoy;
mod files;
mod round_trip;
mod schema;
mod slips;

use tidegate_policy::{LoadOptions as Options, Loaded, load_text};

/// A text as a file of its own.
fn load(text: &str) -> Loaded {
    load_text("rules.yaml", text, &Options::default())
}

/// A configuration without problems.
fn good(text: &str) -> tidegate_policy::schema::Config {
    let loaded = load(text);
    assert_eq!(told(&loaded), "");
    loaded.config
}

/// All that is said, a line each.
fn told(loaded: &Loaded) -> String {
    loaded.diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect()
}

/// Texts and what is said of them.
fn conversation(texts: &[&str]) -> String {
    let show = |text: &&str| {
        let loaded = load(text);
        assert!(loaded.policy.is_none() || !told(&loaded).contains(": error: "), "{text}");
        format!("{}\n=> {}\n", text.trim_matches('\n'), told(&loaded).trim_end().replace('\n', "\n   "))
    };
    texts.iter().map(show).collect::<Vec<_>>().join("\n")
}
