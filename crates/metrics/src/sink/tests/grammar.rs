//! A strict reader of Prometheus's text format, version 0.0.4.

use std::collections::{HashMap, HashSet};

/// Parses the samples of a text, keyed by name and labels as written.
///
/// # Panics
/// If the text violates the format: a line that is not a sample, `# TYPE` or `# HELP`; an invalid
/// name or label; a second `# TYPE` or a second sample with the same labels; samples of a name that
/// do not follow its `# TYPE`.
pub fn samples(text: &str) -> HashMap<String, f64> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line must end");
    let (mut found, mut typed, mut helped) = (HashMap::new(), HashSet::new(), HashSet::new());
    let mut current = "";
    for line in text.split_terminator('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap_or_else(|| panic!("no text: {line}"));
            assert!(is_name(name) && !text.is_empty() && helped.insert(name), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
            assert!(matches!(kind, "counter" | "gauge") && is_name(name), "{line}");
            assert!(typed.insert(name), "a second type: {line}");
            current = name;
        } else {
            let (key, value) = sample(line);
            assert!(line.starts_with(current) && line[current.len()..].starts_with('{'), "{line}");
            assert!(found.insert(key, value).is_none(), "a second sample: {line}");
        }
    }
    found
}

fn is_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

fn sample(line: &str) -> (String, f64) {
    let (name, mut rest) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
    assert!(is_name(name), "{line}");
    let mut labels = HashSet::new();
    while !rest.starts_with('}') {
        let (label, quoted) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(is_name(label) && labels.insert(label), "{line}");
        rest = after_value(quoted);
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let value = rest.strip_prefix("} ").unwrap_or_else(|| panic!("no value: {line}"));
    let key = line[..line.len() - value.len()].trim_end().to_owned();
    (key, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
}

/// Returns the text after the quote that ends a label's value.
fn after_value(text: &str) -> &str {
    let mut chars = text.chars();
    loop {
        match chars.next().expect("the value ends") {
            '"' => return chars.as_str(),
            '\\' => assert!(matches!(chars.next(), Some('\\' | '"' | 'n')), "{text}"),
            _ => {}
        }
    }
}
