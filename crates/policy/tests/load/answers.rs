//! The rules of Envoy's files are found as the reference server finds them: held against a literal walk of the tree.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_policy::{Entry, FoundRules, KeyMade, LoadOptions, Policy, Question, load_text};

/// A descriptor of a file.
#[derive(Clone, Debug)]
struct Node {
    key: &'static str,
    value: &'static str,
    limited: bool,
    shared: bool,
    children: Vec<Node>,
}

const KEYS: [&str; 3] = ["a", "b", "a_x"];
const VALUES: [&str; 8] = ["", "x", "xy", "x*", "*y", "*", "x*y", "y"];
const ASKED: [&str; 7] = ["", "x", "xy", "xzy", "y", "z", "x*"];

fn nodes(depth: u32) -> BoxedStrategy<Vec<Node>> {
    let children = if depth == 0 { Just(Vec::new()).boxed() } else { nodes(depth - 1) };
    let flags = (any::<bool>(), any::<bool>());
    let node = (prop::sample::select(&KEYS), prop::sample::select(&VALUES), flags, children).prop_map(
        |(key, value, (limited, shared), children)| Node {
            key,
            value,
            limited,
            shared: shared && value.contains('*'),
            children,
        },
    );
    vec(node, 0..6)
        .prop_map(|nodes: Vec<Node>| {
            let mut unique: Vec<Node> = Vec::new();
            for node in nodes {
                if !unique.iter().any(|other| (other.key, other.value) == (node.key, node.value)) {
                    unique.push(node);
                }
            }
            unique
        })
        .boxed()
}

fn yaml(nodes: &[Node]) -> String {
    let one = |node: &Node| {
        let limit = if node.limited { ", rate_limit: {unit: hour, requests_per_unit: 5}" } else { "" };
        let shared = if node.shared { ", share_threshold: true" } else { "" };
        let (key, value) = (node.key, node.value);
        format!("{{key: {key}, value: '{value}'{limit}{shared}, descriptors: {}}}", yaml(&node.children))
    };
    format!("[{}]", nodes.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Whether a value is like a pattern, the slow way.
fn like(pattern: &str, value: &str) -> bool {
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('*') => (0..=value.len()).any(|cut| value.is_char_boundary(cut) && like(&pattern[1..], &value[cut..])),
        Some(first) => value.strip_prefix(first).is_some_and(|rest| like(&pattern[first.len_utf8()..], rest)),
    }
}

/// The way to the limit that applies, and what is counted apart under it.
fn walk<'a>(nodes: &'a [Node], entries: &[(&str, &str)]) -> Option<(Vec<&'a Node>, Vec<String>)> {
    let ((key, value), rest) = entries.split_first().map(|(first, rest)| (*first, rest))?;
    let of_key = || nodes.iter().filter(|node| node.key == key);
    let exact = of_key().find(|node| !node.value.is_empty() && !node.value.contains('*') && node.value == value);
    let wildcard = || of_key().find(|node| node.value.contains('*') && like(node.value, value));
    let bare = || of_key().find(|node| node.value.is_empty());
    let node = exact.or_else(wildcard).or_else(bare)?;
    let counted = if node.shared { format!("={}", node.value) } else { value.to_owned() };
    let (mut way, mut counts) = match rest {
        [] => (node.limited.then(Vec::new)?, Vec::new()),
        rest => walk(&node.children, rest)?,
    };
    way.insert(0, node);
    counts.insert(0, counted);
    Some((way, counts))
}

/// The rule that is found, and its key for these entries.
fn find(policy: &Policy, entries: &[(&str, &str)]) -> Option<(usize, Vec<u8>)> {
    let entries: Vec<Entry<'_>> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
    let question = Question { domain: "edge", entries: &entries, http: None, cost: 1 };
    let mut found = FoundRules::new();
    policy.find(policy.domain("edge").unwrap(), &question, &mut found);
    assert!(found.len() <= 1, "{entries:?} {found:?}");
    let rule = *found.first()?;
    let mut key = Vec::new();
    assert_eq!(policy.rules()[rule.index()].key(&question, &mut key), KeyMade::Whole);
    Some((rule.index(), key))
}

fn asked() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    vec((prop::sample::select(&KEYS), prop::sample::select(&ASKED)), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn one_rule_or_none_as_the_tree_has_it(tree in nodes(2), questions in vec(asked(), 12)) {
        let text = format!("{{domain: edge, descriptors: {}}}", yaml(&tree));
        let loaded = load_text("envoy.yaml", &text, &LoadOptions::default());
        let policy = loaded.policy.ok_or_else(|| TestCaseError::fail(format!("{:?}", loaded.diagnostics)))?;
        let mut answers = Vec::new();
        for entries in &questions {
            let (expected, found) = (walk(&tree, entries), find(&policy, entries));
            prop_assert_eq!(expected.is_some(), found.is_some(), "{:?} in {}", entries, text);
            answers.extend(expected.zip(found));
        }
        // Two questions share a count if and only if they go the same way and nothing on it tells them apart.
        for ((way, counts), (rule, key)) in &answers {
            for ((other_way, other_counts), (other_rule, other_key)) in &answers {
                let same_way = way.len() == other_way.len() && way.iter().zip(other_way).all(|(a, b)| std::ptr::eq(*a, *b));
                prop_assert_eq!(same_way, rule == other_rule);
                prop_assert_eq!(same_way && counts == other_counts, rule == other_rule && key == other_key);
            }
        }
    }
}
