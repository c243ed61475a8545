//! [`Distribution`]: exact counts of sizes.
//!
//! It has one counter per distinct size; keys, rows and blocks have few distinct sizes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use evenkeel_common::length;

/// The bounds of HBase's ranges (`-d`).
const RANGES: [u64; 18] = [
    1,
    3,
    10,
    50,
    100,
    500,
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    750_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
];
/// The longest bar of a histogram, in characters.
const BAR: u64 = 40;

/// The number of occurrences of each size.
#[derive(Debug, Default)]
pub struct Distribution {
    counts: BTreeMap<u64, u64>,
    count: u64,
    sum: u128,
}

impl Distribution {
    /// Counts a size.
    pub fn add(&mut self, size: u64) {
        *self.counts.entry(size).or_default() += 1;
        self.count += 1;
        self.sum += u128::from(size);
    }

    /// The number of counted sizes.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn min(&self) -> u64 {
        self.counts.first_key_value().map_or(0, |(size, _)| *size)
    }

    fn max(&self) -> u64 {
        self.counts.last_key_value().map_or(0, |(size, _)| *size)
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 =
            self.counts.iter().map(|(size, n)| (*size as f64 - mean).powi(2) * *n as f64).sum();
        (squares / self.count.saturating_sub(1).max(1) as f64).sqrt()
    }

    /// The smallest size that is at least as large as `per_mille` of 1000 sizes.
    fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let reached = self.counts.iter().find(|(_, n)| {
            seen += **n;
            seen >= wanted
        });
        reached.map_or(0, |(size, _)| *size)
    }

    /// Prints it in the format of HBase's tools.
    ///
    /// # Errors
    /// I/O errors of the output.
    pub fn print(&self, out: &mut dyn Write, name: &str) -> io::Result<()> {
        writeln!(out, "   {name}:")?;
        writeln!(out, "{:>18} = {}", "min", self.min())?;
        writeln!(out, "{:>18} = {}", "max", self.max())?;
        writeln!(out, "{:>18} = {:.2}", "mean", self.mean())?;
        writeln!(out, "{:>18} = {:.2}", "stddev", self.standard_deviation())?;
        writeln!(out, "{:>18} = {:.2}", "median", self.quantile(500) as f64)?;
        for (name, per_mille) in [("75%", 750), ("95%", 950), ("98%", 980), ("99%", 990), ("99.9%", 999)] {
            writeln!(out, "{name:>18} <= {:.2}", self.quantile(per_mille) as f64)?;
        }
        writeln!(out, "{:>18} = {}", "count", self.count)
    }

    /// Prints the count of each non-empty range of HBase.
    ///
    /// # Errors
    /// I/O errors of the output.
    pub fn print_ranges(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "           (range <= count):")?;
        let mut from = 0;
        for to in RANGES.into_iter().chain([u64::MAX]) {
            let n: u64 = self.counts.range(from..=to).map(|(_, n)| n).sum();
            let name = if to == u64::MAX { "inf".to_owned() } else { to.to_string() };
            if n > 0 {
                writeln!(out, "{name:>17} <= {n}")?;
            }
            from = to.saturating_add(1);
        }
        Ok(())
    }

    /// Prints the counts by powers of two, with bars.
    ///
    /// # Errors
    /// I/O errors of the output.
    pub fn print_histogram(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut bins = BTreeMap::<u64, u64>::new();
        for (size, n) in &self.counts {
            *bins.entry((size + 1).next_power_of_two()).or_default() += n;
        }
        let most = bins.values().copied().max().unwrap_or(1);
        for (end, n) in bins {
            let bar = "#".repeat(length::index((n * BAR).div_ceil(most)));
            writeln!(out, "{:>18} .. {:<11} {n:>11} {bar}", end / 2, end - 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn statistics_are_exact() {
        let mut sizes = Distribution::default();
        (1..=1000).for_each(|size| sizes.add(size));
        let text = printed(|out| sizes.print(out, "Key length"));
        for line in ["min = 1", "max = 1000", "mean = 500.50", "median = 500.00", "99.9% <= 999.00"] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn an_empty_distribution_prints() {
        let sizes = Distribution::default();
        assert!(printed(|out| sizes.print(out, "x")).contains("count = 0"));
        assert_eq!(printed(|out| sizes.print_histogram(out)), "");
    }

    #[test]
    fn ranges_and_bins_hold_each_size_once() {
        let mut sizes = Distribution::default();
        [0, 1, 2, 3, 4, 200_000_000].into_iter().for_each(|size| sizes.add(size));
        let ranges = printed(|out| sizes.print_ranges(out));
        let counts: Vec<_> = ranges.lines().skip(1).map(|line| line.trim().to_owned()).collect();
        assert_eq!(counts, ["1 <= 2", "3 <= 2", "10 <= 1", "inf <= 1"]);
        let bins = printed(|out| sizes.print_histogram(out));
        assert_eq!(bins.lines().count(), 5, "0, 1, 2 to 3, 4 to 7, and the large one: {bins}");
    }
}
