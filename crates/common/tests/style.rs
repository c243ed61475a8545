//! Rules of style that can be checked by machine, on the sources of the whole workspace and on its
//! Markdown pages.
//!
//! * Comment lines are at most [`WIDTH_MAX`] columns wide.
//! * Comments, pages and the strings of sources avoid [`PHRASES`], and sentences that begin with
//!   [`BEGINNINGS`].
//! * A table of modules or files and their contents in a header names exactly the modules that the
//!   file declares.
//! * Below `src`, modules are `foo.rs` beside `foo/`, not `foo/mod.rs`.
//! * No type has one of [`VAGUE_NAMES`].
//! * Each crate's root has the lints of [`LINTS`], except the crates that are named there.
//! * The table of threads in `common/src/runtime/thread.rs` names exactly the threads that are
//!   started, and the files that start them.
//! * Pages name files, functions of files (`file.rs::function`) and headings that exist, except
//!   [`PAST_PAGES`].

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const WIDTH_MAX: usize = 100;
/// Words that have a plainer or more exact replacement.
const PHRASES: [&str; 7] = ["anew", "is to be", "are to be", "so many", "so often", "by turns", "told apart"];
/// Beginnings of sentences that put the subject last.
const BEGINNINGS: [&str; 2] = ["Of ", "Who "];
/// Names that several types of different meaning had.
const VAGUE_NAMES: [&str; 10] =
    ["Place", "Run", "Kind", "Waiting", "Stuff", "Answer", "Failure", "Held", "Life", "World"];

/// What the root of each crate says outside tests, and the crates that do not: why.
const LINTS: [(&str, &[&str]); 5] = [
    // These map memory, hold arenas or call the kernel.
    ("forbid(unsafe_code)", &["block-cache", "common", "fs", "hfile", "region"]),
    // Counters index by their own lengths, and options by their words. The modules of these crates
    // that parse bytes of a socket or a disk deny it themselves.
    ("clippy::indexing_slicing", &["metrics", "pe", "shell"]),
    ("clippy::cast_possible_truncation", &[]),
    ("clippy::disallowed_methods", &[]),
    ("clippy::print_stdout", &[]),
];

/// A back-quoted word of a page is a path if it ends or begins with one of these.
const PATH_ENDINGS: [&str; 5] = [".rs", ".md", ".proto", ".toml", ".sh"];
const PATH_BEGINNINGS: [&str; 5] = ["crates/", "bench/", "docs/", "interop/", "packaging/"];
/// Pages of a day. They name files as they were on that day.
const PAST_PAGES: &str = "docs/benchmarks/journal/2";

/// The file with the table of threads.
const THREADS: &str = "crates/common/src/runtime/thread.rs";
/// The functions that start threads, and how they are called.
const SPAWNS: [&str; 4] = ["spawn_essential(", "spawn_restarted(", "spawn_scoped(scope, ", "thread::spawn("];
/// Names that are no string in the call which starts the thread.
const VARIABLE_NAMES: [VariableNames; 6] = [
    VariableNames::new("rpc/src/executor.rs", "rpc/src/executor.rs", "let names = [", "]", "-N"),
    VariableNames::new(
        "regionserver/src/background.rs",
        "regionserver/src/background.rs",
        "background.spawn(",
        ",",
        "",
    ),
    VariableNames::new("cluster/src/pools.rs", "cluster/src/procedures.rs", " pool(", ",", "-N"),
    VariableNames::new(
        "cluster/src/pools.rs",
        "cluster/src/zookeeper_procedures.rs",
        "Pool::start(",
        ",",
        "-N",
    ),
    VariableNames::new(
        "region/src/store/background_priority.rs",
        "region/src/store/background_priority.rs",
        "Self::Flush => \"",
        "}",
        "",
    ),
    VariableNames::new("evenkeel/src/lifecycle.rs", "evenkeel/src/lifecycle.rs", " print(", ",", ""),
];

