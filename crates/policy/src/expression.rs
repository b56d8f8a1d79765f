//! Expressions: CEL, compiled once, bounded in size and time.
//!
//! `check.rs` refuses what is not allowed and collects the variables that are used, `kind.rs` checks the type of the result,
//! `variables.rs` makes the variables of a request. There are no loops, so evaluation is linear in the length of the
//! expression and of the texts that it uses.

mod check;
mod kind;
mod variables;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use cel::parser::Parser;
use cel::{Context, Env, IdedExpr, Value};

use crate::bounds::{COST_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX};
use crate::parts::HttpParts;
use crate::policy::Question;
use crate::request::{Http, Response};
use check::{Regexes, Uses};
use variables::Asked;

/// The standard functions. Making them takes longer than most evaluations.
static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::default().with_stdlib()));

/// A compiled expression.
pub(crate) struct Expression {
    source: Box<str>,
    root: IdedExpr,
    uses: Uses,
    /// The functions that the expression calls.
    functions: Context<'static, 'static>,
    errors: Arc<AtomicU64>,
}

/// The field that an expression belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `when`: whether a rule matches.
    When,
    /// A part of `key`.
    Key,
    /// `cost`: the units that a request takes.
    Cost,
    /// `count`: whether a request is counted, or the units.
    Count,
}

/// A problem of an expression, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Problem {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem { message: message.into(), hint: hint.into() }
    }
}

/// The result of an expression in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyText {
    Made(Vec<u8>),
    Missing,
    TooLong,
}

impl Expression {
    /// Compiles an expression. Each later failure of it is counted in `errors`.
    pub(crate) fn compile(source: &str, purpose: Purpose, errors: &Arc<AtomicU64>) -> Result<Expression, Problem> {
        let mut root = parse(source)?;
        let mut regexes = Regexes::default();
        let uses = check::check(&mut root, purpose, &mut regexes)?;
        kind::check(&root, purpose)?;
        let mut functions = Context::with_env(Arc::clone(&STANDARD));
        for (name, regex) in regexes.into_iter() {
            let added = functions.add_function(&name, move |text: Arc<String>| regex.is_match(&text));
            added.map_err(|error| Problem::new(error.to_string(), "leave it out"))?;
        }
        Ok(Expression { source: source.into(), root, uses, functions, errors: Arc::clone(errors) })
    }

    /// Returns its text.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether it uses the response.
    pub(crate) fn mentions_response(&self) -> bool {
        self.uses.response
    }

    /// Whether it may use the entry of this name.
    pub(crate) fn looks_at_entry(&self, name: &str) -> bool {
        self.uses.entries.contains(name)
    }

    /// Whether it uses any entry.
    pub(crate) fn looks_at_entries(&self) -> bool {
        self.uses.entries.is_used()
    }

    /// Whether it uses the header of this name.
    pub(crate) fn looks_at_header(&self, name: &str) -> bool {
        self.uses.headers.contains(name)
    }

    /// Whether it uses the cookie of this name.
    pub(crate) fn looks_at_cookie(&self, name: &str) -> bool {
        self.uses.cookies.contains(name)
    }

    /// Whether it uses the query parameter of this name.
    pub(crate) fn looks_at_parameter(&self, name: &str) -> bool {
        self.uses.query.contains(name)
    }

    /// Whether it uses headers, cookies or query parameters, and fails for a request without any.
    pub(crate) fn needs_what_clients_send(&self) -> bool {
        let Uses { headers, cookies, query, .. } = &self.uses;
        let bare = Question { domain: "", entries: &[], http: Some(&Http::default()), cost: 1 };
        (headers.is_used() || cookies.is_used() || query.is_used())
            && self.evaluate(&Asked { question: &bare, response: None, cost: 1 }).is_err()
    }

    /// Returns the parts of an HTTP request that it uses.
    pub(crate) fn http_parts(&self) -> HttpParts {
        // All fields are named, so that a new one does not compile unless it is handled here.
        let Uses {
            host,
            path,
            headers,
            cookies,
            address,
            domain: _,
            cost: _,
            response: _,
            method: _,
            entries: _,
            query: _,
        } = &self.uses;
        let headers = headers.is_used() || cookies.is_used();
        HttpParts { host: *host, path: *path, headers, address: *address }
    }

    /// Whether it uses the cost.
    pub(crate) fn mentions_cost(&self) -> bool {
        self.uses.cost
    }

    /// Returns its units if it is constant.
    pub(crate) fn constant_units(&self) -> Option<u64> {
        self.constant().and_then(|value| units(&value))
    }

    /// Whether it is constant, and not true.
    pub(crate) fn is_never_true(&self) -> bool {
        self.uses.is_empty() && self.constant() != Some(Value::Bool(true))
    }

