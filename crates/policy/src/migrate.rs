//! Writes a configuration as YAML of Tidegate.

use crate::schema::Config;

/// Returns the configuration as a file of Tidegate has it: counts are stored under the name of each rule, not under the
/// entries of envoyproxy/ratelimit.
#[must_use]
pub fn to_native(config: &Config) -> Config {
    let mut native = config.clone();
    for rule in native.domains.values_mut().flat_map(|domain| &mut domain.rules) {
        rule.counted_by = None;
    }
    native
}

/// Returns the YAML that loads as the result of [`to_native`].
#[must_use]
pub fn to_yaml(config: &Config) -> String {
    serde_saphyr::to_string(config).unwrap_or_default()
}
