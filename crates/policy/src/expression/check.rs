//! Checks an expression, and collects the variables that it uses: only these are made for it.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};
use cel::objects::Key;
use regex::{Regex, RegexBuilder};

use super::variables::key;
use super::{Problem, Purpose};
use crate::bounds::{EXPRESSION_DEPTH_MAX, EXPRESSION_JOINS_MAX, REGEX_BYTES_MAX};
use crate::json::quote;

const VARIABLES: &str = "use domain, entries, request, cost or, in count, response";
const REQUEST: &str = "use request.method, host, path, query, headers, cookies or address";
const RESPONSE: &str = "use response.status, bytes or millis";
const FUNCTIONS: &str =
    "use size, contains, startsWith, endsWith, matches, has, int, uint, double, string, bool and operators";

/// The variables that an expression uses.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub(super) domain: bool,
    pub(super) cost: bool,
    pub(super) response: bool,
    pub(super) method: bool,
    pub(super) host: bool,
    pub(super) path: bool,
    pub(super) address: bool,
    pub(super) entries: Names,
    pub(super) query: Names,
    pub(super) headers: Names,
    pub(super) cookies: Names,
}

/// The names that an expression uses in a map.
#[derive(Debug, Default)]
pub(super) enum Names {
    #[default]
    Nothing,
    /// Names, with their keys, which are made once.
    These(BTreeMap<Box<str>, Key>),
    All,
}

impl Names {
    fn add(&mut self, name: &str) {
        match self {
            Names::Nothing => *self = Names::These(BTreeMap::from([(name.into(), key(name))])),
            Names::These(names) => {
                names.entry(name.into()).or_insert_with(|| key(name));
            }
            Names::All => (),
        }
    }

    pub(super) fn is_used(&self) -> bool {
        !matches!(self, Names::Nothing)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Names::Nothing => false,
            Names::These(names) => names.contains_key(name),
            Names::All => true,
        }
    }
}

impl Uses {
    pub(super) fn request(&self) -> bool {
        let maps = self.query.is_used() || self.headers.is_used() || self.cookies.is_used();
        maps || self.method || self.host || self.path || self.address
    }

    pub(super) fn is_empty(&self) -> bool {
        !(self.request() || self.domain || self.cost || self.response || self.entries.is_used())
    }
}

/// The regular expressions of an expression, with the names of the functions that match them.
#[derive(Default)]
pub(super) struct Regexes(Vec<(String, Regex)>);

impl Regexes {
    pub(super) fn into_iter(self) -> impl Iterator<Item = (String, Regex)> {
        self.0.into_iter()
    }
}

/// Checks an expression, and replaces each `matches` by a function for its regular expression.
pub(super) fn check(root: &mut IdedExpr, purpose: Purpose, regexes: &mut Regexes) -> Result<Uses, Problem> {
    let mut checker = Checker { purpose, uses: Uses::default(), regexes, joins: 0 };
    checker.walk(root, 0)?;
    Ok(checker.uses)
}

pub(super) fn too_deep() -> Problem {
    let hint = format!("use at most {EXPRESSION_DEPTH_MAX} levels, or several rules");
    Problem::new("the expression is nested too deeply", hint)
}

struct Checker<'r> {
    purpose: Purpose,
    uses: Uses,
    regexes: &'r mut Regexes,
    /// The number of additions: each may copy all texts so far.
    joins: usize,
}

