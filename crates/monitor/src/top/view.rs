//! [`View`]: what is shown, and what keys change of it.

use crate::rates::{Rates, RegionRates};
use crate::slow::SlowRequest;
use crate::snapshot::Snapshot;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct View {
    /// Where the server is.
    pub address: String,
    /// What the server said last.
    pub now: Snapshot,
    /// What happened since the time before; nothing at first.
    pub rates: Rates,
    /// Why the server did not answer last time.
    pub error: Option<String>,
    /// Slow requests, the newest first.
    pub slow: Vec<SlowRequest>,
    /// The order of regions.
    pub order: Order,
    /// The first region that is shown.
    pub first_region: usize,
}

/// An order of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those with the most requests first.
    #[default]
    Requests,
    /// The largest first.
    Size,
    /// By table and name.
    Name,
}

impl Order {
    /// The order that comes after this one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Requests => Self::Size,
            Self::Size => Self::Name,
            Self::Name => Self::Requests,
        }
    }

    /// What it is by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Size => "size",
            Self::Name => "name",
        }
    }
}

impl View {
    /// A server's first snapshot.
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

    /// Goes on to a later snapshot.
    pub fn advance(&mut self, now: Snapshot) {
        self.rates = Rates::between(&self.now, &now);
        self.now = now;
        self.error = None;
        self.scroll(0);
    }

    /// Shows other regions.
    pub fn scroll(&mut self, by: isize) {
        let last = self.rates.regions.len().saturating_sub(1);
        self.first_region = self.first_region.saturating_add_signed(by).min(last);
    }

    /// The regions from the first that is shown on.
    pub fn regions(&self) -> Vec<&RegionRates> {
        let mut regions: Vec<_> = self.rates.regions.iter().collect();
        match self.order {
            // As they are.
            Order::Requests => {}
            Order::Size => regions.sort_by(|a, b| b.now.file_bytes.total_cmp(&a.now.file_bytes)),
            Order::Name => regions.sort_by(|a, b| (&a.now.table, &a.name).cmp(&(&b.now.table, &b.name))),
        }
        regions.into_iter().skip(self.first_region).collect()
    }
}
