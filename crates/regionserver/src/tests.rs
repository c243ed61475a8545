//! Requests against real regions, without a network.

mod abandoned_reads;
mod background;
mod budget;
mod chore;
mod endpoint;
mod get_batch;
mod inline;
mod locked_rows;
mod master_connection;
mod memory;
mod multi;
mod priority;
mod quotas;
mod reads_and_writes;
mod replicas;
mod replies;
mod scan;
mod scanners;
mod space_quotas;
mod split_requests;