impl Checker<'_> {
    fn walk(&mut self, node: &mut IdedExpr, depth: usize) -> Result<(), Problem> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(too_deep());
        }
        let depth = depth + 1;
        match &mut node.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select, depth),
            Expr::Call(call) => self.call(call, depth),
            Expr::List(list) => list.elements.iter_mut().try_for_each(|element| self.walk(element, depth)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.walk(&mut entry.key, depth)?;
                    self.walk(&mut entry.value, depth)
                }
                EntryExpr::StructField(_) => Err(not_allowed("a structure")),
            }),
            Expr::Comprehension(_) => Err(not_allowed("a loop (map, filter, all, exists)")),
            Expr::Struct(_) => Err(not_allowed("a structure")),
            Expr::Unspecified => Err(not_allowed("this")),
        }
    }

    fn variable(&mut self, name: &str) -> Result<(), Problem> {
        match name {
            "domain" => self.uses.domain = true,
            "cost" => self.uses.cost = true,
            "entries" => self.uses.entries = Names::All,
            "request" => return Err(Problem::new("`request` has no value without a field", REQUEST)),
            "response" => return Err(Problem::new("`response` has no value without a field", RESPONSE)),
            _ => return Err(Problem::new(format!("unknown variable `{}`", quote(name)), VARIABLES)),
        }
        Ok(())
    }

    fn select(&mut self, select: &mut SelectExpr, depth: usize) -> Result<(), Problem> {
        if let Expr::Ident(name) = &select.operand.expr {
            match name.as_str() {
                "request" => return self.request_field(&select.field),
                "response" => return self.response_field(&select.field),
                _ => (),
            }
        }
        match self.looks_up(&select.operand, &select.field)? {
            true => Ok(()),
            false => self.walk(&mut select.operand, depth),
        }
    }

    fn request_field(&mut self, field: &str) -> Result<(), Problem> {
        let uses = &mut self.uses;
        match field {
            "method" => uses.method = true,
            "host" => uses.host = true,
            "path" => uses.path = true,
            "address" => uses.address = true,
            "query" => uses.query = Names::All,
            "headers" => uses.headers = Names::All,
            "cookies" => uses.cookies = Names::All,
            _ => return Err(Problem::new(format!("unknown variable `request.{}`", quote(field)), REQUEST)),
        }
        Ok(())
    }

    fn response_field(&mut self, field: &str) -> Result<(), Problem> {
        if self.purpose != Purpose::Count {
            let message = "`response` is not available here";
            return Err(Problem::new(message, "use it only in count, which can wait for the response"));
        }
        self.uses.response = true;
        match field {
            "status" | "bytes" | "millis" => Ok(()),
            _ => Err(Problem::new(format!("unknown variable `response.{}`", quote(field)), RESPONSE)),
        }
    }

    /// Collects a name that is looked up in a map of the request. Returns false if the node is something else.
    fn looks_up(&mut self, node: &IdedExpr, name: &str) -> Result<bool, Problem> {
        let Some(names) = self.map_of(node) else { return Ok(false) };
        names.add(name);
        let is_header = matches!(&node.expr, Expr::Select(select) if select.field == "headers");
        match is_header && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => {
                let message = format!("header name `{}` has capital letters, but names are in lower case", quote(name));
                Err(Problem::new(message, format!("write {}", quote(&name.to_ascii_lowercase()))))
            }
            false => Ok(true),
        }
    }

    /// Returns the names that are used of a map of the request, if the node is such a map.
    fn map_of(&mut self, node: &IdedExpr) -> Option<&mut Names> {
        match &node.expr {
            Expr::Ident(name) if name == "entries" => Some(&mut self.uses.entries),
            Expr::Select(SelectExpr { operand, field, test: false }) => match (&operand.expr, field.as_str()) {
                (Expr::Ident(name), "query") if name == "request" => Some(&mut self.uses.query),
                (Expr::Ident(name), "headers") if name == "request" => Some(&mut self.uses.headers),
                (Expr::Ident(name), "cookies") if name == "request" => Some(&mut self.uses.cookies),
                _ => None,
            },
            _ => None,
        }
    }

    fn call(&mut self, call: &mut CallExpr, depth: usize) -> Result<(), Problem> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::INDEX, [map, name]) | (operators::IN, [name, map]) => {
                if let Some(name) = literal_text(name)
                    && self.looks_up(map, name)?
                {
                    return Ok(());
                }
            }
            (operators::ADD, _) => {
                self.joins += 1;
                if self.joins > EXPRESSION_JOINS_MAX {
                    let message = format!("the expression has more than {EXPRESSION_JOINS_MAX} additions");
                    return Err(Problem::new(message, "use several parts in the key, or several rules"));
                }
            }
            ("matches", _) => self.compile_regex(call)?,
            (name, _) if is_allowed(name) => (),
            (name, _) => return Err(Problem::new(format!("unknown function `{}`", quote(name)), FUNCTIONS)),
        }
        let target = call.target.as_deref_mut().into_iter();
        target.chain(&mut call.args).try_for_each(|argument| self.walk(argument, depth))
    }

    /// Turns `text.matches('a+')` into `matches0(text)`: a regular expression is compiled once, and never from a request.
    fn compile_regex(&mut self, call: &mut CallExpr) -> Result<(), Problem> {
        const HINT: &str = "write it like request.path.matches('^/v[0-9]+/')";
        let text = match (call.target.take(), call.args.len()) {
            (Some(target), 1) => *target,
            (None, 2) => call.args.remove(0),
            _ => return Err(Problem::new("matches: wrong number of arguments", HINT)),
        };
        let pattern = call.args.first().and_then(literal_text);
        let pattern = pattern.ok_or_else(|| Problem::new("matches: the regular expression must be a literal", HINT))?;
        let regex = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX).build();
        let regex = regex.map_err(|error| {
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Problem::new(format!("matches: cannot use `{}`: {last}", quote(pattern)), HINT)
        })?;
        call.func_name = format!("matches{}", self.regexes.0.len());
        call.args = vec![text];
        self.regexes.0.push((call.func_name.clone(), regex));
        Ok(())
    }
}

fn not_allowed(what: &str) -> Problem {
    Problem::new(format!("{what} is not allowed in an expression"), FUNCTIONS)
}

fn literal_text(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn is_allowed(function: &str) -> bool {
    const OPERATORS: [&str; 17] = [
        operators::CONDITIONAL,
        operators::LOGICAL_AND,
        operators::LOGICAL_OR,
        operators::LOGICAL_NOT,
        operators::SUBSTRACT,
        operators::MULTIPLY,
        operators::DIVIDE,
        operators::MODULO,
        operators::EQUALS,
        operators::NOT_EQUALS,
        operators::GREATER_EQUALS,
        operators::LESS_EQUALS,
        operators::GREATER,
        operators::LESS,
        operators::NEGATE,
        operators::INDEX,
        operators::IN,
    ];
    const NAMED: [&str; 9] = ["size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string", "bool"];
    OPERATORS.contains(&function) || NAMED.contains(&function)
}
