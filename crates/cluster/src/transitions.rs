//! Opens and closes regions on request of the master.
//!
//! ```text
//! open    the table's descriptor -> Region::open -> report OPENED -> online, requests are served
//!                                                   report FAILED_OPEN if it cannot be opened
//! close   Region::close (flush, marker) -> no longer online -> report CLOSED
//! ```
//! The master locates a region by the last report. So a region is online here only between its
//! OPENED and its CLOSED, and a report is retried until the master accepts it. A report that the
//! master rejects aborts the server, and so does a close that fails: then no other process has a
//! record of which edits of the region are where. A panic while a region opens or closes counts as
//! an error; any other panic here aborts the server, because the master may wait for a report.
//! (HBase aborts in both cases.)
//!
//! A region has one transition at a time here: an open waits for a close in progress to end, and a
//! close for an open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_common::clock::{self, Clock};
use evenkeel_common::thread::catch;
use evenkeel_common::{HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::region_state_transition::TransitionCode;
use evenkeel_region::region::{Region, RegionEnv};
use evenkeel_region::{descriptors, layout};
use evenkeel_regionserver::{MasterConnection, RegionServer};
use parking_lot::{Condvar, Mutex};

use crate::abort::Abort;
use crate::hot_blocks::HotBlocks;
use crate::submitted_procedures::NO_PROCEDURE;

/// The pause between attempts of a report.
const REPORT_PAUSE: Duration = Duration::from_millis(500);
/// How often a transition that waits for another checks whether the server ends.
const WAIT_LOOK: Duration = Duration::from_secs(1);

/// The master's procedure for a region, to be named in the report.
#[derive(Clone, Copy, Debug)]
pub struct Procedure {
    /// Its id, or [`NO_PROCEDURE`].
    pub id: i64,
    /// When the master that sent it became active; echoed, so that a later master can compare.
    pub master_active_ms: Option<i64>,
}

impl Procedure {
    /// Work that belongs to no procedure of the master.
    pub const NONE: Self = Self { id: NO_PROCEDURE, master_active_ms: None };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Opening,
    Closing,
}

/// See the module's documentation.
pub struct Transitions {
    server: Arc<RegionServer>,
    master: Arc<dyn MasterConnection>,
    abort: Arc<Abort>,
    clock: Arc<dyn Clock>,
    user_env: Arc<RegionEnv>,
    meta_env: Arc<RegionEnv>,
    hot_blocks: Option<Arc<HotBlocks>>,
    /// By encoded name.
    under_way: Mutex<HashMap<String, Direction>>,
    one_ended: Condvar,
    is_stopping: AtomicBool,
}

/// The environment of regions, and the master to which transitions are reported.
pub struct TransitionParts {
    /// The server.
    pub server: Arc<RegionServer>,
    /// Its master.
    pub master: Arc<dyn MasterConnection>,
    /// Ends the server.
    pub abort: Arc<Abort>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// The environment that regions of tables are opened with.
    pub user_env: Arc<RegionEnv>,
    /// The environment that hbase:meta is opened with.
    pub meta_env: Arc<RegionEnv>,
    /// Keeps regions warm that move between Evenkeel servers.
    pub hot_blocks: Option<Arc<HotBlocks>>,
}

impl Transitions {
    /// Creates it without any transition.
    pub fn new(parts: TransitionParts) -> Arc<Self> {
        let (under_way, one_ended, is_stopping) = Default::default();
        Arc::new(Self {
            server: parts.server,
            master: parts.master,
            abort: parts.abort,
            clock: parts.clock,
            user_env: parts.user_env,
            meta_env: parts.meta_env,
            hot_blocks: parts.hot_blocks,
            under_way,
            one_ended,
            is_stopping,
        })
    }

    /// Makes a report that the master cannot accept fail instead of being retried: the server
    /// stops, and the end of its session carries the same information.
    pub fn stop_repeating(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Opens a region and reports the outcome to the master.
    pub fn open(&self, info: &RegionInfo, procedure: Procedure) {
        let name = info.encoded_name();
        if self.begin(name, Direction::Opening) {
            self.run(name, || self.open_and_report(info, procedure));
        }
    }

    /// Runs a transition that has begun, and ends it.
    fn run(&self, name: &str, transition: impl FnOnce()) {
        let outcome = catch(format_args!("the transition of {name}"), || {
            transition();
            Ok(())
        });
        if let Err(error) = outcome {
            self.abort.now(&format!("a transition of region {name} has no outcome: {error}"));
        }
        self.end(name);
    }

    fn open_and_report(&self, info: &RegionInfo, procedure: Procedure) {
        let name = info.encoded_name();
        if self.server.regions().find(name).is_some() {
            tracing::warn!(region = %info.name_text(), "the region is open already; the request is ignored");
            return;
        }
        self.server.regions().set_opening(name, true);
        match catch(format_args!("the open of {name}"), || self.open_now(info)) {
            Ok(region) => self.opened(&region, procedure),
            Err(error) => {
                tracing::error!(region = %info.name_text(), %error, "the region cannot be opened");
                self.server.regions().set_opening(name, false);
                self.report(TransitionCode::FailedOpen, info, None, procedure);
            }
        }
    }

    fn open_now(&self, info: &RegionInfo) -> Result<Arc<Region>> {
        let env = if info.is_meta() { &self.meta_env } else { &self.user_env };
        let (fs, root) = (&*env.stores.fs, &env.stores.root);
        let table_dir = layout::table_dir(root, info.table());
        let table = descriptors::read(fs, &table_dir)?
            .ok_or_else(|| HBaseError::io(format!("{} has no table descriptor", table_dir.display())))?;
        let dir = layout::region_dir(root, info);
        if !fs.exists(&dir)? {
            // The master creates it. A removed directory must not come back empty.
            return Err(HBaseError::io(format!("{} does not exist", dir.display())));
        }
        Region::open(Arc::clone(env), info.clone(), Arc::new(table))
    }

    fn opened(&self, region: &Arc<Region>, procedure: Procedure) {
        let info = region.info();
        let seq_num = Some(region.open_seq_num());
        if !self.report(TransitionCode::Opened, info, seq_num, procedure) {
            return;
        }
        drop(self.server.regions().add(Arc::clone(region)));
        if let Some(hot_blocks) = &self.hot_blocks {
            hot_blocks.region_opened(region);
        }
        self.server.background().request_due_compaction(region, clock::monotonic());
    }

    /// Closes a region and reports it to the master. Ignores a region that is not here: the
    /// master's records, or the end of this server, account for it.
    pub fn close(&self, name: &str, destination: Option<ServerName>, procedure: Procedure) {
        if self.begin(name, Direction::Closing) {
            self.run(name, || match self.server.regions().find(name) {
                None => tracing::warn!(region = name, "the region is not open; the request is ignored"),
                Some(region) => self.close_and_report(&region, destination, procedure),
            });
        }
    }

    fn close_and_report(&self, region: &Arc<Region>, destination: Option<ServerName>, procedure: Procedure) {
        let info = region.info();
        // Before the close, which may add a file of which nothing is cached.
        if let (Some(hot_blocks), Some(to)) = (&self.hot_blocks, &destination) {
            hot_blocks.region_closes(region, to);
        }
        if let Err(error) =
            catch(format_args!("the close of {}", info.encoded_name()), || region.close(false))
        {
            return self.abort.now(&format!("region {} cannot be closed: {error}", info.name_text()));
        }
        let seq_num = i64::try_from(region.open_seq_num()).unwrap_or(i64::MAX);
        let moved_to = destination.map(|server| (server, seq_num));
        drop(self.server.regions().remove(info.encoded_name(), moved_to));
        self.report(TransitionCode::Closed, info, None, procedure);
    }

    /// Marks a transition as in progress; waits for one in the other direction. Returns false if
    /// the same transition is already in progress, and once the server aborts.
    fn begin(&self, name: &str, direction: Direction) -> bool {
        let mut under_way = self.under_way.lock();
        loop {
            if self.abort.is_aborting() {
                return false;
            }
            match under_way.get(name) {
                None => {
                    under_way.insert(name.to_owned(), direction);
                    return true;
                }
                Some(same) if *same == direction => {
                    tracing::warn!(region = name, ?direction, "already in progress; the request is ignored");
                    return false;
                }
                Some(_) => _ = self.one_ended.wait_for(&mut under_way, WAIT_LOOK),
            }
        }
    }

    fn end(&self, name: &str) {
        self.under_way.lock().remove(name);
        self.one_ended.notify_all();
    }

    /// Reports to the master until it accepts. Returns false if it rejects the report, and once the
    /// server aborts or stops.
    fn report(
        &self,
        code: TransitionCode,
        info: &RegionInfo,
        open_seq_num: Option<u64>,
        procedure: Procedure,
    ) -> bool {
        let request = pb::ReportRegionStateTransitionRequest {
            server: self.server.name().into(),
            transition: vec![pb::RegionStateTransition {
                transition_code: code.into(),
                region_info: vec![info.into()],
                open_seq_num,
                proc_id: vec![procedure.id],
                initiating_master_active_time: procedure.master_active_ms,
            }],
        };
        while !self.abort.is_aborting() {
            match self.master.report_region_state_transition(request.clone()) {
                Ok(response) => return self.is_accepted(code, info, response.error_message),
                Err(error) => {
                    tracing::warn!(region = %info.name_text(), %error, "a report to the master failed");
                    if self.is_stopping.load(Ordering::Acquire) {
                        return false;
                    }
                    std::thread::sleep(REPORT_PAUSE);
                }
            }
        }
        false
    }

    fn is_accepted(&self, code: TransitionCode, info: &RegionInfo, refusal: Option<String>) -> bool {
        let Some(refusal) = refusal.filter(|text| !text.is_empty()) else { return true };
        let what = format!("{} of {} is not accepted: {refusal}", code.as_str_name(), info.name_text());
        match code {
            TransitionCode::FailedOpen => tracing::error!("{what}"),
            _ => self.abort.now(&what),
        }
        false
    }

    /// Wall-clock time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The server whose regions these are.
    pub fn server(&self) -> &Arc<RegionServer> {
        &self.server
    }

    /// Its master.
    pub fn master(&self) -> &Arc<dyn MasterConnection> {
        &self.master
    }

    /// Ends the server.
    pub fn abort(&self) -> &Arc<Abort> {
        &self.abort
    }

    /// The environment that regions of tables are opened with.
    pub fn env(&self) -> &Arc<RegionEnv> {
        &self.user_env
    }
}

#[cfg(test)]
pub(crate) mod tests;
