//! Charts as SVG: lines over time, and dots and bars over time.
//!
//! A plot stretches to any width. So it contains no text, and its strokes do not scale; the labels
//! are HTML around it, equally spaced. Colours are classes of the style sheet, which has two sets
//! of them. The values of a line chart are also in an attribute, from which the script shows the
//! values under the pointer, or selected with the arrow keys.

use maud::{Markup, html};

use crate::format::Quantity;

/// The height and the width of a plot, in its coordinates.
const HEIGHT: f64 = 100.0;
const WIDTH: f64 = 1000.0;
/// The number of grid intervals from bottom to top.
const STEPS: usize = 4;

/// The time span of a chart, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The left end.
    pub from_ms: i64,
    /// The right end.
    pub to_ms: i64,
}

impl Span {
    /// Creates the span of the last `ms` milliseconds.
    pub fn last(now_ms: i64, ms: i64) -> Self {
        Self { from_ms: now_ms - ms, to_ms: now_ms }
    }

    /// Returns the x coordinate of a moment.
    pub fn x(self, at_ms: i64) -> f64 {
        let part = (at_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms).max(1) as f64;
        part.clamp(0.0, 1.0) * WIDTH
    }

    /// Returns true if the span contains a moment.
    pub fn contains(self, at_ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms)
    }

    /// Returns labels with the ages of the moments that divide the span into five parts.
    pub fn labels(self) -> Markup {
        let ago = |part: i64| (self.to_ms - self.from_ms) * (5 - part) / 5;
        let label = |ms: i64| match ms / 1_000 {
            0 => "now".to_owned(),
            seconds if seconds % 60 == 0 => format!("−{} min", seconds / 60),
            seconds => format!("−{seconds} s"),
        };
        html! { div.xs aria-hidden="true" { @for part in 0..=5 { span { (label(ago(part))) } } } }
    }
}

/// A line of a chart.
pub struct Series {
    /// Its name.
    pub name: &'static str,
    /// The name of its metric.
    pub metric: &'static str,
    /// Its colour: a class of the style sheet.
    pub class: &'static str,
    /// Its values, one for each moment of the chart; `None` if there is none.
    pub values: Vec<Option<f64>>,
}

/// How values map to heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From 0 to a round number that is at least this.
    Linear(f64),
    /// From one power of ten to another.
    Log(i32, i32),
}

impl Scale {
    /// Returns the linear scale that covers all values of some lines.
    pub fn linear(series: &[Series], at_least: f64) -> Self {
        let values = series.iter().flat_map(|series| series.values.iter().flatten());
        Self::Linear(round_up(values.copied().fold(at_least, f64::max)))
    }

    /// Returns the logarithmic scale that covers all values, with at least [`STEPS_LOG`] powers of
    /// ten. A value below the bottom is drawn at the bottom.
    pub fn log(values: impl Iterator<Item = f64>) -> Self {
        let (least, greatest) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0), |(least, greatest), value| (value.min(least), value.max(greatest)));
        if greatest <= 0.0 {
            return Self::Log(1, 1 + STEPS_LOG);
        }
        let power =
            |value: f64| i32::try_from(evenkeel_common::length::whole(value.log10().max(0.0))).unwrap_or(0);
        let (low, high) = (power(least), power(greatest) + 1);
        Self::Log(low, high.max(low + STEPS_LOG))
    }

    /// Returns the height of a value above the bottom, 0 to 1.
    pub fn part(self, value: f64) -> f64 {
        let part = match self {
            Self::Linear(max) => value / max,
            Self::Log(low, high) => {
                (value.max(f64::MIN_POSITIVE).log10() - f64::from(low)) / f64::from(high - low)
            }
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns the y coordinate of a value.
    pub fn y(self, value: f64) -> f64 {
        HEIGHT - self.part(value) * (HEIGHT - 2.0) - 1.0
    }

    /// Returns the values at the grid lines, the greatest first.
    pub fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(max) => (0..=STEPS).rev().map(|step| max * step as f64 / STEPS as f64).collect(),
            Self::Log(low, high) => (low..=high).rev().map(|power| 10_f64.powi(power)).collect(),
        }
    }
}

/// The minimum number of powers of ten in a logarithmic scale.
const STEPS_LOG: i32 = 3;

/// Rounds up to one of 1, 2, 4, 6, 8, 10, 20, ..., whose quarters have few digits.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

/// Lines over time.
pub struct LineChart<'a> {
    /// An id that is unique on the page.
    pub id: &'a str,
    /// A description for users who do not see the chart.
    pub label: &'a str,
    /// The moments, in milliseconds since 1970, ascending.
    pub moments: &'a [i64],
    /// The time span shown.
    pub span: Span,
    /// The lines, the last drawn on top.
    pub series: &'a [Series],
    /// The scale.
    pub scale: Scale,
    /// Formats a value.
    pub quantity: fn(f64) -> Quantity,
}