struct VariableNames {
    /// The file with the call, below `crates`.
    spawner: &'static str,
    /// The file with the names.
    named_in: &'static str,
    /// The names are the strings from here, or within it, ...
    from: &'static str,
    /// ... to here.
    to: &'static str,
    /// What the call appends to each name.
    end: &'static str,
}

impl VariableNames {
    const fn new(
        spawner: &'static str,
        named_in: &'static str,
        from: &'static str,
        to: &'static str,
        end: &'static str,
    ) -> Self {
        Self { spawner, named_in, from, to, end }
    }

    fn find(&self, text: &str) -> BTreeSet<String> {
        let begin = self.from.find('"').unwrap_or(self.from.len());
        let part = |(at, _): (usize, &str)| {
            let rest = &text[at + begin..];
            strings(rest.split_once(self.to).map_or(rest, |(part, _)| part)).collect::<Vec<_>>()
        };
        text.match_indices(self.from).flat_map(part).map(|name| name + self.end).collect()
    }
}

struct Source {
    /// Relative to the workspace.
    path: String,
    text: String,
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The Rust sources of all packages.
fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for dir in ["bench", "crates", "fuzz", "interop"] {
        collect(&root, &root.join(dir), ".rs", &mut found);
    }
    assert!(found.len() > 50, "only {} sources below {}", found.len(), root.display());
    found
}

/// The Markdown pages.
fn pages() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for dir in ["bench", "crates", "docs", "fuzz", "interop", "packaging"] {
        collect(&root, &root.join(dir), ".md", &mut found);
    }
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        let text = fs::read_to_string(root.join(name)).expect("readable");
        found.push(Source { path: name.to_owned(), text });
    }
    found.retain(|page| !page.path.starts_with(PAST_PAGES));
    assert!(found.len() > 20, "only {} pages below {}", found.len(), root.display());
    found
}

/// Adds the files below `dir` whose names end with `ending`.
fn collect(root: &Path, dir: &Path, ending: &str, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.strip_prefix(root).expect("below").to_str().expect("UTF-8").to_owned();
        // `interop/work` holds what tests download.
        if name.ends_with("/target") || name == "interop/work" {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, ending, found);
        } else if name.ends_with(ending) {
            found.push(Source { path: name, text: fs::read_to_string(&path).expect("readable") });
        }
    }
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text))
}

/// The comments of a file: consecutive lines joined, with the number of the first line. Code blocks
/// are left out.
fn comments(text: &str) -> Vec<(usize, String)> {
    let (mut all, mut is_code, mut goes_on) = (Vec::<(usize, String)>::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let words = comment(line).map(str::trim);
        match words {
            Some(fence) if fence.starts_with("```") => is_code = !is_code,
            Some(words) if !is_code && !words.is_empty() => {
                match all.last_mut().filter(|_| goes_on) {
                    Some((_, joined)) => write!(joined, " {words}").expect("written"),
                    None => all.push((number + 1, words.to_owned())),
                }
                goes_on = true;
                continue;
            }
            Some(_) => {}
            None => is_code = false,
        }
        goes_on = false;
    }
    all
}

fn assert_none(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

#[test]
fn comment_lines_are_not_wider_than_the_limit() {
    let wide: Vec<String> = sources().iter().flat_map(wide_comments).collect();
    assert_none("comment lines wider than 100 columns", &wide);
}

/// The comment lines of a file that are too wide.
fn wide_comments(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate().map(|(at, line)| (at + 1, line, line.chars().count()));
    let wide = lines.filter(|(_, line, width)| comment(line).is_some() && *width > WIDTH_MAX);
    wide.map(|(number, _, width)| format!("{}:{number}: {width} columns", source.path)).collect()
}

/// Whether `phrase` occurs in `text` as whole words.
fn has_words(text: &str, phrase: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        is_edge(before.chars().next_back()) && is_edge(after.chars().next())
    })
}

/// Whether a sentence of `text` begins with `beginning`.
fn begins_sentence(text: &str, beginning: &str) -> bool {
    text.match_indices(beginning).any(|(at, _)| at == 0 || text[..at].ends_with(". "))
}

