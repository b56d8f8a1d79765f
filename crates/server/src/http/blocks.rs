//! Blocks and penalties in force: their keys, origin and end.

use std::sync::Arc;

use serde::Serialize;
use tidegate_engine::{BlockKind, BlockView, BlocksAnswer, Operator};
use tidegate_policy::ShownPart;
use tidegate_policy::json::escape_unseen;

use super::admin::rfc3339;
use super::answer::{Answered, Failure};
use super::pages::aside;
use super::query::Query;
use super::told::nanos;
use super::top::{NodeBody, RulesAsked, rules_asked, shown};
use crate::service::Service;

#[derive(Serialize)]
struct BlocksBody {
    as_of_ms: u64,
    nodes: Vec<NodeBody>,
    blocks: Vec<BlockBody>,
    left_out: usize,
    /// Blocks that this node set and has no room to list.
    unlisted: u64,
}

#[derive(Serialize)]
struct BlockBody {
    domain: Box<str>,
    rule: Box<str>,
    key: Vec<ShownPart>,
    set_by: BlockKind,
    /// The operator that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<Operator>,
    /// The node that set it, if known.
    node: Option<Arc<str>>,
    since: String,
    until: String,
    left_ns: u64,
}

/// Answers with the blocks and penalties in force.
pub(super) async fn get(service: &Arc<Service>, query: Option<&str>) -> Answered {
    let RulesAsked { domain, rule } = read(service, query)?;
    let written = aside(service, move |service| {
        let answer = service.engine.blocks(domain.as_deref(), rule.as_deref());
        // Numbers and text always are JSON.
        escape_unseen(serde_json::to_string(&body_of(answer)).unwrap_or_default())
    });
    shown(written.await)
}

/// Reads which rules a query asks for.
fn read(service: &Service, query: Option<&str>) -> Result<RulesAsked, Failure> {
    let mut query = Query::parse(query)?;
    let asked = rules_asked(service, &mut query)?;
    query.finish()?;
    Ok(asked)
}

fn body_of(answer: BlocksAnswer) -> BlocksBody {
    let as_of = answer.nodes.iter().map(|node| node.age).max().unwrap_or_default();
    BlocksBody {
        as_of_ms: nanos(as_of) / 1_000_000,
        nodes: answer.nodes.into_iter().map(NodeBody::from).collect(),
        blocks: answer.blocks.into_iter().map(block_body).collect(),
        left_out: answer.left_out,
        unlisted: answer.unlisted,
    }
}

fn block_body(block: BlockView) -> BlockBody {
    let BlockView { domain, rule, key, kind, operator, node, since, until, left, .. } = block;
    let (since, until, left_ns) = (rfc3339(since), rfc3339(until), nanos(left));
    BlockBody { domain, rule, key, set_by: kind, operator, node, since, until, left_ns }
}
