//! The timeline: slow requests as dots above the background work as bars, over the same time span.
//!
//! It shows coincidences: a row of dots above a flush, a compaction or a pause of the process.

use evenkeel_metrics::SlowRequest;
use maud::{Markup, html};

use super::StatusPages;
use super::overview::{cause_class, cause_name, ended_ms};
use super::slow::{main_cause, tooltip};
use crate::chart::{Scale, Span, grid, y_labels};
use crate::format;

/// A piece of work with a duration.
pub(super) struct Bar {
    /// The kind of work; each kind has a lane.
    pub lane: &'static str,
    /// The colour: a class of the style sheet.
    pub class: &'static str,
    /// When it began and ended, in milliseconds since 1970.
    pub from_ms: i64,
    pub to_ms: i64,
    /// A description, as lines.
    pub tooltip: String,
}

/// The minimum width of a bar, of the thousand units of a plot, so that short work is visible.
const WIDTH_MIN: f64 = 2.0;
/// The height of a lane, and of a bar.
const LANE: f64 = 20.0;
const BAR: f64 = 12.0;

/// Renders the two plots with their legend.
pub(super) fn show(pages: &StatusPages, requests: &[SlowRequest], span: Span) -> Markup {
    let bars = bars(pages, span);
    html! {
        figure.chart #timeline {
            (legend(requests, span))
            (dots(requests, &bars, span))
        }
        (lanes(&bars, span))
    }
}

/// Renders the main causes of all requests.
fn legend(requests: &[SlowRequest], span: Span) -> Markup {
    let shown: Vec<_> =
        requests.iter().filter(|request| span.contains(ended_ms(request))).map(main_cause).collect();
    html! {
        figcaption.legend {
            @for cause in evenkeel_metrics::Cause::ALL.into_iter().filter(|cause| shown.contains(cause)) {
                span { i class={ "key " (cause_class(cause)) } {} (cause_name(cause)) }
            }
            @if shown.is_empty() { span { "No requests in this time." } }
        }
    }
}

fn dots(requests: &[SlowRequest], bars: &[Bar], span: Span) -> Markup {
    let us = |request: &SlowRequest| request.total_time().as_secs_f64() * 1e6;
    let shown: Vec<_> = requests.iter().filter(|request| span.contains(ended_ms(request))).collect();
    let scale = Scale::log(shown.iter().map(|request| us(request)));
    html! {
        div.frame {
            (y_labels(scale, format::micros))
            div.plot.tall role="img" aria-label="Requests in the ledger by end time and duration" {
                svg viewBox="0 0 1000 100" preserveAspectRatio="none" {
                    (grid(scale.ticks().len()))
                    @for pause in bars.iter().filter(|bar| bar.lane == PAUSES) {
                        rect.shade x=(span.x(pause.from_ms)) width=(width(pause, span)) y="0" height="100" data-tip=(pause.tooltip) {}
                    }
                    @for request in shown {
                        path class={ "dot " (cause_class(main_cause(request))) (if request.error.is_empty() { "" } else { " error" }) }
                            d=(format!("M{:.1} {:.2}h0", span.x(ended_ms(request)), scale.y(us(request)))) data-tip=(tooltip(request)) {}
                    }
                }
            }
        }
    }
}

fn lanes(bars: &[Bar], span: Span) -> Markup {
    let mut names: Vec<&str> = LANES.to_vec();
    bars.iter().for_each(|bar| {
        if !names.contains(&bar.lane) {
            names.push(bar.lane)
        }
    });
    let lane_of = |bar: &Bar| names.iter().position(|name| *name == bar.lane).unwrap_or(0) as f64;
    let height = names.len() as f64 * LANE;
    html! {
        figure.chart.lanes #lanes {
            div.frame {
                div.ys { @for name in &names { span { (name) } } }
                div.plot role="img" aria-label="Background work in the same time" {
                    svg viewBox={ "0 0 1000 " (height) } preserveAspectRatio="none" {
                        @for lane in 1..names.len() {
                            line.grid x1="0" x2="1000" y1=(lane as f64 * LANE) y2=(lane as f64 * LANE) {}
                        }
                        @for bar in bars {
                            rect class={ "span " (bar.class) } x=(format!("{:.1}", span.x(bar.from_ms))) width=(format!("{:.1}", width(bar, span)))
                                y=(lane_of(bar) * LANE + (LANE - BAR) / 2.0) height=(BAR) data-tip=(bar.tooltip) {}
                        }
                    }
                }
                (span.labels())
            }
        }
    }
}

fn width(bar: &Bar, span: Span) -> f64 {
    (span.x(bar.to_ms) - span.x(bar.from_ms)).max(WIDTH_MIN)
}

const PAUSES: &str = "pauses";
/// Lanes that are always present, in this order.
const LANES: [&str; 4] = ["flushes", "compactions", "slow disk", PAUSES];

/// Returns all work of the span.
fn bars(pages: &StatusPages, span: Span) -> Vec<Bar> {
    let mut bars = super::flushes_and_compactions::bars(pages);
    bars.extend(pages.history.pauses().into_iter().map(|pause| Bar {
        lane: PAUSES,
        class: "c8",
        from_ms: pause.ended_ms - pause.ms,
        to_ms: pause.ended_ms,
        tooltip: format!(
            "The process did not run for {}, until {} UTC: it was stopped, or had no CPU.",
            format::micros(pause.ms as f64 * 1e3).text(),
            format::time_of_day(pause.ended_ms)
        ),
    }));
    bars.retain(|bar| bar.to_ms >= span.from_ms && bar.from_ms <= span.to_ms);
    bars
}
