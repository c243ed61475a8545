//! [`Response`]: the response of a page.

/// The response of a page. The server adds the headers of the connection and of security.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// Additional headers. A header whose name or value is invalid in HTTP is left out.
    pub headers: Vec<(&'static str, String)>,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// Creates a response with status 200.
    pub fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), content_type, body: body.into() }
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
