//! [`RpcQuotas`]: limits on the requests of users, and to tables, namespaces and this server
//! (HBase's `RegionServerRpcQuotaManager` and `QuotaCache`).
//!
//! The limits are rows of hbase:quota, which the master writes. The table is read when this server
//! starts, when the master reports a change, every `hbase.quota.refresh.period`, and soon after a
//! read that failed. Requests read a pointer to the [limits](Limits) that resulted, which are
//! never changed; only what is left of them is. So a request whose user, table and namespace have
//! no limit takes no lock and allocates nothing, unless the settings limit users without quotas.
//!
//! A request whose limit is used up is answered at once with `RpcThrottlingException`. Its message
//! ends with the time that the client must wait. No thread waits here.
//!
//! | request | checked | cost |
//! |---|---|---|
//! | Get | before it is read | its result, or the blocks that it read if they are larger |
//! | Mutate | before it is decoded | its cells |
//! | Multi | each region; a refusal fails the actions on it | as single Gets and writes |
//! | Scan | each call; a refusal leaves the scanner open | as a Get |
//!
//! Requests to system tables have no limit. Nor have calls of coprocessor services and bulk loads,
//! as in HBase.
//!
//! | module | contents |
//! |---|---|
//! | `default_users` | the limits of users without quotas of their own |
//! | [`limiter`] | the limits of one user, table, namespace or server |
//! | [`limits`] | all limits, from the cells of hbase:quota |
//! | [`operation`] | what one request has taken |
//! | [`rate_limiter`] | units that are refilled with time |
//! | [`settings`] | HBase's settings |
//! | [`space`] | quotas of space: writes to tables that exceed theirs are refused |
//! | [`table`] | reads hbase:quota from the regions of this server |

mod default_users;
pub mod limiter;
pub mod limits;
pub mod operation;
pub mod rate_limiter;
pub mod settings;
pub mod space;
pub mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use evenkeel_common::clock::Clock;
use evenkeel_common::quota::QuotaTarget;
use evenkeel_common::{Result, TableName, quoted};
use evenkeel_region::region::Region;
use evenkeel_rpc::{Call, ConnectionInfo};
use parking_lot::Mutex;

use self::default_users::DefaultUsers;
use self::limiter::{Exceeded, Limiter};
use self::limits::{Limits, ParsedQuotas, QuotaCell};
use self::operation::{Applicable, Estimates};
pub use self::operation::{OperationQuota, Request};
use self::settings::QuotaSettings;
use self::space::{SpaceQuotas, TableUses};
use crate::RegionServer;
use crate::requests::caller::Caller;

/// The maximum number of counters of refusals. Refusals beyond it are not counted.
const REFUSAL_COUNTERS_MAX: usize = 1000;
/// How often the rate of requests is measured.
const RATE_PERIOD_MS: i64 = 60_000;

/// hbase:quota of a server that is alone.
pub trait QuotaTable: Send + Sync {
    /// Reads the cells of the family `q`: none if the table does not exist. May wait.
    ///
    /// # Errors
    /// Errors of the table's regions; one that is not open is an error, too.
    fn cells(&self) -> Result<Vec<QuotaCell>>;

    /// Reads the use of space of tables from the family `u`: none if the table does not exist. May
    /// wait.
    ///
    /// # Errors
    /// As [`QuotaTable::cells`].
    fn table_uses(&self) -> Result<TableUses>;
}

/// The user whose quotas apply to a request.
#[derive(Clone, Debug, Default)]
pub struct QuotaUser(Option<NamedBy>);

#[derive(Clone, Debug)]
enum NamedBy {
    Connection(Arc<ConnectionInfo>),
    /// By an attribute of the request.
    Request(Arc<str>),
}

impl QuotaUser {
    /// No user, or quotas are off.
    pub const NONE: Self = Self(None);

    /// A user by name.
    pub fn named(name: &str) -> Self {
        Self(Some(NamedBy::Request(name.into())))
    }

    /// Returns the user's name, without host and realm.
    fn name(&self) -> Option<&str> {
        match self.0.as_ref()? {
            NamedBy::Connection(connection) => connection.user.as_deref()?.split(['/', '@']).next(),
            NamedBy::Request(name) => Some(name),
        }
    }
}

/// The rate of requests, for the estimate of their time.
#[derive(Debug, Default)]
struct RequestRate {
    measured_ms: AtomicI64,
    requests: AtomicU64,
    per_second: AtomicU64,
}

