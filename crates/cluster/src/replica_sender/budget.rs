//! [`SendBudget`]: the memory of entries for secondary replicas on other servers.

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_common::{Budget, Charge};
use parking_lot::Mutex;

/// The bytes of queued entries: of all secondary replicas, of those of one server (3/4 of them),
/// and of one (1/2). So a server that does not answer leaves space for others.
pub(super) struct SendBudget {
    all: Arc<Budget>,
    servers: Mutex<HashMap<String, Arc<Budget>>>,
}

/// The charge of an entry.
pub(super) type Charges = [Charge; 3];

impl SendBudget {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { all: Budget::new(bytes_max), servers: Mutex::default() }
    }

    /// Returns the budgets of a secondary replica on a server.
    pub(super) fn of_replica(&self, address: &str) -> [Arc<Budget>; 3] {
        let mut servers = self.servers.lock();
        // Budgets that nobody holds are of servers that have no secondary replica any more.
        servers.retain(|_, budget| Arc::strong_count(budget) > 1);
        let new = || Budget::new(self.all.max() / 4 * 3);
        let of_server = Arc::clone(servers.entry(address.to_owned()).or_insert_with(new));
        [Arc::clone(&self.all), of_server, Budget::new(self.all.max() / 2)]
    }

    /// The bytes in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.all.used()
    }
}

/// Takes bytes from all budgets, or from none.
pub(super) fn charge(budgets: &[Arc<Budget>; 3], bytes: u64) -> Option<Charges> {
    let mut charges = budgets.each_ref().map(|budget| Charge::none(Arc::clone(budget)));
    charges.iter_mut().all(|charge| charge.acquire(bytes)).then_some(charges)
}
