//! A session at a terminal: line editing, history, completion, Ctrl-C.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use reedline::{
    ColumnarMenu, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator,
    default_emacs_keybindings,
};

use crate::completion::{SharedWords, fetch_names};
use crate::error::Flow;
use crate::language::parse;
use crate::session::Session;

/// The environment variable that names the history file.
pub const HISTORY_VARIABLE: &str = "EVENKEEL_SHELL_HISTORY";

/// The maximum number of lines in the history.
const HISTORY_LINES: usize = 10_000;

/// The name of the completion menu within the editor.
const MENU: &str = "completions";

/// Commands that may change names.
const CHANGES: &[&str] = &["create", "drop", "alter", "clone", "restore", "truncate"];

/// Reads and runs statements until the user exits; returns the exit status.
///
/// # Errors
/// If the terminal cannot be used.
pub fn run(mut session: Session) -> Result<i32, String> {
    session.shell.cluster.handle_interrupts()?;
    let words = SharedWords::default();
    let names = fetch_names(session.shell.cluster.conf(), words.clone());
    request_names(names.as_ref());
    let mut editor = editor(words.clone());
    if session.print_banner().and_then(|()| session.shell.out.flush()).is_err() {
        return Ok(0);
    }
    loop {
        match editor.read_line(&ShellPrompt(&session.prompt(false))).map_err(|e| e.to_string())? {
            Signal::Success(source) => {
                if let Some(status) = run_one(&mut session, &source) {
                    return Ok(status);
                }
                words.set_variables(session.interpreter.variable_names().cloned().collect());
                if CHANGES.iter().any(|change| source.contains(change)) {
                    request_names(names.as_ref());
                }
            }
            Signal::CtrlD => return Ok(0),
            // A cancelled line.
            _ => {}
        }
    }
}

/// Requests a fetch of names, unless one is pending.
fn request_names(names: Option<&SyncSender<()>>) {
    if let Some(names) = names {
        let _ = names.try_send(());
    }
}

/// Runs a source; returns an exit status if it ends the shell.
fn run_one(session: &mut Session, source: &str) -> Option<i32> {
    session.shell.cluster.clear_interrupt();
    let outcome = match session.interpreter.parse(source) {
        Ok(statements) => session.run_statements(&statements, true),
        Err(error) => session.print_syntax_error(&error, source, 0),
    };
    session.count_lines(source.lines().count().max(1));
    let status = match outcome {
        Err(Flow::Exit(status)) => Some(status),
        Err(Flow::Closed) => Some(0),
        Err(Flow::Interrupted) => session.shell.out.line("\nInterrupted").err().map(|_| 0),
        // Commands print their own failures.
        _ => None,
    };
    status.or(session.shell.out.flush().err().map(|_| 0))
}

fn editor(words: SharedWords) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    let menu = Box::new(ColumnarMenu::default().with_name(MENU));
    let mut editor = Reedline::create()
        .with_completer(Box::new(words))
        .with_partial_completions(true)
        .with_quick_completions(true)
        .with_menu(ReedlineMenu::EngineCompleter(menu))
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_validator(Box::new(StatementValidator));
    // Without a file, the history covers this session only.
    if let Some(history) =
        history_file().and_then(|file| FileBackedHistory::with_file(HISTORY_LINES, file).ok())
    {
        editor = editor.with_history(Box::new(history));
    }
    editor
}

fn history_file() -> Option<PathBuf> {
    let named = std::env::var_os(HISTORY_VARIABLE).map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".evenkeel_shell_history")))
}

/// Determines if a source needs another line.
struct StatementValidator;

impl Validator for StatementValidator {
    fn validate(&self, source: &str) -> ValidationResult {
        match parse(source) {
            Err(error) if error.incomplete => ValidationResult::Incomplete,
            _ => ValidationResult::Complete,
        }
    }
}

/// The stock shell's prompt.
struct ShellPrompt<'a>(&'a str);

impl Prompt for ShellPrompt<'_> {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("... ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}
