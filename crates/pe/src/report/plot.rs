//! Line plots and bars as self-contained SVG: axes, grid, legend, one colour for each series.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 74.0;
/// Colours that are distinct with every kind of colour vision (Okabe and Ito).
const COLOURS: [&str; 9] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999", "#8c564b"];

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Even, from 0.
    Linear,
    /// By powers of ten.
    Log,
    /// Percentiles: by nines.
    Nines,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
}

/// One plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: (String, Scale),
    /// The vertical axis.
    pub y: (String, Scale),
    /// The lines.
    pub series: Vec<Series>,
}

/// Maps values to coordinates.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> =
            values.filter(|v| v.is_finite() && (scale != Scale::Log || *v > 0.0)).collect();
        let max = values.iter().copied().fold(0.0, f64::max);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min).min(max);
        let (low, high) = match scale {
            Scale::Linear => (0.0, nice(max)),
            Scale::Log => {
                let (low, high) = (min.max(1e-6).log10().floor(), max.max(1e-6).log10().ceil());
                (low, high.max(low + 1.0))
            }
            Scale::Nines => (0.0, nines(max.min(99.9999)).max(1.0)),
        };
        Self { scale, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(1e-6).log10(),
            Scale::Nines => nines(value),
        };
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }

    /// Values with a grid line and a label.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the logarithm of an f64 of at least 1e-6 is from -6 to 309"
    )]
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => (0..=5).map(|i| self.high * f64::from(i) / 5.0).collect(),
            Scale::Log => (self.low as i32..=self.high as i32).map(|e| 10f64.powi(e)).collect(),
            Scale::Nines => {
                let all = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
                all.into_iter().filter(|p| nines(*p) <= self.high + 1e-9).collect()
            }
        }
    }
}

/// Nines of a percentile: 0 at 0, 1 at 90, 2 at 99.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile.clamp(0.0, 99.9999) / 100.0).log10()
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn nice(max: f64) -> f64 {
    let max = if max > 0.0 { max } else { 1.0 };
    let power = 10f64.powf(max.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|n| n * power).find(|n| *n >= max * 0.999).unwrap_or(max)
}

/// A number in few characters.
pub fn short(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 1e9 => format!("{:.1}G", value / 1e9),
        v if v >= 1e6 => format!("{:.1}M", value / 1e6),
        v if v >= 1e4 => format!("{:.0}k", value / 1e3),
        v if v >= 1e3 => format!("{:.1}k", value / 1e3),
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    text.replace(".0k", "k").replace(".0M", "M").replace(".0G", "G").trim_end_matches(".0").to_owned()
}

impl Plot {
    /// The plot as an SVG element, which is also a valid file.
    pub fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let x = Axis::new(self.x.1, all().map(|p| p.0), LEFT, WIDTH - RIGHT);
        let y = Axis::new(self.y.1, all().map(|p| p.1), HEIGHT - BOTTOM, TOP);
        let mut out = self.frame(&x, &y);
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let points: Vec<String> = series
                .points
                .iter()
                .filter(|p| p.0.is_finite() && p.1.is_finite())
                .map(|p| format!("{:.1},{:.1}", x.place(p.0), y.place(p.1)))
                .collect();
            let _ = writeln!(
                out,
                r#"<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{}"/>"#,
                points.join(" ")
            );
        }
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn frame(&self, x: &Axis, y: &Axis) -> String {
        let mut out = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{}</text>
"#,
            escaped(&self.title)
        );
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in x.ticks() {
            let (at, label) =
                (x.place(tick), if x.scale == Scale::Nines { format!("{tick}") } else { short(tick) });
            let _ = writeln!(
                out,
                r##"<line x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{bottom}" stroke="#e4e4e4"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{label}</text>"##,
                bottom + 15.0
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = writeln!(
                out,
                r##"<line x1="{LEFT}" y1="{at:.1}" x2="{right}" y2="{at:.1}" stroke="#e4e4e4"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
                LEFT - 6.0,
                at + 4.0,
                short(tick)
            );
        }
        let middle = (TOP + bottom) / 2.0;
        let _ = writeln!(
            out,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>
<text x="16" y="{middle:.1}" text-anchor="middle" transform="rotate(-90 16 {middle:.1})">{}</text>"#,
            (LEFT + right) / 2.0,
            bottom + 32.0,
            escaped(&self.x.0),
            escaped(&self.y.0)
        );
        out
    }

    fn legend(&self, out: &mut String) {
        let (mut at, mut y) = (LEFT, HEIGHT - 28.0);
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let width = 34.0 + 6.2 * series.name.chars().count() as f64;
            if at > LEFT && at + width > WIDTH {
                (at, y) = (LEFT, y + 13.0);
            }
            let _ = writeln!(
                out,
                r#"<rect x="{at:.1}" y="{:.1}" width="14" height="4" fill="{colour}"/><text x="{:.1}" y="{y:.1}">{}</text>"#,
                y - 6.0,
                at + 19.0,
                escaped(&series.name)
            );
            at += width;
        }
    }
}

/// Escapes text for SVG and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(x: Scale, y: Scale, points: Vec<(f64, f64)>) -> Plot {
        let series = vec![Series { name: "a<b".into(), points }];
        Plot { title: "T & t".into(), x: ("x".into(), x), y: ("y".into(), y), series }
    }

    #[test]
    fn points_lie_inside_the_frame() {
        let cases = [
            plot(Scale::Linear, Scale::Linear, vec![(0.0, 0.0), (3.0, 70.0)]),
            plot(Scale::Nines, Scale::Log, vec![(0.0, 10.0), (99.0, 500.0), (100.0, 1e6)]),
            plot(Scale::Log, Scale::Log, vec![(0.0, 0.0), (f64::NAN, 1.0)]),
            plot(Scale::Linear, Scale::Linear, vec![]),
        ];
        for plot in cases {
            let svg = plot.svg();
            assert!(svg.contains("T &amp; t") && svg.contains("a&lt;b") && !svg.contains("NaN"), "{svg}");
            let points = svg.split("points=\"").nth(1).and_then(|s| s.split('"').next()).expect("a line");
            for point in points.split_whitespace() {
                let (x, y) = point.split_once(',').expect("a pair");
                let (x, y): (f64, f64) = (x.parse().expect("x"), y.parse().expect("y"));
                assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y));
            }
        }
    }

    #[test]
    fn axes_have_round_ends() {
        assert_eq!([0.0, 7.0, 20.0, 21.0, 300.0].map(nice), [1.0, 10.0, 20.0, 25.0, 500.0]);
        assert_eq!([0.0, 5.0, 150.0, 2000.0, 15_000.0, 2e6].map(short), ["0", "5", "150", "2k", "15k", "2M"]);
        assert!((nines(99.9) - 3.0).abs() < 1e-9);
    }
}
