//! [`Routes`]: the pages by path.

use std::collections::HashMap;
use std::sync::Arc;

use crate::request::Request;
use crate::response::Response;

/// Answers requests. Called on the thread `info`, so it must not block.
pub trait Page: Send + Sync {
    /// Returns the response. If this panics, the response is an error with status 500.
    fn respond(&self, request: &Request) -> Response;

    /// Returns true if the page answers POST, with the parameters of a form.
    fn accepts_post(&self) -> bool {
        false
    }
}

impl<F: Fn(&Request) -> Response + Send + Sync> Page for F {
    fn respond(&self, request: &Request) -> Response {
        self(request)
    }
}

/// The pages of a server by path.
#[derive(Clone, Default)]
pub struct Routes {
    pages: HashMap<String, Arc<dyn Page>>,
    prefixes: Vec<(String, Arc<dyn Page>)>,
}

impl Routes {
    /// Creates routes without pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces the page of a path.
    #[must_use]
    pub fn page(mut self, path: &str, page: Arc<dyn Page>) -> Self {
        self.pages.insert(path.to_owned(), page);
        self
    }

    /// Adds a page for every path that begins with `prefix` and has no other page. The longest
    /// prefix wins.
    #[must_use]
    pub fn prefix(mut self, prefix: &str, page: Arc<dyn Page>) -> Self {
        self.prefixes.push((prefix.to_owned(), page));
        self
    }

    /// Returns the page of a path.
    pub fn find(&self, path: &str) -> Option<&Arc<dyn Page>> {
        let prefixed = || {
            let matching = self.prefixes.iter().filter(|(prefix, _)| path.starts_with(prefix.as_str()));
            matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, page)| page)
        };
        self.pages.get(path).or_else(prefixed)
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("pages", &self.pages.keys()).finish_non_exhaustive()
    }
}