/// A refusal, as it is counted: the limit, the user and the table.
pub type Refusal = (&'static str, String, String);

/// See the module's documentation.
pub struct RpcQuotas {
    settings: QuotaSettings,
    clock: Arc<dyn Clock>,
    limits: ArcSwap<Limits>,
    /// The switch of operators.
    is_on: AtomicBool,
    default_users: Option<DefaultUsers>,
    space: SpaceQuotas,
    rate: RequestRate,
    refusals: Mutex<BTreeMap<Refusal, u64>>,
    table: OnceLock<Arc<dyn QuotaTable>>,
    /// Whether the last read of `table` failed.
    is_stale: AtomicBool,
    /// Called when the master reports a change.
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The number of reads of the table that have begun.
    reads: AtomicU64,
    /// The number of the read whose limits apply.
    installed: Mutex<u64>,
}

/// A read of hbase:quota that has begun.
#[derive(Debug)]
pub struct QuotaRead(u64);

impl RpcQuotas {
    /// Creates them without limits, switched on.
    pub fn new(settings: QuotaSettings, clock: Arc<dyn Clock>) -> Self {
        let has_defaults = Limiter::new(&settings.default_user, 1.0, settings.refill, None).is_some();
        Self {
            settings,
            clock,
            limits: ArcSwap::default(),
            is_on: AtomicBool::new(true),
            default_users: has_defaults.then(DefaultUsers::default),
            space: SpaceQuotas::default(),
            rate: RequestRate::default(),
            refusals: Mutex::default(),
            table: OnceLock::new(),
            is_stale: AtomicBool::new(false),
            on_change: OnceLock::new(),
            reads: AtomicU64::new(0),
            installed: Mutex::new(0),
        }
    }

    /// Sets where [`RpcQuotas::reload`] reads the limits. Only the first call has an effect.
    pub fn connect(&self, table: Arc<dyn QuotaTable>) {
        drop(self.table.set(table));
    }

    /// Sets a function that [`RpcQuotas::report_change`] calls, which must not wait. Only the
    /// first call has an effect.
    pub fn on_change(&self, function: Box<dyn Fn() + Send + Sync>) {
        drop(self.on_change.set(function));
    }

    /// Makes whatever reads the limits of this server read them again soon.
    pub fn report_change(&self) {
        self.on_change.get().into_iter().for_each(|function| function());
    }

    /// Returns true if the last [`RpcQuotas::reload`] failed.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Reads the limits again. May wait for the table. Does nothing before
    /// [`RpcQuotas::connect`].
    ///
    /// # Errors
    /// Errors of [`QuotaTable`]; the limits stay as they are then.
    pub fn reload(&self, server: &RegionServer) -> Result<()> {
        let Some(table) = self.table.get() else { return Ok(()) };
        let read = self.begin_read();
        let cells = table.cells();
        self.is_stale.store(cells.is_err(), Ordering::Relaxed);
        self.install(server, read, &ParsedQuotas::of(cells?), (1, &HashMap::new()));
        Ok(())
    }

    /// Begins a read of the table. What a read that began later finds is not replaced by it.
    pub fn begin_read(&self) -> QuotaRead {
        QuotaRead(self.reads.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Applies the quotas that a read has found, with the number of RegionServers, and the numbers
    /// of open regions of tables on all of them. A table of which neither this number nor a region
    /// here is known is not shared: no request is made to it here, or the first of its regions
    /// opens before the shares are computed again.
    pub fn install(
        &self,
        server: &RegionServer,
        QuotaRead(read): QuotaRead,
        parsed: &ParsedQuotas,
        (servers, open_regions): (usize, &HashMap<TableName, u64>),
    ) {
        let share_of_table = |table: &TableName| {
            // The master counts the secondary replicas, too.
            let here = server.regions().of_table(table).len() as u64;
            let all = open_regions.get(table).copied().unwrap_or(here);
            if here == 0 { 1.0 } else { here as f64 / all.max(here) as f64 }
        };
        let servers = servers.max(1) as f64;
        let share = |target: &QuotaTarget| match target {
            QuotaTarget::Table(table) | QuotaTarget::UserTable(_, table) => share_of_table(table),
            QuotaTarget::RegionServer(_) => 1.0,
            _ => 1.0 / servers,
        };
        let mut installed = self.installed.lock();
        if *installed < read {
            *installed = read;
            let limits = Limits::new(parsed, share, self.settings.refill, &self.limits.load());
            self.limits.store(Arc::new(limits));
        }
    }

    /// Returns the quotas of space. The switch of throttles does not concern them.
    #[inline]
    pub fn space(&self) -> &SpaceQuotas {
        &self.space
    }

    /// Switches the checks on or off.
    pub fn set_on(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Returns true if requests are checked.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns how often requests were refused.
    pub fn refusals(&self) -> Vec<(Refusal, u64)> {
        self.refusals.lock().iter().map(|(refusal, count)| (refusal.clone(), *count)).collect()
    }

    /// Returns the user of a call.
    fn user_of(&self, call: &Call) -> QuotaUser {
        let attribute = self.settings.user_attribute.as_ref().and_then(|key| {
            let found = call.attributes().into_iter().find(|(name, _)| name == key);
            found.map(|(_, value)| String::from_utf8_lossy(&value).into_owned())
        });
        match attribute {
            Some(name) => QuotaUser(Some(NamedBy::Request(name.into()))),
            None => QuotaUser(Some(NamedBy::Connection(Arc::clone(&call.connection)))),
        }
    }

    /// Returns the limits that apply to a user's requests to a table.
    fn applicable(&self, user: &str, table: &TableName) -> Applicable {
        if table.is_system() || !self.is_on() {
            return Applicable::default();
        }
        let limits = self.limits.load();
        let mut found = Applicable::default();
        if limits.is_empty() && self.default_users.is_none() {
            return found;
        }
        if limits.has_user(user) {
            found.limiters.extend(limits.of_user(user, table).cloned());
            if limits.bypasses_globals(user) {
                return found;
            }
        } else if let Some(defaults) = &self.default_users {
            let new = || Limiter::new(&self.settings.default_user, 1.0, self.settings.refill, None);
            found.limiters.extend(defaults.limiter(user, self.clock.now_ms(), new));
        }
        found.limiters.extend(limits.of_table(table).cloned());
        match limits.may_exceed() {
            true => found.may_exceed = limits.of_server().cloned(),
            false => found.limiters.extend(limits.of_server().cloned()),
        }
        found
    }

    fn check(
        &self,
        server: &RegionServer,
        caller: &Caller,
        region: &Region,
        request: Request,
    ) -> Result<OperationQuota> {
        let table = region.info().table();
        let user = caller.quota_user.name().unwrap_or_default();
        let limits = self.applicable(user, table);
        if limits.is_empty() {
            return Ok(OperationQuota::NONE);
        }
        let now_ms = self.clock.now_ms();
        let limits_time = |limiter: &Arc<Limiter>| limiter.limits_handler_time();
        let handler_ms = match limits.limiters.iter().chain(&limits.may_exceed).any(limits_time) {
            true => self.estimated_ms(server, now_ms),
            false => 0,
        };
        let block_sizes = region.table().families().map(|family| family.block_bytes());
        let block_bytes =
            block_sizes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)).min().unwrap_or(0);
        let estimates = Estimates { settings: &self.settings, block_bytes, handler_ms };
        OperationQuota::take(request, limits, &estimates, now_ms).map_err(|exceeded| {
            self.count_refusal(&exceeded, user, table);
            exceeded.error()
        })
    }

    fn count_refusal(&self, exceeded: &Exceeded, user: &str, table: &TableName) {
        let refusal = (exceeded.type_name(), quoted(user.as_bytes()).to_string(), table.to_string());
        let mut refusals = self.refusals.lock();
        if let Some(count) = refusals.get_mut(&refusal) {
            *count += 1;
        } else if refusals.len() < REFUSAL_COUNTERS_MAX {
            refusals.insert(refusal, 1);
        }
    }

    /// Returns HBase's estimate of the milliseconds that a handler needs for a request.
    fn estimated_ms(&self, server: &RegionServer, now_ms: i64) -> i64 {
        let per_second = self.rate.per_second(server, now_ms);
        if per_second <= self.settings.handlers { self.settings.handlers } else { (per_second + 999) / 1000 }
    }
}

impl RequestRate {
    /// Returns the requests a second of the last period that has ended.
    fn per_second(&self, server: &RegionServer, now_ms: i64) -> i64 {
        let order = Ordering::Relaxed;
        let before_ms = self.measured_ms.load(order);
        let passed_ms = now_ms.saturating_sub(before_ms);
        let is_due = !(0..RATE_PERIOD_MS).contains(&passed_ms);
        if is_due && self.measured_ms.compare_exchange(before_ms, now_ms, order, order).is_ok() {
            let requests = server.counters().total();
            let made = requests.saturating_sub(self.requests.swap(requests, order));
            let seconds = (passed_ms / 1000).max(1).unsigned_abs();
            self.per_second.store(made / seconds, order);
        }
        i64::try_from(self.per_second.load(order)).unwrap_or(i64::MAX)
    }
}

impl RegionServer {
    /// Returns the quotas; `None` if they are not enabled.
    pub fn quotas(&self) -> Option<&Arc<RpcQuotas>> {
        self.quotas.as_ref()
    }

    /// Reads the quotas again, if they are enabled. May wait for the table.
    ///
    /// # Errors
    /// As [`RpcQuotas::reload`].
    pub fn reload_quotas(&self) -> Result<()> {
        self.quotas.as_ref().map_or(Ok(()), |quotas| quotas.reload(self))
    }

    /// Returns the user whose quotas apply to a call.
    #[inline]
    pub(crate) fn quota_user_of(&self, call: &Call) -> QuotaUser {
        self.quotas.as_ref().map_or(QuotaUser::NONE, |quotas| quotas.user_of(call))
    }

    /// Checks a request to a region against the quotas, and takes its estimated cost.
    ///
    /// # Errors
    /// `RpcThrottlingException`.
    #[inline]
    pub(crate) fn check_quota(
        &self,
        caller: &Caller,
        region: &Region,
        request: Request,
    ) -> Result<OperationQuota> {
        match &self.quotas {
            None => Ok(OperationQuota::NONE),
            Some(quotas) => quotas.check(self, caller, region, request),
        }
    }
}
