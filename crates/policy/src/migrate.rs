//! A configuration as native YAML.

use crate::schema::Config;

/// The configuration as a native file holds it: there the counts of each rule are kept under its name.
#[must_use]
pub fn to_native(config: &Config) -> Config {
    let mut native = config.clone();
    for rule in native.domains.values_mut().flat_map(|domain| &mut domain.rules) {
        rule.counted_by = None;
    }
    native
}

/// The YAML that loads as this configuration, as [`to_native`] makes it.
#[must_use]
pub fn to_yaml(config: &Config) -> String {
    serde_saphyr::to_string(config).unwrap_or_default()
}
