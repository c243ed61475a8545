//! HBase's log of slow and large calls (`SlowLogQueueService`), with the filters of its shell.

use std::sync::Arc;

use evenkeel_common::{Binary, HBaseError, Result, length};
use evenkeel_metrics::slow_log::ExceededLimits;
use evenkeel_metrics::waits::Cause;
use evenkeel_metrics::{RequestDetail, SlowRequest};
use evenkeel_protocol::pb;
use pb::slow_log_payload::Type;
use pb::slow_log_response_request::{FilterByOperator, LogType};
use prost::Message;

use crate::services::method_table::Method;
use crate::{RegionServer, methods};

/// The Java package of the messages.
const PROTOS: &str = "org.apache.hadoop.hbase.shaded.protobuf.generated";
/// The class of the request inside GetLogEntries, without its package.
const REQUEST_CLASS: &str = "SlowLogResponseRequest";
const SERVER_CLASS: &str = "HRegionServer";

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "ClearSlowLogsResponses" => |server: &Arc<RegionServer>, _: pb::ClearSlowLogResponseRequest| {
        Ok(pb::ClearSlowLogResponses { is_cleaned: server.rpc_metrics().slow_log.clear() })
    },
    "GetLargeLogResponses" => responses,
    "GetLogEntries" => entries,
    "GetSlowLogResponses" => responses,
];

/// As in HBase, the request, not the name of the call, selects one of the two logs.
fn responses(
    server: &Arc<RegionServer>,
    request: pb::SlowLogResponseRequest,
) -> Result<pb::SlowLogResponses> {
    let of_log: fn(ExceededLimits) -> bool = match request.log_type() {
        LogType::LargeLog => |excess| excess != ExceededLimits::Slow,
        LogType::SlowLog => |excess| excess != ExceededLimits::Large,
    };
    let calls = server.rpc_metrics().slow_log.calls().into_iter();
    let payloads = calls.filter(|(_, excess)| of_log(*excess)).map(|(call, excess)| payload(&call, excess));
    let filters = Filters::of(&request);
    let matching = payloads.filter(|payload| filters.match_call(payload));
    Ok(pb::SlowLogResponses {
        slow_log_payloads: matching.take(length::index(request.limit().into())).collect(),
    })
}

fn entries(server: &Arc<RegionServer>, request: pb::LogRequest) -> Result<pb::LogEntry> {
    if !request.log_class_name.contains(REQUEST_CLASS) {
        return Err(HBaseError::io("Invalid request params"));
    }
    let query = pb::SlowLogResponseRequest::decode(request.log_message)
        .map_err(|e| HBaseError::do_not_retry(format!("{REQUEST_CLASS}: {e}")))?;
    Ok(pb::LogEntry {
        log_class_name: format!("{PROTOS}.AdminProtos$SlowLogResponses"),
        log_message: responses(server, query)?.encode_to_vec().into(),
    })
}

/// The filters of a request. An empty filter matches all calls (`LogHandlerUtils`).
struct Filters<'a> {
    region: Option<&'a str>,
    table: Option<&'a str>,
    client: Option<&'a str>,
    user: Option<&'a str>,
    all: bool,
}

impl<'a> Filters<'a> {
    fn of(request: &'a pb::SlowLogResponseRequest) -> Self {
        fn given(text: &str) -> Option<&str> {
            Some(text).filter(|text| !text.is_empty())
        }
        Self {
            region: given(request.region_name()),
            table: given(request.table_name()),
            client: given(request.client_address()),
            user: given(request.user_name()),
            all: request.filter_by_operator == Some(FilterByOperator::And.into()),
        }
    }

    fn match_call(&self, call: &pb::SlowLogPayload) -> bool {
        // The filter may have the address with or without the port.
        let (client, region) = (&call.client_address[..], call.region_name());
        let host = client.rsplit_once(':').map_or(client, |(host, _)| host);
        let matches = [
            self.region.map(|name| region == name),
            self.table.map(|table| region.starts_with(table)),
            self.client.map(|address| client == address || host == address),
            self.user.map(|user| call.user_name == user),
        ];
        let mut given = matches.into_iter().flatten().peekable();
        match given.peek() {
            None => true,
            Some(_) if self.all => given.all(|matches| matches),
            Some(_) => given.any(|matches| matches),
        }
    }
}

