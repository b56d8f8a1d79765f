//! A configuration written as YAML loads as the same again, and no text makes loading panic.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_policy::{LoadOptions as Options, load_text, migrate};

/// Text of all kinds that YAML could mistake for something else.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "[a-z0-9._*/:# -]{1,12}",
        "\\PC{1,8}",
        Just("true".to_owned()),
        Just("007".to_owned()),
        Just("1e3".to_owned()),
        Just("0x10".to_owned()),
        Just("1.5".to_owned()),
        Just("null".to_owned()),
        Just("~".to_owned()),
        Just("a\nb".to_owned()),
        Just(" x ".to_owned()),
        Just("- x".to_owned()),
        Just("yes".to_owned()),
        Just("<<".to_owned()),
        Just("2020-01-01".to_owned()),
    ]
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// One descriptor, as one of that project's files has it.
fn descriptor(depth: u32) -> BoxedStrategy<String> {
    let children: BoxedStrategy<Vec<String>> =
        if depth == 0 { Just(Vec::new()).boxed() } else { vec(descriptor(depth - 1), 0..3).boxed() };
    let units = prop_oneof![Just("second"), Just("Week"), Just("YEAR")];
    (text(), proptest::option::of(text()), units, 0_u32..5, any::<[bool; 5]>(), text(), children)
        .prop_map(|(key, value, unit, requests, [limited, shadow, detailed, unlimited, quota], name, children)| {
            let value = value.map(|value| format!(", value: {}", quoted(&value))).unwrap_or_default();
            let name = quoted(&name);
            let limit = match (limited, unlimited) {
                (false, _) => "".to_owned(),
                (true, true) => format!(", rate_limit: {{unlimited: true, name: {name}}}"),
                (true, false) => {
                    format!(", rate_limit: {{unit: {unit}, requests_per_unit: {requests}, name: {name}}}")
                }
            };
            format!(
                "{{key: {}{value}{limit}, shadow_mode: {shadow}, detailed_metric: {detailed}, quota_mode: {quota}, metadata: {{x: {name}}}, descriptors: [{}]}}",
                quoted(&key),
                children.join(", ")
            )
        })
        .boxed()
}

proptest! {
    #[test]
    fn envoys_files_become_native_ones_of_the_same_meaning(
        domain in text(),
        descriptors in vec(descriptor(2), 0..5),
    ) {
        let text = format!("{{domain: {}, descriptors: [{}]}}", quoted(&domain), descriptors.join(", "));
        let first = load_text("envoy.yaml", &text, &Options::default());
        let yaml = migrate::to_yaml(&first.config);
        let second = load_text("native.yaml", &yaml, &Options::default());
        let errors: Vec<String> = second.diagnostics.iter().map(ToString::to_string).collect();
        prop_assert_eq!(&second.config, &migrate::to_native(&first.config), "{}\n{}\n{:?}", text, yaml, errors);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,40}|[-a:{}\\[\\]&*!|>'\"\n\t #,?]{0,60}") {
        let _ = load_text("x", &text, &Options::default());
    }

    #[test]
    fn no_tree_makes_it_panic(values in vec(text(), 8)) {
        let [a, b, c, d, e, f, g, h] = <[String; 8]>::try_from(values).unwrap();
        let native = format!("domains: {{{a}: {{rules: [{{name: {b}, {c}: {d}, limit: {{{e}: {f}}}, key: [{g}, {{{h}: {a}}}]}}]}}}}");
        let _ = load_text("x", &native, &Options::default());
        let envoys = format!("domain: {a}\ndescriptors: [{{key: {b}, {c}: {d}, rate_limit: {{{e}: {f}, unit: {g}, replaces: [{h}]}}}}]");
        let _ = load_text("x", &envoys, &Options::default());
    }
}
