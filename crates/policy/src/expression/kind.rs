//! The type of the result of an expression, as far as known without a request: enough to refuse `count: request.path`.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

use super::{Problem, Purpose};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flag,
    Whole,
    Text,
    Other,
}

/// Refuses a result that the field cannot use.
pub(super) fn check(root: &IdedExpr, purpose: Purpose) -> Result<(), Problem> {
    let Some(kind) = kind(root) else { return Ok(()) };
    let (wanted, hint): (&[Kind], &str) = match purpose {
        Purpose::When => (&[Kind::Flag], "write one that gives true or false, like request.method == \"POST\""),
        Purpose::Key => {
            (&[Kind::Flag, Kind::Whole, Kind::Text], "write one that gives text, a whole number, or true or false")
        }
        Purpose::Cost => (&[Kind::Whole], "write one that gives a whole number, like cost * 10"),
        Purpose::Count => (&[Kind::Flag, Kind::Whole], "write one that gives true or false, or a whole number"),
    };
    let given = match kind {
        Kind::Flag => "true or false",
        Kind::Whole => "a whole number",
        Kind::Text => "text",
        Kind::Other => "a value that is no text, whole number, or true or false",
    };
    match wanted.contains(&kind) {
        true => Ok(()),
        false => Err(Problem::new(format!("the expression gives {given}"), hint)),
    }
}

fn kind(node: &IdedExpr) -> Option<Kind> {
    match &node.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Kind::Flag),
        Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_)) => Some(Kind::Whole),
        Expr::Literal(LiteralValue::String(_)) => Some(Kind::Text),
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => Some(Kind::Other),
        Expr::Ident(name) => Some(match name.as_str() {
            "cost" => Kind::Whole,
            "domain" => Kind::Text,
            _ => Kind::Other,
        }),
        Expr::Select(select) if select.test => Some(Kind::Flag),
        Expr::Select(select) => Some(match (&select.operand.expr, select.field.as_str()) {
            (Expr::Ident(name), "query" | "headers" | "cookies") if name == "request" => Kind::Other,
            (Expr::Ident(name), _) if name == "response" => Kind::Whole,
            (Expr::Map(_), _) => return None,
            _ => Kind::Text,
        }),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [_, yes, no]) => kind(yes).filter(|yes| kind(no) == Some(*yes)),
            (operators::INDEX, _) => None,
            (operators::ADD | operators::SUBSTRACT | operators::MULTIPLY, [left, right]) => {
                kind(left).filter(|left| kind(right) == Some(*left))
            }
            (operators::DIVIDE | operators::MODULO | operators::NEGATE, [first, ..]) => kind(first),
            ("size" | "int" | "uint", _) => Some(Kind::Whole),
            ("string", _) => Some(Kind::Text),
            ("double", _) => Some(Kind::Other),
            _ => Some(Kind::Flag),
        },
        _ => None,
    }
}