/// Converts a call to the form for HBase's tools and for hbase:slowlog.
pub(crate) fn payload(call: &SlowRequest, excess: ExceededLimits) -> pb::SlowLogPayload {
    let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let int = |time| i32::try_from(ms(time)).unwrap_or(i32::MAX);
    let count = |count: u32| Some(i32::try_from(count).unwrap_or(i32::MAX));
    let detail = &call.detail;
    pb::SlowLogPayload {
        start_time: call.received_ms.saturating_add(ms(call.queue_time)),
        processing_time: int(call.processing_time),
        queue_time: int(call.queue_time),
        response_size: i64::try_from(call.reply_bytes).unwrap_or(i64::MAX),
        client_address: call.client.clone(),
        server_class: SERVER_CLASS.to_owned(),
        method_name: call.method.to_owned(),
        call_details: format!("{}({})", call.method, request_class(call.method)),
        param: Some(param(call.method, detail)),
        user_name: call.user.clone(),
        region_name: Some(detail.region.clone()),
        multi_gets: count(detail.actions.gets),
        multi_mutations: count(detail.actions.mutations),
        multi_service_calls: count(detail.actions.service_calls),
        r#type: match excess {
            ExceededLimits::Slow => Type::SlowLog,
            ExceededLimits::Large => Type::LargeLog,
            ExceededLimits::SlowAndLarge => Type::All,
        }
        .into(),
        fs_read_time: Some(ms(call.waits.of(Cause::BlockRead))),
        ..Default::default()
    }
}

/// Returns the Java class of a call's request.
fn request_class(method: &str) -> String {
    match method {
        "ExecService" => format!("{PROTOS}.ClientProtos$CoprocessorServiceRequest"),
        "BulkLoadHFile" | "CleanupBulkLoad" | "Get" | "Multi" | "Mutate" | "PrepareBulkLoad" | "Scan" => {
            format!("{PROTOS}.ClientProtos${method}Request")
        }
        _ => format!("{PROTOS}.AdminProtos${method}Request"),
    }
}

/// Describes the call as `ProtobufUtil.getSlowLogParams` does.
fn param(method: &str, detail: &RequestDetail) -> String {
    let RequestDetail { region, row, text, actions, .. } = detail;
    match method {
        "Get" | "Mutate" => format!("region= {region}, row= {}", Binary(row)),
        "Multi" => {
            let count =
                u64::from(actions.gets) + u64::from(actions.mutations) + u64::from(actions.service_calls);
            format!("region= {region}, for {count} action(s)")
        }
        "Scan" => format!("region {{ type: REGION_NAME value: \"{region}\" }} {text}"),
        _ if text.is_empty() => format!("class {}", request_class(method)),
        _ => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> pb::SlowLogPayload {
        let detail = RequestDetail {
            region: "ns:t,a,1.0123.".into(),
            row: b"r\xff".to_vec(),
            ..RequestDetail::default()
        };
        let request = SlowRequest {
            method: "Get",
            received_ms: 1_000,
            queue_time: std::time::Duration::from_millis(5),
            processing_time: std::time::Duration::from_micros(70_999),
            request_bytes: 1,
            reply_bytes: 2,
            client: "10.0.0.1:4000".into(),
            user: "someone".into(),
            error: "",
            detail,
            waits: evenkeel_metrics::Waits::NONE,
            surroundings: Default::default(),
        };
        payload(&request, ExceededLimits::SlowAndLarge)
    }

    #[test]
    fn a_slow_call_is_reported_as_by_hbase() {
        let call = call();
        assert_eq!((call.start_time, call.queue_time, call.processing_time), (1_005, 5, 70));
        assert_eq!(call.call_details, format!("Get({PROTOS}.ClientProtos$GetRequest)"));
        assert_eq!(call.param(), "region= ns:t,a,1.0123., row= r\\xFF");
        assert_eq!(call.r#type(), Type::All);
    }

    #[test]
    fn filters_combine_with_or_and_with_and() {
        let right = [
            ("region", "ns:t,a,1.0123."),
            ("table", "ns:t"),
            ("client", "10.0.0.1"),
            ("client", "10.0.0.1:4000"),
            ("user", "someone"),
        ];
        let filter = |kind: &str, value: &str, all: bool, request: &mut pb::SlowLogResponseRequest| {
            request.filter_by_operator =
                Some(if all { FilterByOperator::And } else { FilterByOperator::Or }.into());
            let field = match kind {
                "region" => &mut request.region_name,
                "table" => &mut request.table_name,
                "client" => &mut request.client_address,
                _ => &mut request.user_name,
            };
            *field = Some(value.to_owned());
        };
        let is_match = |request: &pb::SlowLogResponseRequest| Filters::of(request).match_call(&call());
        for (kind, value) in right {
            for all in [false, true] {
                let mut request = pb::SlowLogResponseRequest::default();
                assert!(is_match(&request), "no filter");
                filter(kind, value, all, &mut request);
                assert!(is_match(&request), "{kind}");
                let other = if kind == "user" { "table" } else { "user" };
                filter(other, "wrong", all, &mut request);
                assert_eq!(is_match(&request), !all, "{kind} and a wrong {other}");
                filter(other, "", all, &mut request);
                assert!(is_match(&request), "an empty filter is none");
                filter(kind, "wrong", all, &mut request);
                assert!(!is_match(&request), "{kind} wrong");
            }
        }
    }
}
