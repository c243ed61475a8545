//! Completion: commands, tables, families, keys of hashes and variables.
//!
//! A separate thread and connection fetches the names of tables and families, at start and after
//! statements that may change them. So neither the prompt nor completion waits for the cluster.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_client::Connection;
use evenkeel_common::Configuration;
use reedline::{Completer, CompletionResult, Span, Suggestion};

use crate::{command, config, constant};

/// The timeout of a fetch of names.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The names that completion offers.
#[derive(Default)]
pub struct Words {
    tables: BTreeMap<String, Vec<String>>,
    variables: Vec<String>,
}

/// Names shared by the session and the completer.
#[derive(Clone, Default)]
pub struct SharedWords(Arc<Mutex<Words>>);

impl SharedWords {
    fn with<T>(&self, act: impl FnOnce(&mut Words) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the variables.
    pub fn set_variables(&self, names: Vec<String>) {
        self.with(|words| words.variables = names);
    }

    /// Sets the tables and their families.
    pub fn set_tables(&self, tables: BTreeMap<String, Vec<String>>) {
        self.with(|words| words.tables = tables);
    }
}

/// Starts the thread that fetches names on each request. It runs until the process exits.
pub fn fetch_names(conf: &Configuration, words: SharedWords) -> Option<SyncSender<()>> {
    let mut config = config::client_config(conf).ok()?;
    config.retries = 1;
    let (sender, receiver) = sync_channel(1);
    let fetch = move || fetch_loop(config, &words, &receiver);
    evenkeel_common::thread::spawn("names", fetch).ok()?;
    Some(sender)
}

fn fetch_loop(config: evenkeel_client::ClientConfig, words: &SharedWords, asked: &Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let mut connection: Option<Connection> = None;
    while asked.recv().is_ok() {
        let fetch = async {
            if connection.is_none() {
                connection = Connection::connect(config.clone()).await.ok();
            }
            let tables = connection.as_ref()?.admin().describe_tables(None, false).await.ok()?;
            let entry = |table: evenkeel_common::TableDescriptor| {
                (table.name().to_string(), table.families().map(|family| family.name_text()).collect())
            };
            Some(tables.into_iter().map(entry).collect())
        };
        let fetched = runtime.block_on(async { tokio::time::timeout(FETCH_TIMEOUT, fetch).await });
        if let Ok(Some(tables)) = fetched {
            words.set_tables(tables);
        }
    }
}

/// The completion expected at the cursor.
#[derive(Debug, PartialEq, Eq)]
enum CursorContext<'a> {
    /// At the beginning of a statement, after part of a command.
    Command(&'a str),
    /// In a string that is the first argument.
    Table(&'a str),
    /// In another string; the table, if it is known.
    Family(&'a str, Option<&'a str>),
    /// Elsewhere, after part of a word.
    Word(&'a str),
}

/// The context at the end of a line.
fn cursor_context(line: &str) -> CursorContext<'_> {
    let statement = &line[statement_begin(line)..];
    let (mut quote, mut strings) = (None, Vec::new());
    for (at, c) in statement.char_indices() {
        match quote {
            None if matches!(c, '\'' | '"') => quote = Some((c, at + 1)),
            Some((q, begin)) if q == c => {
                strings.push(&statement[begin..at]);
                quote = None;
            }
            _ => {}
        }
    }
    if let Some((_, begin)) = quote {
        let typed = &statement[begin..];
        return match strings.first() {
            None => CursorContext::Table(typed),
            Some(table) => CursorContext::Family(typed, Some(table)),
        };
    }
    let word = statement
        .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
        .map_or(0, |at| at + statement[at..].chars().next().map_or(0, char::len_utf8));
    match statement[..word].trim().is_empty() {
        true => CursorContext::Command(&statement[word..]),
        false => CursorContext::Word(&statement[word..]),
    }
}

/// The start of a line's last statement: after the last `;` outside strings.
fn statement_begin(line: &str) -> usize {
    let (mut quote, mut begin) = (None, 0);
    for (at, c) in line.char_indices() {
        match quote {
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None if c == ';' => begin = at + 1,
            Some(q) if q == c => quote = None,
            _ => {}
        }
    }
    begin
}

/// The completions at the end of a line, and the length of the part already typed.
fn completions(words: &Words, line: &str) -> (Vec<String>, usize) {
    let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect::<Vec<_>>();
    let (all, typed) = match cursor_context(line) {
        CursorContext::Command(typed) => {
            let mut all = owned(&mut command::all().map(|command| command.name));
            all.extend(words.variables.iter().cloned());
            all.push("exit".to_owned());
            (all, typed)
        }
        CursorContext::Table(typed) => (words.tables.keys().cloned().collect(), typed),
        CursorContext::Family(typed, table) => {
            let families = table.and_then(|table| words.tables.get(table)).into_iter().flatten();
            let mut all: Vec<String> = families.map(|family| format!("{family}:")).collect();
            if all.is_empty() {
                all = words.tables.keys().cloned().collect();
            }
            (all, typed)
        }
        CursorContext::Word(typed) => {
            let mut all = owned(&mut constant::NAMES.iter().copied());
            all.extend(words.variables.iter().cloned());
            if typed.is_empty() {
                all.clear();
            }
            (all, typed)
        }
    };
    let mut found: Vec<String> = all.into_iter().filter(|name| name.starts_with(typed)).collect();
    found.sort_unstable();
    found.dedup();
    (found, typed.len())
}

impl Completer for SharedWords {
    fn complete(&mut self, line: &str, at: usize) -> CompletionResult {
        let before = line.get(..at).unwrap_or(line);
        let (found, typed) = self.with(|words| completions(words, before));
        let span = Span::new(before.len() - typed, before.len());
        let suggest = |value: String| Suggestion { value, span, ..Suggestion::default() };
        CompletionResult::fresh(found.into_iter().map(suggest).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        let mut words = Words::default();
        words.tables.insert("trail".into(), vec!["day".into(), "dusk".into()]);
        words.variables.push("trips".into());
        completions(&words, line).0
    }

    #[test]
    fn completions_depend_on_the_position() {
        assert_eq!(found("trun"), ["truncate", "truncate_preserve", "truncate_region"]);
        assert_eq!(found("list; trip"), ["trips"]);
        assert_eq!(found("scan 'tr"), ["trail"]);
        assert_eq!(found("put \"trail\", 'r', 'd"), ["day:", "dusk:"]);
        assert_eq!(found("scan 'trail', {STOP"), ["STOPROW"]);
        assert_eq!(found("scan 'trail', "), Vec::<String>::new());
        assert_eq!(found("put 'a;b', 'é"), Vec::<String>::new());
    }
}
