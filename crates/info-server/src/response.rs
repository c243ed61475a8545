//! [`Response`]: what a page answers.

/// What a page answers. Headers of the connection and of security are added by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status, such as 200.
    pub status: u16,
    /// More headers. One whose name or value HTTP does not allow is left out.
    pub headers: Vec<(&'static str, String)>,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// An answer with status 200.
    pub fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), content_type, body: body.into() }
    }

    /// Plain text.
    pub fn text(body: impl Into<Vec<u8>>) -> Self {
        Self::ok("text/plain;charset=utf-8", body)
    }

    /// A page of HTML.
    pub fn html(body: impl Into<Vec<u8>>) -> Self {
        Self::ok("text/html;charset=utf-8", body)
    }

    /// The same answer with another status.
    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// An error with a message, which is escaped.
    pub fn error(status: u16, message: &str) -> Self {
        let message = escape_html(message);
        let body = format!(
            "<html><head><title>Error {status}</title></head><body><h2>HTTP ERROR {status}</h2>\
             <p>{message}</p></body></html>\n"
        );
        Self::html(body).with_status(status)
    }

    /// Sends the browser to another page.
    pub fn redirect(to: &str) -> Self {
        let headers = vec![("location", to.to_owned())];
        Self { headers, ..Self::text("").with_status(302) }
    }
}

/// Text as it is shown in HTML and XML, in content and in quoted attributes.
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
