//! Failures by cause, with their meaning and advice.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ff_base::utc::now_unix_secs as now;
use maud::{Markup, html};

use super::layout::{Page, failed};
use super::pool::{Cached, Work};
use super::site::Site;
use crate::watch::meaning::meaning;
use crate::watch::text::{grouped, shown, time};

/// The numbers of days over which failures are counted.
const DAYS: [u64; 3] = [1, 7, 30];

/// Failures by code, over each of [`DAYS`].
pub(super) struct Counts {
    /// When they were counted.
    made_unix_secs: u64,
    codes: BTreeMap<String, [u64; DAYS.len()]>,
}

pub(super) async fn page(
    State(site): State<Arc<Site>>,
    State(cache): State<Arc<Cached<Counts>>>,
) -> Response {
    let page = Page::new(&site, "Failures").at("/failures");
    let made_unix_secs = now();
    let make = site.pool.ask(Work::Much, move |reader| {
        let mut codes = BTreeMap::<String, [u64; DAYS.len()]>::new();
        for (column, days) in DAYS.iter().enumerate() {
            let since = made_unix_secs.saturating_sub(days * 24 * 3600);
            for count in reader.failures(since..made_unix_secs.saturating_add(1))? {
                codes.entry(count.code).or_default()[column] = count.attempts;
            }
        }
        Ok(Counts { made_unix_secs, codes })
    });
    match cache.get(0, make).await {
        Ok(counts) => page.html(&counts.html()).into_response(),
        Err(error) => failed(page, &error),
    }
}

impl Counts {
    /// The table; the most frequent failures first.
    fn html(&self) -> Markup {
        let mut rows: Vec<_> = self.codes.iter().collect();
        rows.sort_by_key(|(_, counts)| std::cmp::Reverse((counts[2], counts[1], counts[0])));
        html! {
            p { "Failed attempts by cause, as of " (time(self.made_unix_secs)) "." }
            @if rows.is_empty() { p.notice { "No failures." } } @else {
                div.wide tabindex="0" {
                    table.failures.cards {
                        thead { tr {
                            th scope="col" { "Code" }
                            @for days in DAYS { th.n scope="col" { (days) @if days == 1 { " day" } @else { " days" } } }
                            th scope="col" { "At fault" } th scope="col" { "What it means, and what to do" }
                        } }
                        tbody { @for (code, counts) in rows {
                            @let meaning = meaning(code);
                            tr {
                                th scope="row" { code { (shown(code)) } }
                                @for (days, count) in DAYS.iter().zip(counts) {
                                    td.n data-label={ (days) @if *days == 1 { " day" } @else { " days" } } { (grouped(*count)) }
                                }
                                td data-label="At fault" { (meaning.map_or("-", |one| one.fault)) }
                                td data-label="What it means" {
                                    @if let Some(meaning) = meaning { (meaning.means) " " em { (meaning.advice) } }
                                    @else { "This version does not know this code." }
                                }
                            }
                        } }
                    }
                }
            }
        }
    }
}