    fn constant(&self) -> Option<Value> {
        let nothing = Question { domain: "", entries: &[], http: None, cost: 0 };
        let asked = Asked { question: &nothing, response: None, cost: 0 };
        if self.uses.is_empty() { self.evaluate(&asked).ok() } else { None }
    }

    /// Whether it is true. A failure counts as false.
    pub(crate) fn holds(&self, question: &Question<'_>) -> bool {
        match self.evaluate(&Asked { question, response: None, cost: question.cost }) {
            Ok(Value::Bool(holds)) => holds,
            _ => self.count_error(false),
        }
    }

    /// Returns the units, or `None` if it fails or gives more than [`COST_MAX`].
    pub(crate) fn cost(&self, question: &Question<'_>) -> Option<u64> {
        let value = self.evaluate(&Asked { question, response: None, cost: question.cost });
        value.ok().and_then(|value| units(&value)).or_else(|| self.count_error(None))
    }

    /// Returns the units to count: the cost, nothing, or a number of its own. If it fails, the cost.
    pub(crate) fn units(&self, question: &Question<'_>, response: Option<&Response>, cost: u64) -> u64 {
        match self.evaluate(&Asked { question, response, cost }) {
            Ok(Value::Bool(true)) => cost,
            Ok(Value::Bool(false)) => 0,
            value => value.ok().and_then(|value| units(&value)).unwrap_or_else(|| self.count_error(cost)),
        }
    }

    /// Returns its bytes in a key. The number 1 and the text `1` have different bytes.
    pub(crate) fn key_text(&self, question: &Question<'_>) -> KeyText {
        let value = match self.evaluate(&Asked { question, response: None, cost: question.cost }) {
            Err(Failed::TooLong) => return self.count_error(KeyText::TooLong),
            Ok(value) => value,
            Err(Failed::Otherwise) => return self.count_error(KeyText::Missing),
        };
        KeyText::Made(match value {
            Value::String(text) => [b"s", text.as_bytes()].concat(),
            Value::Int(number) => format!("i{number}").into_bytes(),
            // In expressions an unsigned 1 equals a signed one.
            Value::UInt(number) => format!("i{number}").into_bytes(),
            Value::Bool(flag) => format!("b{flag}").into_bytes(),
            _ => return self.count_error(KeyText::Missing),
        })
    }

    fn evaluate(&self, asked: &Asked<'_>) -> Result<Value, Failed> {
        let mut context = self.functions.new_inner_scope();
        variables::add(&self.uses, asked, &mut context).map_err(|_| Failed::TooLong)?;
        // No input is known that makes the interpreter panic. If there is one, only the request fails.
        let value = catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.root, &context)));
        value.ok().and_then(Result::ok).ok_or(Failed::Otherwise)
    }

    fn count_error<T>(&self, instead: T) -> T {
        self.errors.fetch_add(1, Ordering::Relaxed);
        instead
    }
}

enum Failed {
    /// A text is longer than expressions may see.
    TooLong,
    Otherwise,
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// Returns a whole number of units within the bound.
fn units(value: &Value) -> Option<u64> {
    let units = match value {
        Value::Int(number) => u64::try_from(*number).ok()?,
        Value::UInt(number) => *number,
        _ => return None,
    };
    (units <= COST_MAX).then_some(units)
}

fn parse(source: &str) -> Result<IdedExpr, Problem> {
    const EXAMPLE: &str = "write a CEL expression, like request.method == \"POST\"";
    if source.trim().is_empty() {
        return Err(Problem::new("the expression is empty", EXAMPLE));
    }
    if source.len() > EXPRESSION_BYTES_MAX {
        let message = format!("the expression has {} bytes", source.len());
        return Err(Problem::new(message, format!("use at most {EXPRESSION_BYTES_MAX}")));
    }
    if nesting(source) > EXPRESSION_DEPTH_MAX {
        return Err(check::too_deep());
    }
    // A text that makes the parser panic is an expression that cannot be read.
    let parsed = catch_unwind(|| Parser::new().parse(source));
    match parsed {
        Ok(Ok(root)) => Ok(root),
        Ok(Err(errors)) => {
            let first = errors.errors.first();
            let message = first.map_or_else(String::new, |error| syntax_error(&error.msg));
            let place = first.map_or(0, |error| error.pos.1);
            Err(Problem::new(format!("invalid expression at character {place}: {message}"), EXAMPLE))
        }
        Err(_) => Err(Problem::new("invalid expression", EXAMPLE)),
    }
}

/// Returns the first line of an error of the parser, without the list of all tokens that it accepts.
fn syntax_error(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("Syntax error: ").unwrap_or(line);
    let line = line.split_once(" expecting {").map_or(line, |(problem, _)| problem);
    line.replace("mismatched input '<EOF>'", "unexpected end")
}

/// Returns the depth of nested brackets, including those in texts.
fn nesting(source: &str) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests;
