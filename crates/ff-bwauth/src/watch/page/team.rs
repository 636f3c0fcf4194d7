//! The team's page: measurers with their state and capacity.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ff_store::MeasurerRow;
use maud::{Markup, html};

use super::layout::{Page, failed, state};
use super::pool::Work;
use super::site::Site;
use crate::watch::status::MemberStatus;
use crate::watch::text::{ago, rate, shown, time};

/// The error of a measurer's clock from which it is shown, in milliseconds: it shifts the seconds
/// of a measurement.
const CLOCK_OFF_MILLIS: u64 = 500;

pub(super) async fn page(State(site): State<Arc<Site>>) -> Response {
    let page = Page::new(&site, "Team").at("/team").live();
    match site.pool.ask(Work::Little, ff_store::Reader::measurers).await {
        Ok(rows) => {
            let content = html! {
                div data-part="team" { (live(&site)) }
                h2 { "Measured network capacity" }
                (capacities(&rows))
            };
            page.html(&content).into_response()
        }
        Err(error) => failed(page, &error),
    }
}

/// The current state of the team.
pub(super) fn live(site: &Site) -> Markup {
    let status = site.live.borrow().clone();
    html! {
        (state(site))
        @if let Some(status) = status {
            div.wide tabindex="0" {
                table.cards {
                    thead { tr {
                        th scope="col" { "Measurer, its address and key" } th scope="col" { "State" } th scope="col" { "Version" }
                        th.n scope="col" { "Configured capacity" } th.n scope="col" { "Cores" } th.n scope="col" { "Clock" }
                        th scope="col" { "Congestion control" } th.n scope="col" { "Disputes" }
                    } }
                    tbody { @for member in &status.team { (row(member, status.now_unix_secs)) } }
                }
            }
            p.small {
                "Clock: how far the measurer's clock is ahead of this host's. Disputes: networks (IPv4 /24, IPv6 /48) whose \
                 relays report fewer echoes than the measurer counted, or whose measurements fail on its word \
                 alone, out of all networks in which it has measured relays that agree with another measurer. With more disputes than chance explains, a measurer is set aside; "
                code { "ff-bwauth measurers --trust NAME" } " reinstates it."
            }
        }
    }
}

/// A row of the table: a measurer.
fn row(member: &MemberStatus, now: u64) -> Markup {
    let is_off = member.clock_ahead_millis.unsigned_abs() > CLOCK_OFF_MILLIS;
    html! {
        tr {
            th.who scope="row" {
                (shown(&member.name))
                span.small { (shown(&member.address)) br; code { (shown(&member.identity)) } }
            }
            td.why data-label="State" {
                @if member.is_up { span.good { "up" } } @else { strong.bad { "down" } }
                @if member.is_aside { ", " strong.bad { "set aside" } ": relays dispute it" }
                @if let Some(at) = member.described_unix_secs { " (" (ago(now, at)) ")" }
                @if let Some(error) = &member.error { ": " (shown(error)) }
            }
            td data-label="Version" { (shown(member.version.as_deref().unwrap_or("-"))) }
            td.n data-label="Configured capacity" { (rate(member.stated_bytes_per_sec)) }
            td.n data-label="Cores" { @match member.cores { Some(cores) => { (cores) } None => { "-" } } }
            td.n.bad[is_off] data-label="Clock" { (format!("{:+} ms", member.clock_ahead_millis)) @if is_off { " (off)" } }
            td data-label="Congestion control" { (shown(member.congestion_control.as_deref().unwrap_or("-"))) }
            td.n.bad[member.disputes > 0] data-label="Disputes" { (member.disputes) " of " (member.words) }
        }
    }
}

/// The store's data about all measurers, also former ones.
fn capacities(rows: &[MeasurerRow]) -> Markup {
    html! {
        @if rows.is_empty() { p { "No measurer is known yet." } } @else {
            div.wide tabindex="0" {
                table.cards {
                    thead { tr {
                        th scope="col" { "Measurer" } th.n scope="col" { "Configured" } th.n scope="col" { "Measured" }
                        th.n scope="col" { "Sent" } th.n scope="col" { "Received" } th.n scope="col" { "Lost" }
                        th scope="col" { "When" } th.n scope="col" { "Disputes" }
                    } }
                    tbody { @for one in rows {
                        tr {
                            th scope="row" { @if one.name.is_empty() { "(not in the config)" } @else { (shown(&one.name)) } }
                            td.n data-label="Configured" { @match one.stated { Some(stated) => { (rate(stated.get())) } None => { "-" } } }
                            @if let Some(measured) = &one.measured {
                                @let carried = &measured.carried;
                                @let is_less = carried.bound().is_some_and(|bound| Some(bound) < one.stated);
                                td.n.bad[is_less] data-label="Measured" { (rate(carried.rate.get())) }
                                td.n data-label="Sent" { (rate(carried.sent.get())) }
                                td.n data-label="Received" { (rate(carried.received.get())) }
                                td.n data-label="Lost" { (format!("{:.1} %", f64::from(carried.loss_permille) / 10.0)) }
                                td data-label="When" { (time(measured.unix_secs)) }
                            } @else {
                                td.n data-label="Measured" { "not measured" }
                                td.n data-label="Sent" { "-" } td.n data-label="Received" { "-" } td.n data-label="Lost" { "-" }
                                td data-label="When" { @match &one.not_measured { Some(reason) => { (shown(reason)) } None => { "-" } } }
                            }
                            td.n data-label="Disputes" { (one.disputes) }
                        }
                    } }
                }
            }
        }
    }
}
