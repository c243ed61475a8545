//! [`Request`]: a decoded request for a page.

use percent_encoding::percent_decode_str;

/// The maximum number of parameters.
const PARAMETERS_MAX: usize = 256;

/// The HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Shows a page. Pages treat HEAD the same.
    Get,
    /// Performs an action.
    Post,
}

/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, decoded: `/jmx`.
    pub path: String,
    /// The decoded parameters of the query, then those of a form, in order.
    pub parameters: Vec<(String, String)>,
}

impl Request {
    /// Creates a GET request for `path`, which is encoded, with the query text after `?`. Returns
    /// `None` if one of them is not UTF-8 or there are too many parameters.
    pub fn get(path: &str, query: &str) -> Option<Self> {
        let mut request = Self { method: Method::Get, path: decode(path)?, parameters: Vec::new() };
        request.add_parameters(query)?;
        Some(request)
    }

    /// Returns the first parameter with this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if the parameter is `true`.
    pub fn is_true(&self, name: &str) -> bool {
        self.parameter(name) == Some("true")
    }

    /// Adds the parameters of a query or a form.
    pub(crate) fn add_parameters(&mut self, text: &str) -> Option<()> {
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if self.parameters.len() == PARAMETERS_MAX {
                return None;
            }
            self.parameters.push((decode_form(name)?, decode_form(value)?));
        }
        Some(())
    }
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

fn decode_form(text: &str) -> Option<String> {
    decode(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let request = Request::get("/a%20b", "x=1+2%3d&&y&x=3&z=%C3%A9=%").expect("decoded");
        assert_eq!(request.path, "/a b");
        let expected = [("x", "1 2="), ("y", ""), ("x", "3"), ("z", "é=%")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(request.parameters, expected);
        assert_eq!((request.parameter("x"), request.parameter("no")), (Some("1 2="), None));
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        assert_eq!(Request::get("/%ff", ""), None);
        assert_eq!(Request::get("/", "a=%ff"), None);
        assert_eq!(Request::get("/", &"a&".repeat(PARAMETERS_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_decoded_or_refused(path in "/[%0-9a-f]{0,12}|\\PC{0,8}", query in "[%&=+0-9a-f]{0,24}|\\PC{0,8}") {
            if let Some(request) = Request::get(&path, &query) {
                prop_assert!(request.parameters.len() <= query.matches('&').count() + 1);
            }
        }
    }
}
