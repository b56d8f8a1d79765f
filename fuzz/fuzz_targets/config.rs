//! Any bytes as a configuration: every fault is told, nothing panics, and what is accepted is written and read alike.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_policy::{LoadOptions, load_text, migrate};

fuzz_target!(|text: &str| {
    let loaded = load_text("fuzz.yaml", text, &LoadOptions::default());
    if loaded.policy.is_some() {
        let again = load_text("again.yaml", &migrate::to_yaml(&loaded.config), &LoadOptions::default());
        assert_eq!(again.config, migrate::to_native(&loaded.config));
    }
});
