//! The RegionServers' log of slow and large calls.

use std::fmt::{self, Write as _};

use evenkeel_client::admin::CallLog;
use evenkeel_common::ServerName;
use evenkeel_protocol::pb;
use pb::slow_log_response_request::FilterByOperator;

use super::{Command, tools};
use crate::args::{self, Args};
use crate::error::{CommandResult, RubyError};
use crate::shell::Shell;
use crate::value::{Hash, Value};

/// The default number of calls printed per server (`LIMIT`).
const LIMIT: u64 = 10;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "get_slowlog_responses",
        (1, 2),
        get_slow,
        "Prints the latest slow calls of all servers ('*') or those given, if hbase.regionserver.slowlog.buffer.enabled is\n\
         true: those that took longer than hbase.ipc.warn.response.time.\n\n  \
         hbase> get_slowlog_responses '*'\n  \
         hbase> get_slowlog_responses '*', {'LIMIT' => 50}\n  \
         hbase> get_slowlog_responses ['host,port,startcode'], {'REGION_NAME' => 'hbase:meta,,1', 'TABLE_NAME' => 't1'}\n  \
         hbase> get_slowlog_responses '*', {'USER' => 'u', 'CLIENT_IP' => '192.0.2.1:60225', 'FILTER_BY_OP' => 'AND'}",
    ),
    Command::new(
        "get_largelog_responses",
        (1, 2),
        get_large,
        "As get_slowlog_responses, for calls whose replies were larger than hbase.ipc.warn.response.size.\n\n  \
         hbase> get_largelog_responses '*'",
    ),
    Command::new(
        "clear_slowlog_responses",
        (0, 1),
        clear,
        "Clears the slow and large calls of all servers or those given.\n\n  \
         hbase> clear_slowlog_responses\n  hbase> clear_slowlog_responses ['host,port,startcode']",
    ),
];

fn get_slow(shell: &mut Shell, args: Args) -> CommandResult {
    get(shell, &args, CallLog::Slow, "Retrieved SlowLog Responses from RegionServers")
}

fn get_large(shell: &mut Shell, args: Args) -> CommandResult {
    get(shell, &args, CallLog::Large, "Retrieved LargeLog Responses from RegionServers")
}

fn get(shell: &mut Shell, args: &Args, log: CallLog, title: &str) -> CommandResult {
    let filters = match args.get(1) {
        Value::Nil => Hash::default(),
        Value::Hash(hash) => hash.clone(),
        _ => return Err(RubyError::runtime("Filter parameters are not Hash").into()),
    };
    let all = matches!(args.get(0), Value::Str(_)) && args.text(0) == "*";
    let servers = if all {
        tools::live_servers(shell)?
    } else {
        given_servers(shell, args.get(0), "Array/String type")?
    };
    let request = request(&filters)?;
    let admin = shell.cluster.admin()?;
    let calls = shell.wait(admin.logged_calls(&servers, log, &request))?;
    shell.out.line(title)?;
    for call in &calls {
        shell.out.line(Json(call).to_string())?;
    }
    Ok(Value::Nil)
}

fn clear(shell: &mut Shell, args: Args) -> CommandResult {
    let servers = match args.get(0) {
        Value::Nil => tools::live_servers(shell)?,
        names => given_servers(shell, names, "correct type")?,
    };
    let admin = shell.cluster.admin()?;
    let cleared = shell.wait(admin.clear_logged_calls(&servers))?;
    let count = cleared.iter().filter(|cleared| **cleared).count();
    shell.out.line(format!("Cleared Slowlog responses from {count}/{} RegionServers", cleared.len()))?;
    Ok(Value::Nil)
}

fn given_servers(shell: &mut Shell, names: &Value, expected: &str) -> CommandResult<Vec<ServerName>> {
    match names {
        Value::Array(names) => tools::servers(shell, names),
        Value::Str(_) => tools::servers(shell, std::slice::from_ref(names)),
        other => {
            let (class, shown) = (other.class(), other.inspect());
            Err(RubyError::argument(format!("{class} of {shown} is not of {expected}")).into())
        }
    }
}

fn request(filters: &Hash) -> CommandResult<pb::SlowLogResponseRequest> {
    let text = |key| filters.option(key).map(Value::to_text);
    let operator = match text("FILTER_BY_OP").as_deref() {
        None | Some("OR") => None,
        Some("AND") => Some(FilterByOperator::And.into()),
        Some(_) => return Err(RubyError::argument("FILTER_BY_OP should be either OR / AND").into()),
    };
    let limit = filters.option("LIMIT").map_or(Ok(LIMIT), |limit| args::natural("LIMIT", limit))?;
    Ok(pb::SlowLogResponseRequest {
        region_name: text("REGION_NAME"),
        table_name: text("TABLE_NAME"),
        client_address: text("CLIENT_IP"),
        user_name: text("USER"),
        limit: Some(u32::try_from(limit).unwrap_or(u32::MAX)),
        filter_by_operator: operator,
        log_type: None,
    })
}

/// A call as `OnlineLogRecord.toJsonPrettyPrint` prints it.
struct Json<'a>(&'a pb::SlowLogPayload);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(call) = self;
        let number = |name, value: i64| Some((name, value.to_string()));
        let text = |name, value: &str| Some((name, quoted(value)));
        let unless_zero = |name, value: i32| number(name, value.into()).filter(|_| value != 0);
        let fields = [
            number("startTime", call.start_time),
            number("processingTime", call.processing_time.into()),
            number("queueTime", call.queue_time.into()),
            number("responseSize", call.response_size),
            number("blockBytesScanned", call.block_bytes_scanned()),
            number("fsReadTime", call.fs_read_time()),
            text("clientAddress", &call.client_address),
            text("serverClass", &call.server_class),
            text("methodName", &call.method_name),
            text("callDetails", &call.call_details),
            text("param", call.param()),
            text("userName", &call.user_name),
            unless_zero("multiGetsCount", call.multi_gets()),
            unless_zero("multiMutationsCount", call.multi_mutations()),
            unless_zero("multiServiceCalls", call.multi_service_calls()),
        ];
        f.write_char('{')?;
        for (at, (name, value)) in fields.into_iter().flatten().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}\n  \"{name}\": {value}")?;
        }
        f.write_str("\n}")
    }
}

/// A JSON string as Gson writes it: characters that HTML reads are escaped.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '=' | '\'' | '\u{0}'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_printed_as_gson_prints_it() {
        let call = pb::SlowLogPayload {
            start_time: 7,
            method_name: "Get".into(),
            param: Some("region= t,\"'\u{1}".into()),
            multi_gets: Some(3),
            ..Default::default()
        };
        let text = Json(&call).to_string();
        assert!(text.starts_with("{\n  \"startTime\": 7,\n  \"processingTime\": 0,\n"), "{text}");
        assert!(text.contains("\"param\": \"region\\u003d t,\\\"\\u0027\\u0001\",\n"), "{text}");
        assert!(text.ends_with("  \"userName\": \"\",\n  \"multiGetsCount\": 3\n}"), "{text}");
    }
}
