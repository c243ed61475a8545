//! Calls of coprocessor endpoints: named services of a region or the master, with their own
//! messages.
//!
//! ```no_run
//! # async fn example(table: evenkeel_client::Table) -> evenkeel_client::Result<()> {
//! use evenkeel_protocol::pb;
//! use prost::Message;
//! let request = pb::MutateRowsRequest::default().encode_to_vec();
//! let reply = table.exec_service("row", "MultiRowMutationService", "MutateRows", request).await?;
//! let reply = pb::MutateRowsResponse::decode(reply)?;
//! # Ok(()) }
//! ```

use bytes::Bytes;
use evenkeel_common::RegionInfo;
use evenkeel_protocol::pb;

use crate::admin::Admin;
use crate::error::Result;
use crate::table::Table;

impl Table {
    /// Calls a method of a service of the region that holds a row; returns its response message.
    /// The call is retried after transient failures, so the method may run twice.
    ///
    /// # Errors
    /// The server's exception, or [`Error::RetriesExhausted`].
    pub async fn exec_service(
        &self,
        row: impl AsRef<[u8]>,
        service: &str,
        method: &str,
        request: impl Into<Bytes>,
    ) -> Result<Bytes> {
        let row = row.as_ref();
        let mut request = pb::CoprocessorServiceRequest {
            region: pb::RegionSpecifier::default(),
            call: call(row, service, method, request.into()),
        };
        let at = |request: &mut pb::CoprocessorServiceRequest, region| request.region = region;
        let (response, _): (pb::CoprocessorServiceResponse, _) =
            self.call(row, "ExecService", &mut request, at, &[]).await?;
        Ok(response.value.value.unwrap_or_default())
    }

    /// Calls [`Table::exec_service`] on each region that has rows between `start` and `stop`, both
    /// included, in turn. An empty `stop` is the table's end.
    ///
    /// # Errors
    /// As [`Table::get`], if the regions cannot be read from hbase:meta. Each region has its own
    /// outcome.
    pub async fn exec_service_range(
        &self,
        start: impl AsRef<[u8]>,
        stop: impl AsRef<[u8]>,
        service: &str,
        method: &str,
        request: impl Into<Bytes>,
    ) -> Result<Vec<(RegionInfo, Result<Bytes>)>> {
        let (start, stop, request) = (start.as_ref(), stop.as_ref(), request.into());
        let mut outcomes = Vec::new();
        for region in self.connection().meta_regions(self.name()).await? {
            let region = region.region;
            let before = !region.end_key().is_empty() && region.end_key()[..] <= *start;
            let after = !stop.is_empty() && region.start_key()[..] > *stop;
            if before || after {
                continue;
            }
            let outcome = self.exec_service(region.start_key(), service, method, request.clone()).await;
            outcomes.push((region, outcome));
        }
        Ok(outcomes)
    }
}

impl Admin {
    /// Calls a method of a service of the master.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn exec_service(
        &self,
        service: &str,
        method: &str,
        request: impl Into<Bytes>,
    ) -> Result<Bytes> {
        let request = pb::CoprocessorServiceRequest {
            region: pb::RegionSpecifier {
                r#type: pb::region_specifier::RegionSpecifierType::RegionName as i32,
                value: Bytes::new(),
            },
            call: call(b"", service, method, request.into()),
        };
        let response: pb::CoprocessorServiceResponse =
            self.call_master("ExecMasterService", &request).await?;
        Ok(response.value.value.unwrap_or_default())
    }
}

fn call(row: &[u8], service: &str, method: &str, request: Bytes) -> pb::CoprocessorServiceCall {
    pb::CoprocessorServiceCall {
        row: Bytes::copy_from_slice(row),
        service_name: service.to_owned(),
        method_name: method.to_owned(),
        request,
    }
}
