//! The span of whoever asks, from the `traceparent` of W3C Trace Context: the span of a decision is its child.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

/// Its header in HTTP, and its metadata in gRPC.
pub(crate) const HEADER: &str = "traceparent";

/// The caller's span; none if it cannot be read, and then a new trace begins, as the standard asks for.
pub(crate) fn parse(text: &[u8]) -> Option<Context> {
    let mut parts = std::str::from_utf8(text).ok()?.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Later versions may say more behind that.
    let is_known = version == "00" && parts.next().is_none() || version != "00" && version != "ff";
    if !is_known || !is_hex(version, 2) || !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let parent = SpanContext::new(trace, span, flags, true, TraceState::default());
    parent.is_valid().then(|| Context::new().with_remote_span_context(parent))
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let span = "b7ad6b7169203331";
        for (text, is_sampled) in [
            (format!("00-{trace}-{span}-01"), true),
            (format!("00-{trace}-{span}-00"), false),
            (format!("00-{trace}-{span}-03"), true),
            (format!("cc-{trace}-{span}-01"), true),
            (format!("cc-{trace}-{span}-01-more"), true),
        ] {
            let parent = parse(text.as_bytes()).unwrap();
            let parent = parent.span().span_context().clone();
            assert_eq!(parent.trace_id().to_string(), trace, "{text}");
            assert_eq!(parent.span_id().to_string(), span, "{text}");
            assert_eq!((parent.is_sampled(), parent.is_remote()), (is_sampled, true), "{text}");
        }
    }

    #[test]
    fn what_cannot() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("00-{trace}-b7ad6b7169203331-01-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("0-{trace}-b7ad6b7169203331-01"),
            format!("00-{zeros}-b7ad6b7169203331-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{trace}-b7ad6b716920333-01"),
            format!("00-{trace}-b7ad6b7169203331-1"),
            format!("00-{trace}-+7ad6b7169203331-01"),
            "é".repeat(55),
        ] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(parse(&[0xff; 55]).is_none());
    }
}