/// The phrases and beginnings to replace in the texts of a file, which have their line numbers.
fn dialect(path: &str, texts: Vec<(usize, String)>) -> Vec<String> {
    let mut violations = Vec::new();
    for (number, text) in texts {
        for phrase in PHRASES.iter().filter(|phrase| has_words(&text, phrase)) {
            violations.push(format!("{path}:{number}: {phrase:?}"));
        }
        for beginning in BEGINNINGS.iter().filter(|beginning| begins_sentence(&text, beginning)) {
            violations.push(format!("{path}:{number}: a sentence begins with {beginning:?}"));
        }
    }
    violations
}

#[test]
fn comments_avoid_phrases_with_a_plainer_replacement() {
    let sources = sources();
    let others = sources.iter().filter(|source| source.path != file!());
    let violations: Vec<String> =
        others.flat_map(|source| dialect(&source.path, comments(&source.text))).collect();
    assert_none("phrases to replace", &violations);
}

#[test]
fn pages_avoid_phrases_with_a_plainer_replacement() {
    let violations: Vec<String> =
        pages().iter().flat_map(|page| dialect(&page.path, paragraphs(&page.text))).collect();
    assert_none("phrases to replace", &violations);
}

#[test]
fn strings_avoid_phrases_with_a_plainer_replacement() {
    let sources = sources();
    let product = sources.iter().filter(|source| source.path.contains("/src/"));
    let found: Vec<_> =
        product.map(|source| (source.path.as_str(), sentences(without_tests(source)))).collect();
    let count: usize = found.iter().map(|(_, texts)| texts.len()).sum();
    assert!(count > 2000, "only {count} strings of several words");
    let violations: Vec<String> = found.into_iter().flat_map(|(path, texts)| dialect(path, texts)).collect();
    assert_none("phrases to replace", &violations);
}

/// The string literals of several words, with the number of the line where each begins. A literal
/// that goes on in the next line is joined. Comments are left out.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let (mut all, mut open) = (Vec::new(), None::<(usize, String)>);
    for (number, line) in text.lines().enumerate() {
        if open.is_none() && comment(line).is_some() {
            continue;
        }
        // Quotes that begin or end no literal.
        let line = line.replace("\\\"", "'").replace("'\"'", "' '");
        for (at, part) in line.split('"').enumerate() {
            let part = part.trim_start();
            if at > 0 {
                match open.take() {
                    Some(literal) => all.push(literal),
                    None => open = Some((number + 1, String::new())),
                }
            }
            if let Some((_, literal)) = &mut open {
                literal.push_str(part.trim_end_matches('\\'));
            }
        }
        if let Some((_, literal)) = open.as_mut().filter(|_| !line.ends_with('\\')) {
            literal.push(' ');
        }
    }
    all.retain(|(_, literal)| literal.trim().contains(' '));
    all
}

/// The modules that a file declares in files of their own, except those of tests.
fn declared_modules(text: &str) -> BTreeSet<&str> {
    let mut previous = "";
    let mut modules = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        let name = line.split_once("mod ").and_then(|(before, name)| {
            let is_visibility = before.is_empty() || before.starts_with("pub");
            name.strip_suffix(';').filter(|_| is_visibility)
        });
        modules.extend(name.filter(|_| !previous.contains("cfg(test)")));
        previous = line;
    }
    modules
}

/// The tables of modules in a header: the module whose submodules each lists (empty for those of
/// the file itself), and their names.
fn module_tables(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut tables = Vec::new();
    let mut is_table = false;
    for line in text.lines().take_while(|line| line.starts_with("//!")) {
        let Some(cells) = line.strip_prefix("//! | ") else {
            is_table &= line.starts_with("//! |-");
            continue;
        };
        let first = cells.split(" |").next().unwrap_or_default();
        let is_of_two = cells.matches('|').count() == 2;
        let head = first.strip_prefix("module").or_else(|| first.strip_prefix("file"));
        if let Some(of) = head.filter(|_| is_of_two && !is_table) {
            let of = of.trim().trim_start_matches("of ").trim_matches('`');
            tables.push((of.to_owned(), BTreeSet::new()));
            is_table = true;
        } else if let Some((_, names)) = tables.last_mut().filter(|_| is_table) {
            let quoted = first.split('`').skip(1).step_by(2);
            names.extend(quoted.map(|name| name.trim_end_matches(".rs").to_owned()));
        }
    }
    tables
}

