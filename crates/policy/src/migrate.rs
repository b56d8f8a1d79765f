//! A configuration as native YAML.

use crate::schema::Config;

/// The YAML that loads as this configuration.
#[must_use]
pub fn to_yaml(config: &Config) -> String {
    serde_saphyr::to_string(config).unwrap_or_default()
}
