//! `/v1/check`: may it pass?

use http::StatusCode;
use tidegate_core::{Op, Time};

use super::answer::{Answered, Failure, Reply, forbid_caching};
use super::asked::{Asked, Inline, Subject};
use super::body::{list, utf8};
use super::query::Query;
use super::told;
use crate::bounds::CHECKS_MAX;
use crate::protocol::Via;
use crate::service::Service;

const LIST_EXAMPLE: &str = r#"[{"key":"user:42","limit":"10/second"},{"key":"user:42","limit":"1000/day"}]"#;

/// One check, or a list of checks that pass together or not at all.
pub(super) async fn post(service: &Service, via: Via<'_>, body: &[u8]) -> Answered {
    let text = utf8(body)?.trim_ascii_start();
    if text.starts_with('[') {
        return Box::pin(several(service, via, text)).await;
    }
    match Asked::parse(text)? {
        Asked::Rules(subject) => by_rules(service, via, &subject).await,
        Asked::Inline(inline) => by_own_limit(service, via, &inline).await,
    }
}

/// A check in a query.
pub(super) async fn get(service: &Service, via: Via<'_>, query: Option<&str>) -> Answered {
    by_own_limit(service, via, &Inline::of_query(Query::parse(query)?)?).await
}

async fn by_rules(service: &Service, via: Via<'_>, subject: &Subject<'_>) -> Answered {
    let entries = subject.entries();
    let descriptors = subject.descriptors(&entries);
    let described = subject.http();
    let http = described.as_ref().map(|(http, address)| http.http(*address));
    let checked = service.check_known(via, &subject.request(&descriptors, http.as_ref())).await?;
    let outcome = checked.ok_or_else(|| unknown_domain(&subject.domain))?;
    Ok(told::outcome(&outcome, service.engine.clock().now()))
}

/// Rules that are asked for and not there are a mistake that would pass unnoticed.
pub(super) fn unknown_domain(domain: &str) -> Failure {
    let detail =
        format!("domain: there are no rules for `{}`; GET /v1/rules lists all rules", super::answer::quote(domain));
    Failure::new(StatusCode::NOT_FOUND, detail)
}

async fn by_own_limit(service: &Service, via: Via<'_>, inline: &Inline<'_>) -> Answered {
    if let Some(wait) = inline.wait {
        // Boxed: what is rare needs no room in every request.
        let shaped = service.shape(via, inline.key.as_bytes(), inline.named_limit(), inline.cost, wait);
        return Ok(told::shaped(inline, &Box::pin(shaped).await?, now(service)));
    }
    let decision = service.decide(via, inline.key.as_bytes(), inline.named_limit(), inline.cost).await?;
    Ok(told::decision(inline, &decision, now(service)))
}

/// Several keys under their own limits: all of them are charged, or none.
async fn several(service: &Service, via: Via<'_>, text: &str) -> Answered {
    let items = list("body", text, LIST_EXAMPLE)?;
    if !(1..=CHECKS_MAX).contains(&items.len()) {
        let problem = format_args!("{} checks in the list", items.len());
        return Err(Failure::bad("body", problem, format_args!("send 1 to {CHECKS_MAX}")));
    }
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        match Asked::parse(item.get())? {
            Asked::Inline(Inline { wait: Some(_), .. }) => {
                return Err(Failure::bad("wait", "not allowed in a list of checks", "send this check alone"));
            }
            Asked::Inline(inline) => all.push(inline),
            Asked::Rules(_) => {
                let remedy = "send the descriptors of one request in one check: they pass together or not at all";
                return Err(Failure::bad("domain", "not allowed in a list of checks", remedy));
            }
        }
    }
    let charges: Vec<_> =
        all.iter().map(|inline| (inline.key.as_bytes(), inline.limit, Op::Take(inline.cost))).collect();
    let decisions = service.decide_all(via, &charges, || all.iter().map(Inline::charge).collect()).await?;
    Ok(told::decisions(&all, &decisions, now(service)))
}

/// An answer that holds for this request alone.
pub(super) fn once(mut reply: Reply) -> Reply {
    forbid_caching(&mut reply);
    reply
}

fn now(service: &Service) -> Time {
    service.engine.clock().now()
}
