//! The first page: the coordinator's current work and the progress of the period.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ff_base::utc::now_unix_secs as now;
use ff_proto::failure::FailureKind;
use maud::{Markup, html};

use super::layout::{Page, sentence, state};
use super::pool::Cached;
use super::site::Site;
use super::slots::{self, Map};
use crate::watch::status::{PeriodStatus, RunningStatus, Status};
use crate::watch::text::{ago, grouped, percent, plain, rate, relays, shown, time};
use crate::watch::{problems, summary};

/// Width and height of the small chart of a running measurement's seconds.
const SPARK: (u32, u32) = (160, 24);

pub(super) async fn page(
    State(site): State<Arc<Site>>,
    State(cache): State<Arc<Cached<Map>>>,
) -> Response {
    let map = map(&site, &cache).await;
    let content = html! {
        div data-part="live" { (live(&site)) }
        h2 { "Slots of the period" }
        div data-part="map" { (map) }
    };
    Page::new(&site, "Overview").at("/").live().html(&content).into_response()
}

/// The map of slots, or the error.
pub(super) async fn map(site: &Site, cache: &Cached<Map>) -> Markup {
    match slots::map(site, cache).await {
        Ok(map) => map.html(now()),
        Err(error) => sentence(&error.to_string()),
    }
}

/// The parts that change every second.
pub(super) fn live(site: &Site) -> Markup {
    let status = site.live.borrow().clone();
    html! {
        (state(site))
        @if let Some(status) = status {
            (well(&status))
            (problems(&status))
            (facts(&status))
            (running(&status))
        }
    }
}

/// The coordinator's name and whether it has problems.
fn well(status: &Status) -> Markup {
    let identity = plain(&status.coordinator);
    let problems = problems::all(status, now());
    html! {
        p {
            strong.good[problems.is_empty()].bad[!problems.is_empty()] {
                (summary::state(status, &problems))
            }
            ". Coordinator " code { (identity) }
            @if let Some(authority) = &status.authority { ", for the authority " (shown(authority)) }
            ", version " (plain(&status.version)) "."
        }
    }
}

/// The problems, with the time since when they exist.
fn problems(status: &Status) -> Markup {
    html! {
        @if !status.problems.is_empty() {
            section.notice.bad aria-label="Problems" {
                h2 { "Problems" }
                ul {
                    @for problem in &status.problems {
                        li {
                            (shown(&problem.text)) " (since " (time(problem.since_unix_secs)) ", "
                            (ago(status.now_unix_secs, problem.since_unix_secs)) ")"
                        }
                    }
                }
            }
        }
    }
}

/// The main figures.
fn facts(status: &Status) -> Markup {
    let now = status.now_unix_secs;
    let network = &status.network;
    let up = status.team.iter().filter(|member| member.is_up).count();
    let is_without = |code: &str| code == FailureKind::NotSupported.code();
    let sum = |of: bool| -> u64 {
        let counted = status.failed.iter().filter(|(code, _)| is_without(code) == of);
        counted.map(|(_, count)| count).sum()
    };
    let (failed, without) = (sum(false), sum(true));
    html! {
        dl.facts {
            (period(status.period.as_ref(), now))
            div { dt { "Team" } dd { a href="/team" { (up) " of " (status.team.len()) " measurers are up" } } }
            div { dt { "Consensus" } dd {
                @match network.valid_after_unix_secs {
                    Some(at) => {
                        (relays(network.relays)) ", " (grouped(network.described)) " with a descriptor; valid since "
                        (time(at)) ", " (ago(now, at))
                    }
                    None => { "none yet" }
                }
            } }
            div { dt { "Bandwidth file" } dd { (published(status)) } }
            div { dt { "Since the start" } dd {
                (ago(now, status.started_unix_secs)) ": " (grouped(status.finished)) " measurements, "
                (grouped(failed)) " failed (" a href="/failures" { "why" } "), " (grouped(without)) " without FlashFlow"
            } }
        }
    }
}