impl LineChart<'_> {
    /// Renders the chart with its legend.
    pub fn show(&self) -> Markup {
        let last = |series: &Series| series.values.iter().rev().flatten().next().copied();
        html! {
            figure.chart id=(self.id) {
                figcaption.legend {
                    @for series in self.series {
                        span title={ (series.metric) } {
                            i class={ "key " (series.class) } {} (series.name) " "
                            @if let Some(value) = last(series) { b { ((self.quantity)(value).text()) } }
                        }
                    }
                }
                div.frame {
                    (y_labels(self.scale, self.quantity))
                    div.plot tabindex="0" role="img" aria-label=(self.label) data-plot=(self.data()) {
                        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                            (grid(self.scale.ticks().len()))
                            @for series in self.series {
                                path class={ "line " (series.class) } d=(self.path(series)) {}
                            }
                        }
                    }
                    (self.span.labels())
                }
            }
        }
    }

    fn path(&self, series: &Series) -> String {
        let mut path = String::new();
        let mut is_open = false;
        for (moment, value) in self.moments.iter().zip(&series.values) {
            let Some(value) = value.filter(|_| self.span.contains(*moment)) else {
                is_open = false;
                continue;
            };
            let step = if is_open { 'L' } else { 'M' };
            path.push_str(&format!("{step}{:.1} {:.2}", self.span.x(*moment), self.scale.y(value)));
            is_open = true;
        }
        path
    }

    /// Returns the data for the script: one line for each moment, `place|text of the moment|text of
    /// each value`, below a line with the names.
    fn data(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| series.name).collect();
        let mut data = format!("|UTC|{}", names.join("|"));
        for (at, moment) in self.moments.iter().enumerate().filter(|(_, moment)| self.span.contains(**moment))
        {
            let time = crate::format::time_of_day(*moment);
            data.push_str(&format!(
                "\n{:.1}|{}",
                self.span.x(*moment),
                time.split('.').next().unwrap_or_default()
            ));
            for series in self.series {
                let value = series.values.get(at).copied().flatten();
                data.push('|');
                data.push_str(&value.map_or_else(String::new, |value| (self.quantity)(value).text()));
            }
        }
        data
    }
}

/// Renders the labels of a scale, beside the plot.
pub fn y_labels(scale: Scale, quantity: fn(f64) -> Quantity) -> Markup {
    html! { div.ys aria-hidden="true" { @for tick in scale.ticks() { span { (quantity(tick).text()) } } } }
}

/// Renders the lines of a grid, equally spaced.
pub fn grid(lines: usize) -> Markup {
    let y = |line: usize| 1.0 + (HEIGHT - 2.0) * line as f64 / (lines.max(2) - 1) as f64;
    html! { @for line in 0..lines { line.grid x1="0" x2=(WIDTH) y1=(y(line)) y2=(y(line)) {} } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::micros;

    #[test]
    fn scales_cover_their_values() {
        assert_eq!(Scale::linear(&[], 0.0), Scale::Linear(1.0));
        assert_eq!(round_up(1_234.0), 2_000.0);
        assert_eq!(round_up(9_999.0), 10_000.0);
        assert_eq!(Scale::log([30.0, 2_500.0].into_iter()), Scale::Log(1, 4));
        assert_eq!(Scale::log([0.0].into_iter()), Scale::Log(1, 4));
        let log = Scale::Log(1, 4);
        assert_eq!((log.part(10.0), log.part(10_000.0), log.part(0.0)), (0.0, 1.0, 0.0));
        assert_eq!(log.ticks(), [10_000.0, 1_000.0, 100.0, 10.0]);
    }

    #[test]
    fn a_line_has_gaps_where_it_has_no_value() {
        let span = Span { from_ms: 0, to_ms: 4 };
        let values = vec![Some(0.0), Some(4.0), None, Some(1.0), Some(2.0)];
        let series = [Series { name: "a", metric: "m", class: "c1", values }];
        let chart = LineChart {
            id: "i",
            label: "l",
            moments: &[0, 1, 2, 3, 9],
            span,
            series: &series,
            scale: Scale::Linear(4.0),
            quantity: micros,
        };
        assert_eq!(chart.path(&series[0]), "M0.0 99.00L250.0 1.00M750.0 74.50");
        assert_eq!(
            chart.data().lines().collect::<Vec<_>>(),
            [
                "|UTC|a",
                "0.0|00:00:00|0 µs",
                "250.0|00:00:00|4.00 µs",
                "500.0|00:00:00|",
                "750.0|00:00:00|1.00 µs"
            ]
        );
        assert!(chart.show().into_string().contains("2.00 µs</b>"), "the legend has the last value");
    }
}
