//! The report as one self-contained page of tables and plots.

use super::Report;
use super::plot::{Plot, Scale, Series, escaped};
use crate::compare::Comparison;
use crate::stats::percentile_curve;

/// Latency by percentile, one line a report.
pub fn percentiles(reports: &[&Report]) -> Plot {
    let series = |r: &&Report| Series { name: r.target.clone(), points: percentile_curve(&r.histogram) };
    Plot {
        title: "Latency by percentile".into(),
        x: ("percentile".into(), Scale::Nines),
        y: ("µs".into(), Scale::Log),
        series: reports.iter().map(series).collect(),
    }
}

/// Median, P99 and maximum of each interval.
pub fn latency_over_time(reports: &[&Report]) -> Plot {
    let mut series = Vec::new();
    for report in reports {
        let line = |name: &str, of: fn(&super::Interval) -> f64| Series {
            name: format!("{} {name}", report.target),
            points: report.intervals.iter().map(|i| (i.at_s + i.seconds, of(i))).collect(),
        };
        series.push(line("P50", |i| i.latency.p50_us));
        series.push(line("P99", |i| i.latency.p99_us));
        series.push(line("max", |i| i.latency.max_us));
    }
    Plot {
        title: "Latency over time".into(),
        x: ("seconds".into(), Scale::Linear),
        y: ("µs".into(), Scale::Log),
        series,
    }
}

/// Requests a second of each interval.
pub fn throughput(reports: &[&Report]) -> Plot {
    over_time("Throughput", "requests/s", reports, |i| Some(i.requests as f64 / i.seconds))
}

/// Cores that the server used in each interval; `None` if unknown.
pub fn server_cores(reports: &[&Report]) -> Option<Plot> {
    let plot = over_time("The server's CPU", "cores", reports, |i| i.server_cores);
    plot.series.iter().any(|series| !series.points.is_empty()).then_some(plot)
}

/// Per cent of all cores' time that was stolen in each interval; `None` if unknown.
pub fn stolen(reports: &[&Report]) -> Option<Plot> {
    let percent = |i: &super::Interval| Some(100.0 * i.host?.stolen);
    let plot = over_time("Time that the host gave to others", "% of all cores", reports, percent);
    plot.series.iter().any(|series| !series.points.is_empty()).then_some(plot)
}

fn over_time(title: &str, unit: &str, reports: &[&Report], of: fn(&super::Interval) -> Option<f64>) -> Plot {
    let series = |report: &&Report| Series {
        name: report.target.clone(),
        points: report.intervals.iter().filter_map(|i| Some((i.at_s + i.seconds, of(i)?))).collect(),
    };
    Plot {
        title: title.into(),
        x: ("seconds".into(), Scale::Linear),
        y: (unit.into(), Scale::Linear),
        series: reports.iter().map(series).collect(),
    }
}

/// The page of a run or of a comparison.
pub fn html(reports: &[Report], comparison: Option<&Comparison>) -> String {
    let last = match comparison {
        Some(comparison) => comparison.merged(),
        None => reports.to_vec(),
    };
    let shown: Vec<&Report> = last.iter().collect();
    let title = shown.first().map_or_else(String::new, |report| escaped(&report.title()));
    let mut body = format!("<h1>evenkeel pe: {title}</h1>\n{}", table(&shown));
    if let Some(comparison) = comparison {
        body.push_str(&format!("<h2>Ratios</h2>\n<pre>{}</pre>\n", escaped(&comparison.text())));
    }
    let mut plots = vec![percentiles(&shown), latency_over_time(&shown), throughput(&shown)];
    plots.extend(server_cores(&shown));
    plots.extend(stolen(&shown));
    plots.iter().for_each(|plot| body.push_str(&format!("<figure>{}</figure>\n", plot.svg())));
    for report in reports {
        body.push_str(&format!("<pre>{}</pre>\n", escaped(&super::summary(report))));
        report.notes.iter().for_each(|note| body.push_str(&format!("<p>{}</p>\n", escaped(note))));
    }
    if let Some(options) = shown.first().and_then(|report| serde_json::to_string_pretty(&report.options).ok())
    {
        body.push_str(&format!(
            "<details><summary>Options</summary><pre>{}</pre></details>\n",
            escaped(&options)
        ));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n{STYLE}</head><body>\n{body}</body></html>\n"
    )
}

const STYLE: &str = "<style>body{font:14px sans-serif;max-width:800px;margin:2em auto}table{border-collapse:collapse}\
td,th{border:1px solid #ccc;padding:3px 8px;text-align:right}td:first-child{text-align:left}figure{margin:1em 0}\
pre{background:#f6f6f6;padding:8px;overflow-x:auto}</style>\n";

fn table(reports: &[&Report]) -> String {
    let head = [
        "",
        "requests/s",
        "rows/s",
        "P50 µs",
        "P99",
        "P99.9",
        "P99.99",
        "max",
        "server µs/request",
        "server MiB",
    ];
    let mut out = String::from("<table><tr>");
    head.iter().for_each(|cell| out.push_str(&format!("<th>{cell}</th>")));
    out.push_str("</tr>\n");
    for report in reports {
        let l = &report.latency;
        let figures =
            [report.requests_per_s, report.rows_per_s, l.p50_us, l.p99_us, l.p999_us, l.p9999_us, l.max_us];
        out.push_str(&format!("<tr><td>{}</td>", escaped(&report.target)));
        figures.iter().for_each(|n| out.push_str(&format!("<td>{n:.0}</td>")));
        let cpu = report.server_us_per_request().map_or("-".to_owned(), |us| format!("{us:.2}"));
        let rss = report.server.as_ref().map_or("-".to_owned(), |s| (s.rss_bytes >> 20).to_string());
        out.push_str(&format!("<td>{cpu}</td><td>{rss}</td></tr>\n"));
    }
    out.push_str("</table>\n");
    out
}
