//! Expressions.

#[derive(Debug)]
pub(crate) struct Expression;
