//! Parts of keys.

#[derive(Debug)]
pub(crate) enum Part {}
