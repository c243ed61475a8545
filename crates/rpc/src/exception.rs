//! The ExceptionResponse for an error.
//!
//! Clients decide by `exception_class_name` and show `stack_trace` as the exception's message, so
//! the text is formatted as Java prints a throwable: `class: message`, then a line with a frame.
//! Third-party clients need both fields.

use evenkeel_common::HBaseError;
use evenkeel_protocol::pb;

/// Takes the place of Java's stack frames. It names no source line, because the server records no
/// stack for an error.
const FRAME_LINE: &str = "\n\tat evenkeel.rpc.Server.call(Native Method)";

/// Returns the response to a call that failed.
pub fn exception_response(error: &HBaseError) -> pb::ExceptionResponse {
    let (hostname, port) = match error.moved_to() {
        Some((host, port)) => (Some(host.to_owned()), Some(i32::from(port))),
        None => (None, None),
    };
    pb::ExceptionResponse {
        exception_class_name: Some(error.kind().class_name().to_owned()),
        stack_trace: Some(format!("{error}{FRAME_LINE}")),
        hostname,
        port,
        do_not_retry: Some(error.is_do_not_retry()),
        server_overloaded: error.is_server_overloaded().then_some(true),
    }
}

/// Returns the response to a refused preamble. The text is the bare message: clients check its
/// beginning.
pub fn preamble_exception(error: &HBaseError) -> pb::ExceptionResponse {
    pb::ExceptionResponse { stack_trace: Some(error.message().to_owned()), ..exception_response(error) }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::ErrorKind;

    use super::*;

    #[test]
    fn the_text_begins_as_java_prints_a_throwable() {
        let response = exception_response(&HBaseError::do_not_retry("no"));
        let text = response.stack_trace.unwrap();
        assert!(text.starts_with("org.apache.hadoop.hbase.DoNotRetryIOException: no\n\tat "), "{text}");
        assert_eq!(response.do_not_retry, Some(true));
        assert_eq!((response.hostname, response.port, response.server_overloaded), (None, None, None));
    }

    #[test]
    fn a_moved_region_names_its_new_server() {
        let response = exception_response(&HBaseError::region_moved("h", 16020, 1, 2));
        assert_eq!((response.hostname.as_deref(), response.port), (Some("h"), Some(16020)));
        assert_eq!(response.do_not_retry, Some(false));
    }

    #[test]
    fn an_overloaded_server_is_flagged() {
        let response = exception_response(&HBaseError::new(ErrorKind::CallQueueTooBig, "full"));
        assert_eq!(response.server_overloaded, Some(true));
    }
}
