//! Compares the lists in docs/operating with the commands and attributes that the shell has.

use std::collections::BTreeMap;
use std::path::Path;

use super::schema::attributes;
use super::{GROUPS, all, unsupported};

fn page(name: &str) -> String {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating");
    std::fs::read_to_string(pages.join(name)).expect("a page")
}

/// Returns the rows of the first table below a heading, without its two lines of titles.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let table =
        below.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let line = line.trim_matches('|');
        line.split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    table.skip(2).map(cells).collect()
}

/// Returns the verdict on each name, which may be there once.
fn verdicts(listed: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let mut verdicts = BTreeMap::new();
    for (name, verdict) in listed {
        assert!(verdicts.insert(name.clone(), verdict).is_none(), "{name} is listed twice");
    }
    verdicts
}

/// The names of a group's commands, whether they are supported or not.
fn of_group(group: &str) -> Vec<String> {
    let supported = GROUPS.iter().filter(|known| known.name == group).flat_map(|known| known.all());
    let supported = supported.map(|command| command.name);
    let refused = unsupported::GROUPS.iter().filter(|(name, _)| *name == group);
    let refused = refused.flat_map(|(_, names)| names.iter().copied());
    supported.chain(refused).map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_verdict() {
    let mut listed = Vec::new();
    let mut group = String::new();
    for row in rows(&page("shell.md"), "Commands") {
        let [named, commands, verdict] = &row[..] else { panic!("{row:?}") };
        if !named.is_empty() {
            group.clone_from(named);
        }
        let names: Vec<String> = match &**commands {
            "all" => group.split(", ").flat_map(of_group).collect(),
            commands => commands.split(", ").map(|name| name.replace("\\*", "")).collect(),
        };
        assert!(!names.is_empty(), "{row:?}");
        listed.extend(names.into_iter().map(|name| (name, verdict.clone())));
    }
    let mut verdicts = verdicts(listed.into_iter());
    let aliases = all().flat_map(|command| command.aliases).copied();
    for name in all().map(|command| command.name).filter(|name| *name != "help").chain(aliases) {
        let verdict = verdicts.remove(name).unwrap_or_else(|| panic!("{name} is in no row"));
        assert!(!verdict.starts_with("refused"), "{name} is supported");
    }
    for name in unsupported::GROUPS.iter().flat_map(|(_, names)| *names) {
        let verdict = verdicts.remove(*name).unwrap_or_else(|| panic!("{name} is in no row"));
        assert!(verdict.starts_with("refused"), "{name} is not supported");
    }
    assert_eq!(verdicts, BTreeMap::new(), "the shell does not know them");
}

#[test]
fn every_attribute_has_a_verdict() {
    let mut listed = Vec::new();
    for row in rows(&page("compatibility.md"), "Attributes of tables and families") {
        let [names, verdict] = &row[..] else { panic!("{row:?}") };
        let is_verdict = ["same", "differs: ", "refused: "].iter().any(|kind| verdict.starts_with(kind));
        assert!(is_verdict, "{verdict}");
        listed.extend(names.split(", ").map(|name| (name.trim_matches('`').to_owned(), verdict.clone())));
    }
    let mut verdicts = verdicts(listed.into_iter());
    for name in attributes() {
        assert!(verdicts.remove(name).is_some(), "{name} is in no row");
    }
    let set_by_clients_only = ["ENCRYPTION", "ENCRYPTION_KEY"];
    assert!(verdicts.keys().eq(set_by_clients_only), "{verdicts:?}");
}
