//! The distribution of the relays' capacities.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ff_base::utc::now_unix_secs as now;
use ff_proto::units::BytesPerSec;
use ff_store::Estimate;
use maud::{Markup, html};

use super::layout::{Page, failed, figure};
use super::pool::{AskError, Cached, Work};
use super::site::Site;
use crate::watch::chart::{self, Bin, mbit};
use crate::watch::text::{grouped, percent, rate, time};

/// The age of results that are shown, in days: relays with a result in these days are old ones for
/// the schedule (paper §4.3).
const DAYS: u64 = 30;
/// The percentiles in the table.
const PERCENTILES: [(usize, &str); 9] = [
    (0, "minimum"),
    (5, "5 %"),
    (10, "10 %"),
    (25, "25 %"),
    (50, "median"),
    (75, "75 %"),
    (90, "90 %"),
    (99, "99 %"),
    (100, "maximum"),
];

/// The distribution of the relays' last estimates.
pub(super) struct Distribution {
    /// When it was computed.
    made_unix_secs: u64,
    /// The estimates, in ascending order.
    pub(super) estimates: Vec<Estimate>,
}

/// The newest estimates; computed again if the cached ones are too old.
pub(super) async fn distribution(
    site: &Site,
    cache: &Cached<Distribution>,
) -> Result<Arc<Distribution>, AskError> {
    cache.get(0, look(site)).await
}

/// Reads the newest estimates.
pub(super) async fn look(site: &Site) -> Result<Distribution, AskError> {
    let made_unix_secs = now();
    let since = made_unix_secs.saturating_sub(DAYS * 24 * 3600);
    let reading = site.pool.ask(Work::Much, move |reader| {
        let mut estimates = reader.estimates(since)?;
        estimates.sort_unstable_by_key(|one| (one.estimate, one.fingerprint));
        Ok(Distribution { made_unix_secs, estimates })
    });
    reading.await
}

pub(super) async fn page(
    State(site): State<Arc<Site>>,
    State(cache): State<Arc<Cached<Distribution>>>,
) -> Response {
    let page = Page::new(&site, "Capacities").at("/capacities");
    match distribution(&site, &cache).await {
        Ok(distribution) => page.html(&distribution.html()).into_response(),
        Err(error) => failed(page, &error),
    }
}

impl Distribution {
    fn html(&self) -> Markup {
        let rates: Vec<_> = self.estimates.iter().map(|one| one.estimate.mbit()).collect();
        let bins = chart::bins(&rates);
        let total: BytesPerSec = self.estimates.iter().map(|one| one.estimate).sum();
        html! {
            p {
                "The newest conclusive result of each relay in the last " (DAYS) " days, as of " (time(self.made_unix_secs)) "."
            }
            dl.facts {
                div { dt { "Relays" } dd { (grouped(self.estimates.len() as u64)) } }
                div { dt { "Total capacity" } dd { (rate(total.get())) } }
            }
            @if self.estimates.is_empty() { p.notice { "No results yet." } } @else {
                div.beside {
                    section {
                        h2 { "Relays by capacity" }
                        (figure("Histogram of capacities; the table has the same numbers", chart::histogram(&bins)))
                        h2 { "Share of relays with at most this capacity" }
                        (figure("Cumulative distribution of capacities; the table has the same numbers", chart::cumulative(&bins, &rates)))
                    }
                    section {
                        h2 { "In numbers" }
                        (self.percentiles())
                        (steps(&bins, self.estimates.len() as u64))
                    }
                }
            }
        }
    }

    /// The table of percentiles.
    fn percentiles(&self) -> Markup {
        let at = |percent| self.estimates.get(place(self.estimates.len(), percent));
        html! {
            table {
                thead { tr { th scope="col" { "Share of relays" } th.n scope="col" { "Capacity at most" } } }
                tbody { @for (percent, name) in PERCENTILES {
                    tr {
                        th scope="row" { (name) }
                        td.n { @if let Some(one) = at(percent) { (rate(one.estimate.get())) } }
                    }
                } }
            }
        }
    }
}

/// The index, among `count` sorted values, of the least value that `percent` of them do not exceed.
fn place(count: usize, percent: usize) -> usize {
    (count * percent).div_ceil(100).saturating_sub(1)
}

/// The bins of the histogram as a table.
fn steps(bins: &[Bin], all: u64) -> Markup {
    let sums = bins.iter().scan(0, |sum, bin| {
        *sum += bin.count;
        Some(*sum)
    });
    html! {
        table {
            thead { tr {
                th.n scope="col" { "From, Mbit/s" } th.n scope="col" { "to below" } th.n scope="col" { "Relays" }
                th.n scope="col" { "Cumulative" }
            } }
            tbody { @for (bin, sum) in bins.iter().zip(sums) {
                tr {
                    td.n { (mbit(bin.ends_mbit.0)) } td.n { (mbit(bin.ends_mbit.1)) }
                    td.n { (grouped(bin.count)) } td.n { (percent(sum, all)) }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_relays_has_at_most_what_the_table_says() {
        for count in 1..=250_usize {
            for (percent, name) in PERCENTILES {
                let at = place(count, percent);
                assert!(at < count, "{name} of {count}");
                // This index is the least that reaches the percentage.
                assert!((at + 1) * 100 >= count * percent, "{name} of {count}");
                assert!(at == 0 || at * 100 < count * percent, "{name} of {count}");
            }
        }
        let at = PERCENTILES.map(|(percent, _)| place(8, percent));
        assert_eq!(at, [0, 0, 0, 1, 3, 5, 7, 7, 7], "99 % of eight relays are eight");
    }
}
