//! The traces of the specification, through the built command.

use serde_json::Value;

#[test]
fn every_trace_is_answered_as_the_specification_says() {
    let mut lines = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let trace = std::fs::read_to_string(&path).unwrap();
        let steps: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let input: String = steps.iter().map(|step| format!("{}\n", step["in"])).collect();
        let answers = super::decide(input.as_bytes());
        assert_eq!(answers.len(), steps.len(), "{}", path.display());
        for (step, answer) in steps.iter().zip(answers) {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer, step["out"], "{}: {}", path.display(), step["in"]);
            lines += 1;
        }
    }
    assert!(lines > 400, "{lines} lines");
}