#[test]
fn tables_of_modules_name_exactly_the_modules_there_are() {
    let all = sources();
    let (mut violations, mut tables) = (Vec::new(), 0);
    for source in &all {
        for (of, named) in module_tables(&source.text) {
            let text = match of.as_str() {
                "" => &source.text,
                of => {
                    let dir = source.path.trim_end_matches("lib.rs").trim_end_matches(".rs");
                    let path = format!("{}/{of}.rs", dir.trim_end_matches('/'));
                    &all.iter().find(|source| source.path == path).expect("the file of the module").text
                }
            };
            let declared: BTreeSet<String> = declared_modules(text).into_iter().map(str::to_owned).collect();
            tables += 1;
            if named != declared {
                let difference: Vec<_> = named.symmetric_difference(&declared).collect();
                violations.push(format!("{}: {difference:?}", source.path));
            }
        }
    }
    assert!(tables >= 4, "only {tables} tables of modules were found");
    assert_none("modules that a table lacks, or that do not exist", &violations);
}

#[test]
fn modules_stand_beside_their_folders() {
    let found: Vec<String> =
        sources().into_iter().map(|source| source.path).filter(|path| is_inside_its_folder(path)).collect();
    assert_none("`foo/mod.rs` instead of `foo.rs`", &found);
}

/// Returns true for a module's file that is in the module's folder. A module that several tests
/// share must be there: `#[path]` looks for its submodules beside its file.
fn is_inside_its_folder(path: &str) -> bool {
    const SHARED: [&str; 4] = ["tests/common", "tests/support", "tests/fake", "hostile/attack"];
    path.strip_suffix("/mod.rs").is_some_and(|folder| !SHARED.iter().any(|shared| folder.ends_with(shared)))
}

#[test]
fn no_type_has_a_vague_name() {
    let found: Vec<String> = sources().iter().flat_map(vague_types).collect();
    assert_none("types with vague names", &found);
}

/// The declarations of types with vague names.
fn vague_types(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    if !source.path.ends_with("common/tests/style.rs") {
        for (number, line) in source.text.lines().enumerate() {
            let words: Vec<&str> = line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| !word.is_empty())
                .collect();
            let declares = |pair: &[&str]| {
                matches!(pair[0], "struct" | "enum" | "trait" | "type") && VAGUE_NAMES.contains(&pair[1])
            };
            if comment(line).is_none() && words.windows(2).any(declares) {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    found
}

/// The paragraphs of a page, each joined into one line, with the number of the first line. Code
/// blocks are left out.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let as_comments: String = text.lines().map(|line| format!("// {line}\n")).collect();
    comments(&as_comments)
}

/// Returns the path that back-quoted text begins with, and the function after `::`, if there is
/// one. A pattern is not a path.
fn named_path(code: &str) -> Option<(&str, Option<&str>)> {
    let word = code.split_whitespace().next()?;
    let (path, function) = match word.split_once("::") {
        Some((path, names)) => (path, names.rsplit("::").next()),
        None => (word, None),
    };
    let is_path = path.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let is_ours = PATH_ENDINGS.iter().any(|ending| path.ends_with(ending))
        || PATH_BEGINNINGS.iter().any(|beginning| path.starts_with(beginning));
    (is_path && is_ours).then_some((path, function))
}

/// The names of the functions that a source declares.
fn declared_functions(text: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    text.split("fn ").skip(1).map(name).collect()
}

/// Returns the function that back-quoted text like `Region::open` names.
fn named_function(code: &str) -> Option<&str> {
    let (of, name) = code.split(['(', '<']).next()?.rsplit_once("::")?;
    let is_type = of.starts_with(|c: char| c.is_ascii_uppercase()) && of.chars().all(char::is_alphanumeric);
    let is_function = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (is_type && is_function).then_some(name)
}

/// Returns true if a path exists in the workspace, beside the page or below `crates`, and its file
/// declares the function.
fn exists(page: &Source, path: &str, function: Option<&str>) -> bool {
    let beside = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let bases = [Path::new(""), beside, Path::new("crates")];
    let file = bases.iter().map(|base| root().join(base).join(path)).find(|file| file.exists());
    let declares = |file: &Path, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"))
    };
    file.is_some_and(|file| function.is_none_or(|name| declares(&file, name)))
}

