//! Rows of the report, as Markdown.

use std::fmt::Write as _;

use super::Cost;

/// The best of several rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Best(Option<Cost>);

impl Best {
    pub fn take(&mut self, cost: Cost) {
        let best = self.0.get_or_insert(cost);
        best.wall_s = best.wall_s.min(cost.wall_s);
        best.cpu_s = best.cpu_s.min(cost.cpu_s);
        best.resident_kib =
            (best.resident_kib.0.max(cost.resident_kib.0), best.resident_kib.1.max(cost.resident_kib.1));
    }

    pub fn cost(&self) -> Cost {
        self.0.unwrap_or_default()
    }
}

/// A row's two costs: stock's, then ours.
pub(super) type Pair = (Cost, Cost);

/// HBase's CPU for an item divided by ours.
pub(super) fn ratio((stock, ours): Pair) -> f64 {
    (stock.cpu_s / stock.items as f64) / (ours.cpu_s / ours.items as f64)
}

pub(super) fn head(out: &mut String, title: &str, columns: &[&str]) {
    let _ = write!(out, "\n## {title}\n\n| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
}

pub(super) const THROUGHPUT: [&str; 8] = [
    "what",
    "stock MB/s",
    "ours MB/s",
    "stock cells/s",
    "ours cells/s",
    "stock cells per CPU s",
    "ours cells per CPU s",
    "ratio",
];

pub(super) fn throughput(name: &str, pair: Pair) -> String {
    let (stock, ours) = pair;
    let mb_s = |cost: Cost| cost.bytes as f64 / cost.wall_s / 1e6;
    let per = |items: u64, seconds: f64| thousands(items as f64 / seconds);
    format!(
        "| {name} | {:.0} | {:.0} | {} | {} | {} | {} | {:.1} |",
        mb_s(stock),
        mb_s(ours),
        per(stock.items, stock.wall_s),
        per(ours.items, ours.wall_s),
        per(stock.items, stock.cpu_s),
        per(ours.items, ours.cpu_s),
        ratio(pair)
    )
}

/// `12,345 k`: thousands, with commas.
pub(super) fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number / 1e3);
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " k"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_cpu_for_an_item() {
        let cost = |items, cpu_s| Cost { items, cpu_s, wall_s: 1.0, ..Cost::default() };
        assert_eq!(ratio((cost(100, 2.0), cost(50, 0.1))), 10.0);
        assert!(throughput("x", (cost(100, 2.0), cost(50, 0.1))).ends_with("| 10.0 |"));
        assert_eq!(thousands(1_234_567_890.0), "1,234,568 k");
        assert_eq!(thousands(900.0), "1 k");
    }
}
