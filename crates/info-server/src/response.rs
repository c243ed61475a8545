//! [`Response`]: the response of a page.

use std::fmt;

/// The response of a page. The server adds the headers of the connection and of security.
#[derive(Debug)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// Additional headers. A header whose name or value is invalid in HTTP is left out.
    pub headers: Vec<(&'static str, String)>,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Body,
}

/// The body of a response.
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// Its pieces, which are created while it is sent.
    Pieces {
        /// The memory that they hold until they are created.
        held_bytes: usize,
        /// The pieces.
        pieces: Box<dyn Iterator<Item = String> + Send>,
    },
}

impl Body {
    /// Returns all bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Pieces { pieces, .. } => pieces.collect::<String>().into_bytes(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Pieces { .. } => f.write_str("pieces"),
        }
    }
}

impl Response {
    /// Creates a response with status 200.
    pub fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let body = Body::Whole(body.into());
        Self { status: 200, headers: Vec::new(), content_type, body }
    }

    /// Creates a response with status 200, whose body is created while it is sent if it has more
    /// than one piece. `held_bytes` is the memory that the pieces hold until they are created.
    pub fn in_pieces(
        content_type: &'static str,
        held_bytes: usize,
        mut pieces: impl Iterator<Item = String> + Send + 'static,
    ) -> Self {
        let first = pieces.next().unwrap_or_default();
        let Some(second) = pieces.next() else { return Self::ok(content_type, first) };
        let pieces = Box::new([first, second].into_iter().chain(pieces));
        Self { body: Body::Pieces { held_bytes, pieces }, ..Self::ok(content_type, "") }
    }

    /// Creates a response of plain text.
    pub fn text(body: impl Into<Vec<u8>>) -> Self {
        Self::ok("text/plain;charset=utf-8", body)
    }

    /// Creates a response of HTML.
    pub fn html(body: impl Into<Vec<u8>>) -> Self {
        Self::ok("text/html;charset=utf-8", body)
    }

    /// Changes the status.
    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Creates an error with a message, which is escaped.
    pub fn error(status: u16, message: &str) -> Self {
        let message = escape_html(message);
        let body = format!(
            "<html><head><title>Error {status}</title></head><body><h2>HTTP ERROR {status}</h2>\
             <p>{message}</p></body></html>\n"
        );
        Self::html(body).with_status(status)
    }

    /// Creates a redirect to another page.
    pub fn redirect(to: &str) -> Self {
        let headers = vec![("location", to.to_owned())];
        Self { headers, ..Self::text("").with_status(302) }
    }
}

/// Escapes text for HTML and XML, in content and in quoted attributes.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
