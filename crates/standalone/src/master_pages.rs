//! The master, as the status pages show it.

use std::sync::{Arc, Weak};

use evenkeel_master::Master;
use evenkeel_master::procedures::ProcedureState;
use evenkeel_status_pages::{MasterProcedure, MasterTable, MasterView};

/// A master that the pages do not keep alive. They show nothing of a master that has ended.
pub(crate) struct MasterPages(pub(crate) Weak<Master>);

impl MasterPages {
    fn of_master<T>(&self, read: impl FnOnce(&Arc<Master>) -> Vec<T>) -> Vec<T> {
        self.0.upgrade().as_ref().map(read).unwrap_or_default()
    }
}

impl MasterView for MasterPages {
    fn started_ms(&self) -> i64 {
        self.0.upgrade().map_or(0, |master| master.started_ms())
    }

    fn tables(&self) -> Vec<MasterTable> {
        self.of_master(|master| {
            let tables = master.tables().into_iter();
            let shown = tables.map(|table| MasterTable {
                descriptor: table.descriptor,
                state: format!("{:?}", table.state),
            });
            shown.collect()
        })
    }

    fn procedures(&self) -> Vec<(u64, MasterProcedure)> {
        self.of_master(|master| {
            master.procedures().all().into_iter().map(|(id, state)| (id, shown(state))).collect()
        })
    }
}

fn shown(state: ProcedureState) -> MasterProcedure {
    let ProcedureState { kind, table, has_begun, submitted_ms, updated_ms, outcome } = state;
    let outcome = outcome.map(|outcome| outcome.map(drop));
    MasterProcedure { kind, table, submitted_ms, updated_ms, has_begun, outcome }
}
