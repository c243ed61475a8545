//! [`View`]: the content of the view, and how keys change it.

use crate::rates::{Rates, RegionRates};
use crate::slow::SlowRequest;
use crate::snapshot::Snapshot;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct View {
    /// The server's address.
    pub address: String,
    /// The last snapshot of the server.
    pub now: Snapshot,
    /// The rates since the snapshot before; zero at first.
    pub rates: Rates,
    /// Why the last request to the server failed.
    pub error: Option<String>,
    /// Slow requests, the newest first.
    pub slow: Vec<SlowRequest>,
    /// The order of regions.
    pub order: Order,
    /// The index of the first region that is shown.
    pub first_region: usize,
}

/// The order of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The regions with the most requests first.
    #[default]
    Requests,
    /// The largest regions first.
    Size,
    /// By table and name.
    Name,
}

impl Order {
    /// Returns the next order.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Requests => Self::Size,
            Self::Size => Self::Name,
            Self::Name => Self::Requests,
        }
    }

    /// Returns the name of the order.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Size => "size",
            Self::Name => "name",
        }
    }
}

impl View {
    /// Creates the view of a server's first snapshot.
    pub fn new(address: &str, now: Snapshot) -> Self {
        let rates = Rates::between(&now, &now);
        Self {
            address: address.to_owned(),
            now,
            rates,
            error: None,
            slow: Vec::new(),
            order: Order::default(),
            first_region: 0,
        }
    }

    /// Advances to a later snapshot.
    pub fn advance(&mut self, now: Snapshot) {
        self.rates = Rates::between(&self.now, &now);
        self.now = now;
        self.error = None;
        self.scroll(0);
    }

    /// Scrolls by a number of regions.
    pub fn scroll(&mut self, by: isize) {
        let last = self.rates.regions.len().saturating_sub(1);
        self.first_region = self.first_region.saturating_add_signed(by).min(last);
    }

    /// Returns the regions, from the first one that is shown.
    pub fn regions(&self) -> Vec<&RegionRates> {
        let mut regions: Vec<_> = self.rates.regions.iter().collect();
        match self.order {
            // Already in this order.
            Order::Requests => {}
            Order::Size => regions.sort_by(|a, b| b.now.file_bytes.total_cmp(&a.now.file_bytes)),
            Order::Name => regions.sort_by(|a, b| (&a.now.table, &a.name).cmp(&(&b.now.table, &b.name))),
        }
        regions.into_iter().skip(self.first_region).collect()
    }
}