/// The targets of the links in a text.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchor of a heading, as GitHub makes it.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns true if the file of a link exists, and has a heading for the link's anchor.
fn leads_somewhere(page: &Source, target: &str) -> bool {
    if target.contains("://") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let mut file = root().join(&page.path);
    if !path.is_empty() {
        file = file.parent().expect("a folder").join(path);
    }
    let has_heading = |text: String| {
        text.lines().filter(|line| line.starts_with('#')).any(|heading| anchor_of(heading) == anchor)
    };
    file.exists() && (anchor.is_empty() || fs::read_to_string(file).is_ok_and(has_heading))
}

/// What a page names although it does not exist.
fn missing(page: &Source, functions: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, text) in paragraphs(&page.text) {
        for (at, part) in text.split('`').enumerate() {
            let is_code = at % 2 == 1;
            let path = named_path(part).filter(|&(path, function)| is_code && !exists(page, path, function));
            found.extend(path.map(|_| format!("{}:{number}: `{part}`", page.path)));
            let function = named_function(part).filter(|name| is_code && !functions.contains(*name));
            found.extend(function.map(|_| format!("{}:{number}: `{part}`", page.path)));
            let broken = links(part).filter(|target| !is_code && !leads_somewhere(page, target));
            found.extend(broken.map(|target| format!("{}:{number}: ({target})", page.path)));
        }
    }
    found
}

#[test]
fn pages_name_what_exists() {
    let functions: BTreeSet<String> =
        sources().iter().flat_map(|source| declared_functions(&source.text)).collect();
    let missing: Vec<String> = pages().iter().flat_map(|page| missing(page, &functions)).collect();
    assert_none("files, functions and headings that do not exist", &missing);
}

