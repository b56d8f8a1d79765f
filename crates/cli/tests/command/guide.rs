//! The guide under docs/ says what is so: what is made from the code is up to date, and links lead somewhere. That its
//! commands print what it shows is tested with the peers that they need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_testkit::repository::root;

use super::run;

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/src").join(name)).unwrap()
}

/// The pages of the guide and those around it.
fn pages() -> Vec<PathBuf> {
    let guide = fs::read_dir(root().join("docs/src")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = guide.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    pages.sort();
    pages
}

fn check_generated(name: &str, arguments: &[&str]) {
    let output = run(arguments);
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let command = format!("cargo run -p tidegate-cli -- {} > docs/src/{name}", arguments.join(" "));
    assert!(page(name) == printed, "docs/src/{name} is out of date; update it: {command}");
}

#[test]
fn the_reference_is_that_of_the_schema() {
    check_generated("reference.md", &["schema", "--markdown"]);
    check_generated("tidegate.schema.json", &["schema"]);
}

/// Words of a text that begin so, of small letters, digits and `_`.
fn words<'a>(text: &'a str, starts: &[&str]) -> BTreeSet<&'a str> {
    let all = text.split(|letter: char| !letter.is_ascii_lowercase() && !letter.is_ascii_digit() && letter != '_');
    all.filter(|word| starts.iter().any(|start| word.starts_with(start))).collect()
}

#[test]
fn every_metric_stands_on_its_page_and_no_other() {
    let code = fs::read_to_string(root().join("crates/server/src/http/metrics.rs")).unwrap();
    let literals: String = code.split('"').skip(1).step_by(2).map(|literal| format!("{literal} ")).collect();
    let starts = ["tidegate_", "ratelimit_"];
    let in_code = words(&literals, &starts);
    assert!(in_code.len() > 20, "{in_code:?}");
    let page = page("metrics.md");
    // Prometheus asks for the parts of a histogram by names of their own.
    let on_page = words(&page, &starts).into_iter().map(|word| word.strip_suffix("_bucket").unwrap_or(word));
    assert_eq!(on_page.collect::<BTreeSet<_>>(), in_code);
}

#[test]
fn every_alert_asks_for_metrics_that_exist_and_leads_to_the_runbook() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (alerts, runbook, known) = (read("packaging/alerts.yaml"), read("packaging/runbook.md"), page("metrics.md"));
    let known = words(&known, &["tidegate_"]);
    let dashboard = read("packaging/grafana-dashboard.json");
    for metric in words(&alerts, &["tidegate_"]).into_iter().chain(words(&dashboard, &["tidegate_"])) {
        assert!(
            known.contains(metric.strip_suffix("_bucket").unwrap_or(metric)),
            "docs/src/metrics.md does not list {metric}"
        );
    }
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    let links: Vec<&str> =
        alerts.lines().filter_map(|line| line.split_once("runbook.md#")).map(|link| link.1).collect();
    assert!(names.len() > 10 && names.len() == links.len(), "{names:?} {links:?}");
    let anchors = anchors(&runbook);
    for (name, link) in names.into_iter().zip(links) {
        let is_named = runbook.contains(&format!("`{name}`"));
        assert!(anchors.contains(link) && is_named, "packaging/runbook.md does not explain {name} at #{link}");
    }
}

#[test]
fn every_flag_of_serve_stands_on_a_page() {
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let flags: Vec<&str> = flags.map(|flag| flag.split(' ').next().unwrap()).collect();
    assert!(flags.len() > 15, "{flags:?}");
    let operating = page("operating.md");
    for flag in flags {
        assert!(operating.contains(&format!("`--{flag}")), "docs/src/operating.md does not list --{flag}");
    }
}

#[test]
fn every_page_stands_in_the_summary() {
    let summary = page("SUMMARY.md");
    for path in pages().iter().filter(|path| path.parent().unwrap().ends_with("docs/src")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "SUMMARY.md does not link {name}");
    }
}

/// The targets of all links of a page, outside of code.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        // Odd parts of a line stand between backticks, which are code too; a link around code is in even ones.
        let plain = line.split('`').step_by(2).filter(|_| !code);
        links.extend(plain.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next()));
    }
    links
}

/// What a heading is linked by, as GitHub and mdBook make it.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let letter = |letter: char| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || letter == '-' || letter == '_' => Some(letter.to_ascii_lowercase()),
        _ => None,
    };
    headings.map(|heading| heading.chars().filter_map(letter).collect()).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut lost = Vec::new();
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let found = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                Err(_) => target.is_dir() && anchor.is_empty(),
            };
            if !found {
                lost.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(lost.is_empty(), "broken links:\n{}", lost.join("\n"));
}

/// All files and folders below one, as documents name them: without the `src` of each crate, folders with a slash behind.
fn names_below(folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("/{}", path.strip_prefix(root()).unwrap().display()).replace("/src/", "/");
        if path.is_dir() {
            names.push(format!("{}/", name.strip_suffix("/src").unwrap_or(&name)));
            names_below(&path, names);
        } else {
            names.push(name);
        }
    }
}

#[test]
fn every_file_that_is_named_is_there() {
    let mut names = Vec::new();
    for folder in ["crates", "docs", "examples", "packaging", "spec"] {
        names.push(format!("/{folder}/"));
        names_below(&root().join(folder), &mut names);
    }
    let decisions = fs::read_dir(root().join("docs/decisions")).unwrap().map(|entry| entry.unwrap().path());
    let mut lost = Vec::new();
    for path in ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into_iter().chain(decisions) {
        let text = fs::read_to_string(&path).unwrap();
        let named = text.split('`').skip(1).step_by(2).filter(|code| !code.contains(char::is_whitespace));
        for file in named.filter(|code| code.ends_with(".rs") || code.ends_with('/')) {
            let end = format!("/{file}").replace("/src/", "/");
            if !names.iter().any(|name| name.ends_with(&end)) {
                lost.push(format!("{}: {file}", path.display()));
            }
        }
    }
    assert!(lost.is_empty(), "named files that do not exist:\n{}", lost.join("\n"));
}
