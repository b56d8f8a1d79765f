//! Expressions.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::policy::Question;
use crate::request::Response;

#[derive(Debug)]
pub(crate) struct Expression;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    When,
    Key,
    Cost,
    Count,
}

pub(crate) struct ExpressionProblem {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Expression {
    pub(crate) fn compile(
        _source: &str,
        _purpose: Purpose,
        _errors: &Arc<AtomicU64>,
    ) -> Result<Expression, ExpressionProblem> {
        Err(ExpressionProblem { message: "expressions are not there yet".to_owned(), hint: "leave it out".to_owned() })
    }

    pub(crate) fn holds(&self, _question: &Question<'_>) -> bool {
        false
    }

    pub(crate) fn key_text(&self, _question: &Question<'_>) -> Option<Vec<u8>> {
        None
    }

    pub(crate) fn cost(&self, question: &Question<'_>) -> u64 {
        question.cost
    }

    pub(crate) fn mentions_response(&self) -> bool {
        false
    }

    pub(crate) fn units(&self, _question: &Question<'_>, _response: Option<&Response>, cost: u64) -> u64 {
        cost
    }
}
