//! `/settings`: every setting with its value, its source, and whether it has an effect.

use std::collections::BTreeMap;

use evenkeel_info_server::Request;
use evenkeel_info_server::pages::{Property, properties};
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::layout::{Column, TableView, card};

pub(super) const PAGE: Description = Description {
    path: "/settings",
    title: "Settings",
    about: "Every setting with its value, its source, and the actual behaviour where it has no effect. Secrets are masked.",
    refresh_ms: 0,
    content,
};

const COLUMNS: [Column; 4] = [
    Column::text("source", "From", "Source of the value; explicitly set values first"),
    Column::text("key", "Key", "The setting's name"),
    Column::text("value", "Value", "The value, with ${x} replaced"),
    Column::text("effect", "", "The actual behaviour, where the setting has no effect"),
];

const BUILT_IN: &str = "built-in default";

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let sources = &pages.sources;
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let ignored: BTreeMap<&str, &str> =
        sources.ignored.iter().map(|setting| (setting.key, setting.instead)).collect();
    let configuration = sources.configuration.get();
    let unknown = configuration.unknown_keys();
    let note = |property: &Property| ignored.get(property.key.as_str()).copied();
    let mut rows = properties(&configuration);
    rows.retain(|property| view.matches(&[&property.key, &property.value, &property.source]));
    let is_built_in = |property: &Property| property.source == BUILT_IN;
    let all = match view.sort.as_str() {
        "key" => view.sort_and_paginate(&mut rows, |property| property.key.clone()),
        "value" => view.sort_and_paginate(&mut rows, |property| property.value.clone()),
        "effect" => {
            view.sort_and_paginate(&mut rows, |property| (note(property).is_none(), property.key.clone()))
        }
        _ => view.sort_and_paginate(&mut rows, |property| {
            (is_built_in(property), property.source.clone(), property.key.clone())
        }),
    };
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody {
                @for property in &rows {
                    tr {
                        td { @if is_built_in(property) { small { "default" } } @else { span.tag { (property.source) } } @if property.is_final { " " span.tag.dim { "final" } } }
                        td.wide { code { (property.key) } }
                        td.wide { code { (property.value) } }
                        td.wide {
                            @if let Some(instead) = note(property) { span.tag.warn { "no effect" } " " (instead) }
                            @if unknown.contains(&property.key.as_str()) { span.tag.warn { "unknown" } " not a known setting" }
                        }
                    }
                }
            }
        } }
        (view.pages(all, "settings"))
    };
    html! {
        @if !sources.ignored.is_empty() || !unknown.is_empty() {
            p.hint { (sources.ignored.len()) " of the explicitly set settings have no effect, " (unknown.len()) " are unknown." }
        }
        (card("", "", &html! { (view.search_form("Key, value or source")) div #rows data-part { (body) } }))
    }
}
