//! What comes out of an expression, as far as it can be told without a request: enough to refuse `count: request.path`.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

use super::{Problem, Purpose};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flag,
    Whole,
    Text,
    Other,
}

/// Refuses what cannot be of use to the purpose.
pub(super) fn check(root: &IdedExpr, purpose: Purpose) -> Result<(), Problem> {
    let Some(kind) = kind(root) else { return Ok(()) };
    let (wanted, hint): (&[Kind], &str) = match purpose {
        Purpose::When => (&[Kind::Flag], "make it true or false, like request.method == \"POST\""),
        Purpose::Key => (&[Kind::Flag, Kind::Whole, Kind::Text], "make it a text, a whole number, or true or false"),
        Purpose::Cost => (&[Kind::Whole], "make it a whole number, like cost * 10"),
        Purpose::Count => (&[Kind::Flag, Kind::Whole], "make it true or false, or a whole number of units"),
    };
    let given = match kind {
        Kind::Flag => "true or false",
        Kind::Whole => "a whole number",
        Kind::Text => "a text",
        Kind::Other => "no simple value",
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
