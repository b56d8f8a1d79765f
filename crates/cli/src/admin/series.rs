//! The lines of `/metrics`, in the text format of Prometheus.

use std::collections::BTreeMap;

/// A line: a name, labels and a value.
#[derive(Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Series {
    /// Returns the value of a label; empty if there is no such label.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Reads all lines with these names. Lines that cannot be read are left out.
pub(super) fn read(page: &str, names: &[&str]) -> Vec<Series> {
    let is_wanted =
        |line: &&str| names.iter().any(|name| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    page.lines().filter(is_wanted).filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<Series> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while let Some((label, tail)) = rest.split_once("=\"") {
            let (value, tail) = quoted(tail)?;
            labels.insert(label.trim_start_matches(',').to_owned(), value);
            rest = tail;
            if let Some(tail) = rest.strip_prefix('}') {
                rest = tail;
                break;
            }
        }
    }
    Some(Series { name: name.to_owned(), labels, value: rest.trim().parse().ok()? })
}

/// Reads the value of a label up to its closing quote. Returns the text after that too.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[place + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let page = "# HELP a Something.\na 1\na{x=\"1\",y=\"} \\\"\\\\\\n,z=\\\"\"} 2.5\nab 3\nb{x=\"\"} 4\na{x=\"\n";
        let read = read(page, &["a", "b"]);
        let told: Vec<(&str, &str, &str, f64)> =
            read.iter().map(|one| (&*one.name, one.label("x"), one.label("y"), one.value)).collect();
        assert_eq!(told, [("a", "", "", 1.0), ("a", "1", "} \"\\\n,z=\"", 2.5), ("b", "", "", 4.0)]);
    }
}
