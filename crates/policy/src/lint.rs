//! What is probably not what was meant.

use crate::diagnostic::Diagnostics;
use crate::policy::Policy;
use crate::schema::Config;

pub(crate) fn lint(_config: &Config, _policy: &Policy, _diagnostics: &mut Diagnostics<'_>) {}