/// The progress of the period.
fn period(period: Option<&PeriodStatus>, now: u64) -> Markup {
    let Some(period) = period else {
        return html! { div { dt { "Period" } dd { "none yet: it is planned as soon as there is a consensus" } } };
    };
    let coverage = &period.coverage;
    html! {
        div { dt { "Period" } dd {
            (period.number)
            @if now < period.end_unix_secs { ", slot " (period.now_slot) " of " (period.slots) ", ends " }
            @else { ", ended " }
            (ago(now, period.end_unix_secs))
        } }
        div { dt { "Measured" } dd {
            (grouped(coverage.relays_measured)) " of " (grouped(coverage.relays)) " relays ("
            (percent(coverage.relays_measured, coverage.relays)) "), " (grouped(coverage.relays_conclusive)) " conclusive; "
            (grouped(coverage.relays_failed())) " failed, " (grouped(coverage.relays_unsupported)) " without FlashFlow "
            progress max=(coverage.relays.max(1)) value=(coverage.relays_measured) aria-label="Relays measured" {}
        } }
        @let refused = summary::refused(coverage);
        @if !refused.is_empty() {
            div { dt { "No retry" } dd { @for line in &refused { (shown(line)) br; } } }
        }
        @if period.too_fast > 0 {
            div { dt { "Too fast" } dd { (relays(period.too_fast)) " beyond the capacity of the whole team" } }
        }
        div { dt { "Done" } dd {
            @match period.done_unix_secs {
                Some(at) => { (ago(now, at)) ", at " (time(at)) ", if all goes well; " (grouped(coverage.retries_left)) " retries are left" }
                None => { "nothing is left to do in this period" }
            }
        } }
    }
}

/// The last bandwidth file.
fn published(status: &Status) -> Markup {
    match &status.published {
        None => html! { "none yet" },
        Some(published) => html! {
            @if let (Some(path), Some(at)) = (&published.path, published.unix_secs) {
                (summary::voted(published)) br; "Written " (ago(status.now_unix_secs, at)) ": " code { (shown(path)) }
                @if let Some(shift) = &published.since_last { br; "Compared with the previous file: " (summary::shifted(shift)) }
                @if let Some(shift) = &published.from_consensus { br; "Compared with the consensus: " (summary::shifted(shift)) }
            } @else { "none yet" }
            @if let Some(reason) = &published.refused {
                br; span.bad[!published.is_too_few] { "No new file: " (shown(reason)) }
            }
        },
    }
}

/// The running measurements.
fn running(status: &Status) -> Markup {
    html! {
        h2 { "Being measured now" }
        @if status.running.is_empty() {
            p { "Nothing." }
        } @else {
            div.wide tabindex="0" {
                table.cards {
                    thead { tr {
                        th scope="col" { "Relay" } th.n scope="col" { "Slot" } th.n scope="col" { "Second" }
                        th.n scope="col" { "Last second" } th scope="col" { "So far" } th.n scope="col" { "Expected" }
                    } }
                    tbody { @for one in &status.running { (running_row(one)) } }
                }
            }
        }
    }
}

/// A running measurement.
fn running_row(running: &RunningStatus) -> Markup {
    let total = |second: &crate::watch::status::SecondShown| {
        second.measurement_bytes.saturating_add(second.background_bytes.unwrap_or(0))
    };
    let totals: Vec<_> = running.seconds.iter().map(total).collect();
    html! {
        tr {
            th scope="row" {
                a href={ "/relay/" (running.fingerprint) } title=(running.fingerprint) { (shown(&running.nickname)) }
            }
            td.n data-label="Slot" { (running.slot) }
            td.n data-label="Second" { (running.seconds.len()) " of " (running.of_secs) }
            td.n data-label="Last second" {
                @match totals.last() { Some(bytes) => { (rate(*bytes)) } None => { "opening links" } }
            }
            td data-label="So far" { (spark(&totals, running.of_secs)) }
            td.n data-label="Expected" { (rate(running.guess_bytes_per_sec)) }
        }
    }
}

/// Seconds as bars.
fn spark(totals: &[u64], of_secs: u16) -> Markup {
    let top = totals.iter().copied().max().unwrap_or(0).max(1);
    let bars = totals.iter().enumerate().take(usize::from(of_secs));
    let height = |bytes: u64| u128::from(bytes) * u128::from(SPARK.1) / u128::from(top);
    let width = (SPARK.0 as usize / usize::from(of_secs.max(1))).max(1);
    html! {
        svg.spark viewBox={ "0 0 " (width * usize::from(of_secs)) " " (SPARK.1) } preserveAspectRatio="none" role="img"
            aria-label={ "Seconds: " (totals.len()) ", the highest " (rate(top)) } {
            @for (index, bytes) in bars {
                @let height = height(*bytes);
                rect x=(index * width) y=(u128::from(SPARK.1) - height) width=(width) height=(height) {}
            }
        }
    }
}