/// The part of a file that is no test.
fn without_tests(source: &Source) -> &str {
    source.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// The strings of a text, with `N` for numbers that are filled in.
fn strings(text: &str) -> impl Iterator<Item = String> {
    text.split('"').skip(1).step_by(2).map(|name| match name.split_once('{') {
        Some((before, _)) => format!("{before}N"),
        None => name.to_owned(),
    })
}

/// The names of threads that a file starts, and the calls without a name, unless it `has_variable`
/// names.
fn started_threads(text: &str, has_variable: bool) -> (BTreeSet<String>, Vec<String>) {
    let (mut names, mut unnamed) = (BTreeSet::new(), Vec::new());
    for call in SPAWNS {
        for (at, _) in text.match_indices(call).filter(|(at, _)| !text[..*at].ends_with("std::")) {
            let argument = text[at + call.len()..].split(',').next().unwrap_or_default().trim();
            match strings(argument).find(|name| !name.starts_with('N')) {
                Some(name) => drop(names.insert(name)),
                None if has_variable => {}
                None => unnamed.push(format!("{call}{argument}")),
            }
        }
    }
    (names, unnamed)
}

/// The path of a file of a crate as the table of threads has it.
fn short_path(path: &str) -> String {
    path.trim_start_matches("crates/").replacen("/src/", "/", 1)
}

/// The threads of the table, each with the file that starts it, as `rpc/server.rs`, if the table
/// names one.
fn table_of_threads(text: &str) -> Vec<(String, Option<String>)> {
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .skip_while(|row| !row.starts_with("thread |"));
    let (mut all, mut file) = (Vec::new(), None);
    for row in rows.skip(1) {
        let cells: Vec<_> = row.split(" | ").collect();
        let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let started_in = cells.get(1).map_or("", |cell| cell.trim());
        if started_in != "same" {
            file = quoted(started_in).into_iter().next();
        }
        let is_name = |name: &String| !name.contains(' ');
        all.extend(quoted(cells[0]).into_iter().filter(is_name).map(|name| (name, file.clone())));
    }
    all
}

#[test]
fn the_table_of_threads_names_exactly_the_threads_that_are_started() {
    let (mut started, mut wrong) = (BTreeSet::new(), Vec::new());
    let is_product = |source: &&Source| {
        let is_double = ["tests", "/fake/", THREADS].iter().any(|part| source.path.contains(part));
        source.path.starts_with("crates/") && source.path.contains("/src/") && !is_double
    };
    let sources = sources();
    for source in sources.iter().filter(is_product) {
        let variables = VARIABLE_NAMES.iter().filter(|names| source.path.ends_with(names.spawner));
        let variables: Vec<_> = variables.collect();
        let (mut names, unnamed) = started_threads(without_tests(source), !variables.is_empty());
        for variable in variables {
            let named_in = sources.iter().find(|source| source.path.ends_with(variable.named_in));
            names.extend(variable.find(without_tests(named_in.expect("the file with the names"))));
        }
        started.extend(names.into_iter().map(|name| (name, short_path(&source.path))));
        wrong.extend(unnamed.into_iter().map(|call| format!("{}: {call}", source.path)));
    }
    assert!(started.len() > 30, "only {started:?}");
    let text = fs::read_to_string(root().join(THREADS)).expect("readable");
    let table = table_of_threads(&text);
    let is_of = |(name, file): &(String, String), (listed, of): &(String, Option<String>)| {
        name == listed && of.as_ref().is_none_or(|of| of == file)
    };
    let missing = started.iter().filter(|thread| !table.iter().any(|row| is_of(thread, row)));
    wrong.extend(missing.map(|(name, file)| format!("`{name}` of {file} is not in the table")));
    let gone = table.iter().filter(|row| !started.iter().any(|thread| is_of(thread, row)));
    wrong.extend(gone.map(|(name, _)| format!("`{name}` is in the table and is not started")));
    assert_none("threads and their table differ", &wrong);
}

#[test]
fn the_rules_find_what_violates_them() {
    let text = "spawn_essential(\n    \"a\", x); thread::spawn(format!(\"b-{i}\"), y); std::thread::spawn(z)";
    let named = BTreeSet::from(["a".to_owned(), "b-N".to_owned()]);
    assert_eq!(started_threads(text, false), (named, Vec::new()));
    assert_eq!(started_threads("spawn_restarted(name, run)", false).1, ["spawn_restarted(name"]);
    let rows = "//! | thread | started in | a |\n//! |---|---|\n//! | `a`, `b-N` | `x/y.rs` | |\n//! | `c` | same | |\n";
    let file = || Some("x/y.rs".to_owned());
    let listed = ["a", "b-N", "c"].map(|name| (name.to_owned(), file()));
    assert_eq!(table_of_threads(rows), listed);

    assert!(has_words("made anew.", "anew") && !has_words("renewal", "new"));
    assert!(begins_sentence("First. Of a file.", "Of a ") && begins_sentence("Of a file", "Of a "));
    assert!(!begins_sentence("The length Of a file", "Of a "));
    let text = "// \"so many\"\nf(\"made \\\n   anew\", \"one\"); g('\"', \"a \\\"b\\\" c\");\n";
    let literals = [(2, "made anew".to_owned()), (3, "a 'b' c".to_owned())];
    assert_eq!(sentences(text), literals);
    assert_eq!(dialect("a.rs", sentences(text)), ["a.rs:2: \"anew\""]);
    assert_eq!(
        dialect("a.md", paragraphs("# A\n\nWho is\nto be\n")),
        ["a.md:3: \"is to be\"", "a.md:3: a sentence begins with \"Who \"",]
    );
    let text = "//! | module | contents |\n//! |---|---|\n//! | [`a`] | x |\n//! | `b` | y |\n\nmod a;\n\
                pub(crate) mod b;\n#[cfg(test)]\nmod tests;\nmod inline {}\n";
    let named = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert_eq!(module_tables(text), [(String::new(), named)]);
    assert_eq!(declared_modules(text), BTreeSet::from(["a", "b"]));
    let files = "//! | file | holds |\n//! |---|---|\n//! | `a.rs` | x |\n";
    assert_eq!(module_tables(files), [(String::new(), BTreeSet::from(["a".to_owned()]))]);
    let joined = comments("/// One is\n/// to be\n///\n/// two\nfn f() {}\n// ```\n// is to be\n// ```\n");
    assert_eq!(joined, [(1, "One is to be".to_owned()), (4, "two".to_owned())]);
    let source = |path: &str, text: String| Source { path: path.to_owned(), text };
    let wide =
        source("a.rs", format!("// {}\n// {}\nlet {};\n", "x".repeat(97), "x".repeat(98), "x".repeat(120)));
    assert_eq!(wide_comments(&wide), ["a.rs:2: 101 columns"]);
    assert!(
        is_inside_its_folder("crates/a/src/b/mod.rs")
            && !is_inside_its_folder("crates/a/tests/common/mod.rs")
    );
    let vague = source("a.rs", "struct Runs;\n// struct Run\npub enum Kind {}\n".to_owned());
    assert_eq!(vague_types(&vague), ["a.rs:3: pub enum Kind {}"]);
    let all: String = LINTS.map(|(lint, _)| format!("#![deny({lint})]\n")).concat();
    let root = |text: &str| source("crates/a/src/lib.rs", text.to_owned());
    assert_eq!(wrong_lints("a", &root(&all)), "");
    assert_eq!(wrong_lints("a", &root(&format!("mod b;\n{all}"))).lines().count(), LINTS.len());
    assert_eq!(wrong_lints("common", &root(&all)).lines().count(), 1);
    let text = "Lost: `crates/none.rs`, `common/tests/style.rs::no_fn`, [a](none.md),\n[b](design.md#none), `Region::none`.\n\n\
                There: `Region::open`, `crates/<name>.rs`, `style`, `common/tests/style.rs::missing`, [`c`](../README.md#two-commands).\n";
    let page = source("docs/page.md", text.to_owned());
    assert_eq!(
        missing(&page, &BTreeSet::from(["open".to_owned()])),
        [
            "docs/page.md:1: `crates/none.rs`",
            "docs/page.md:1: `common/tests/style.rs::no_fn`",
            "docs/page.md:1: (none.md)",
            "docs/page.md:1: (design.md#none)",
            "docs/page.md:1: `Region::none`"
        ]
    );
}

#[test]
fn the_root_of_each_crate_has_the_lints() {
    let sources = sources();
    let roots = sources.iter().filter_map(|source| {
        let inner = source.path.strip_prefix("crates/")?;
        let (name, file) = inner.split_once('/')?;
        matches!(file, "src/lib.rs" | "src/main.rs").then_some((name, source))
    });
    let roots: Vec<_> = roots.collect();
    let count = roots.len();
    let wrong: String = roots.into_iter().map(|(name, root)| wrong_lints(name, root)).collect();
    assert!(count > 20, "only {count} crates");
    assert!(wrong.is_empty(), "{wrong}");
}

/// The lints that a crate's root lacks, and those that it has although it is exempt, a line each.
fn wrong_lints(name: &str, root: &Source) -> String {
    let before_items =
        |line: &&str| !["mod ", "pub mod ", "use ", "extern "].iter().any(|item| line.starts_with(item));
    let head = root.text.lines().filter(|line| !line.starts_with("//")).take_while(before_items);
    let head: String = head.collect();
    let mut wrong = String::new();
    for (lint, without) in LINTS {
        let (has, is_exempt) = (head.contains(lint), without.contains(&name));
        if has == is_exempt {
            let what = if has { "has, although it is exempt," } else { "lacks" };
            writeln!(wrong, "{}: {what} {lint}", root.path).expect("written");
        }
    }
    wrong
}
