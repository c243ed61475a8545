//! [`Submitted`]: the master's procedures that are running here, and opens and closes of regions
//! that ended recently.
//!
//! The master sends a procedure again if it got no response to the RPC that carried it. The
//! duplicate must not run concurrently with the first. A duplicate of an open or a close must not
//! run after it either. Other procedures run again, as in HBase: the master repeats one that
//! failed, or whose report was lost, with the same id.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How long the id of an ended procedure is kept (`HRegionServer.executedRegionProcs`).
const REMEMBERED_MS: i64 = 600_000;
/// The id of work that belongs to no procedure (`Procedure.NO_PROC_ID`).
pub const NO_PROCEDURE: i64 = -1;

/// Procedures by id; `None` for one that is running, otherwise the time of its end.
#[derive(Default)]
pub struct Submitted(Mutex<HashMap<i64, Option<i64>>>);

impl Submitted {
    /// Marks a procedure as running; returns false if it is already known.
    pub fn begin(&self, id: i64, now_ms: i64) -> bool {
        if id == NO_PROCEDURE {
            return true;
        }
        let mut known = self.0.lock();
        known.retain(|_, ended| ended.is_none_or(|at| now_ms.saturating_sub(at) < REMEMBERED_MS));
        match known.entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
        }
    }

    /// Marks a procedure as ended.
    pub fn end(&self, id: i64, now_ms: i64) {
        if let Some(ended) = self.0.lock().get_mut(&id) {
            *ended = Some(now_ms);
        }
    }

    /// Forgets a procedure that could not be queued: the master may send it again.
    pub fn forget(&self, id: i64) {
        self.0.lock().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_runs_once() {
        let submitted = Submitted::default();
        assert!(submitted.begin(7, 0) && !submitted.begin(7, 1));
        submitted.end(7, 2);
        assert!(!submitted.begin(7, 3), "the reply was lost, not the procedure");
        assert!(submitted.begin(7, 2 + REMEMBERED_MS), "an id comes again after a restart of the master");
        submitted.forget(7);
        assert!(submitted.begin(7, 4));
        assert!(submitted.begin(NO_PROCEDURE, 0) && submitted.begin(NO_PROCEDURE, 0));
    }
}
