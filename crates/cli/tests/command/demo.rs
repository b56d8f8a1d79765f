//! What the demo shows, apart from the speed.

use insta::assert_snapshot;

use super::run;

#[test]
fn it_shows_the_same_each_time() {
    let output = run(&["demo", "--fast"]);
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
    let shown = String::from_utf8(output.stdout).unwrap();
    let without_speed: Vec<&str> = shown
        .lines()
        .map(|line| if line.contains("checks per second") { "   (the speed)" } else { line.trim_end() })
        .collect();
    assert_snapshot!(without_speed.join("\n"));
}
