//! The page of a relay: how its number was computed, and all attempts to measure it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ff_base::identity::Fingerprint;
use ff_base::utc::now_unix_secs as now;
use ff_coordinator::report::chart;
use ff_plan::publish::Shelf;
use ff_proto::failure::FailureKind;
use ff_store::{Attempt, Memory, Seconds};
use maud::{Markup, html};

use super::layout::{Page, failed, figure, sentence};
use super::pool::{AskError, Cached, Work};
use super::site::Site;
use crate::watch::explain::{Explanation, fingerprint};
use crate::watch::meaning::meaning;
use crate::watch::text::{grouped, plain, rate, shown, time};

/// The largest number of listed attempts.
const MOST: u32 = 200;
/// The number of attempts whose seconds are drawn.
const MOST_DRAWN: usize = 10;

/// The data about a relay.
struct Known {
    /// Its attempts, the newest first; the first [`MOST_DRAWN`] with their seconds.
    attempts: Vec<Attempt>,
    /// How its number was computed, or why that is unknown.
    explanation: Result<Explanation, String>,
}

pub(super) async fn page(
    State(site): State<Arc<Site>>,
    State(cache): State<Arc<Cached<Memory>>>,
    Path(name): Path<String>,
) -> Response {
    let page = Page::new(&site, "Relay");
    let Some(fingerprint) = fingerprint(&name) else {
        let text =
            "The address of a relay's page is /relay/ and its fingerprint: 40 hexadecimal digits.";
        return (StatusCode::BAD_REQUEST, page.html(&sentence(text))).into_response();
    };
    match look(&site, &cache, fingerprint).await {
        Ok(known) if known.attempts.is_empty() && known.is_unknown() => {
            let text = format!(
                "Relay {} is not in the consensus and was never tried.",
                hex::encode_upper(fingerprint)
            );
            (StatusCode::NOT_FOUND, page.html(&sentence(&text))).into_response()
        }
        Ok(known) => {
            let nickname = known.nickname().map_or_else(|| "Relay".to_owned(), plain);
            Page::new(&site, &nickname).html(&known.html(&fingerprint)).into_response()
        }
        Err(error) => failed(page, &error),
    }
}

/// Reads the store's data about all relays.
pub(super) async fn remember(site: &Site) -> Result<Memory, AskError> {
    let (now, max_age_secs) = (now(), site.options.rules.max_age_secs);
    site.pool.ask(Work::Much, move |reader| reader.memory(now, max_age_secs)).await
}

/// Reads the data about a relay.
async fn look(
    site: &Site,
    cache: &Cached<Memory>,
    fingerprint: Fingerprint,
) -> Result<Known, AskError> {
    let network = site.options.network.as_ref().and_then(|network| network.borrow().clone());
    let (rules, publish_dir) = (site.options.rules.clone(), site.options.publish_dir.clone());
    let now = now();
    let memory = cache.get(0, remember(site)).await?;
    site.pool
        .ask(Work::Much, move |reader| {
            let drawn = u32::try_from(MOST_DRAWN).unwrap_or(u32::MAX);
            let mut attempts = reader.history(&fingerprint, drawn, Seconds::With)?;
            if attempts.len() >= MOST_DRAWN {
                let all = reader.history(&fingerprint, MOST, Seconds::Without)?;
                attempts.extend(all.into_iter().skip(MOST_DRAWN));
            }
            let explanation = match network {
                None => Err("the network's documents have not been read yet".to_owned()),
                Some(network) => {
                    let mut network = (*network).clone();
                    network.now_unix_secs = now;
                    let shelf = publish_dir.as_deref().map(Shelf::open);
                    let shelf = shelf.transpose().map_err(|error| error.to_string());
                    shelf.and_then(|shelf| {
                        let last = shelf.as_ref().and_then(Shelf::last);
                        let explained =
                            Explanation::of(reader, &memory, &network, &rules, last, &fingerprint);
                        explained.map_err(|error| error.to_string())
                    })
                }
            };
            Ok(Known { attempts, explanation })
        })
        .await
}

impl Known {
    /// The relay's nickname, if known.
    fn nickname(&self) -> Option<&str> {
        let explained =
            self.explanation.as_ref().ok().and_then(|one| one.trace.nickname.as_deref());
        explained.or_else(|| self.attempts.first()?.outcome.target.nickname.as_deref())
    }

    /// Whether there is no consensus, or it does not have the relay.
    fn is_unknown(&self) -> bool {
        let why = self.explanation.as_ref().ok().map(|one| one.trace.no_number.as_ref());
        why.is_none_or(|why| why.is_some_and(|why| why.code == "not_in_consensus"))
    }

    fn html(&self, fingerprint: &Fingerprint) -> Markup {
        html! {
            p { code { (hex::encode_upper(fingerprint)) } }
            h2 { "How its value is computed" }
            (self.number())
            h2 { "Measurement attempts" }
            (self.attempts())
            @for attempt in self.attempts.iter().take(MOST_DRAWN).filter(|one| !one.outcome.seconds.is_empty()) {
                (seconds(attempt))
            }
        }
    }

    /// The relay's number and its trace.
    fn number(&self) -> Markup {
        match &self.explanation {
            Err(reason) => sentence(&format!("The explanation is not available: {reason}.")),
            Ok(explanation) => html! {
                dl.facts {
                    div { dt { "Now" } dd {
                        @match (&explanation.trace.number, &explanation.trace.no_number) {
                            (Some(number), _) => { strong { "bw=" (number.bw) } " kB/s" }
                            (None, Some(why)) => { "no number: " (shown(&why.text)) " (" code { (why.code) } ")" }
                            (None, None) => { "-" }
                        }
                    } }
                    div { dt { "In the last bandwidth file" } dd {
                        @match &explanation.published {
                            None => { "none yet" }
                            Some(file) => {
                                @match file.bw { Some(bw) => { "bw=" (bw) " kB/s" } None => { "not listed" } }
                                @if let Some(at) = file.made_unix_secs { " (of " (time(at)) ")" }
                            }
                        }
                    } }
                }
                details open {
                    summary { "Every step, from the seconds to the number" }
                    pre { (shown_lines(&explanation.to_string())) }
                }
            },
        }
    }

    fn attempts(&self) -> Markup {
        if self.attempts.is_empty() {
            return html! { p { "None." } };
        }
        html! {
            div.wide tabindex="0" {
                table.cards {
                    thead { tr {
                        th scope="col" { "Began" } th scope="col" { "Verdict" } th.n scope="col" { "Estimate" }
                        th.n scope="col" { "Seconds" } th.n scope="col" { "Cells echoed" } th scope="col" { "Why it failed" }
                    } }
                    tbody { @for attempt in &self.attempts { (row(attempt)) } }
                }
            }
            @if self.attempts.len() >= MOST as usize { p { "Older attempts are not shown; ff-bwauth export writes all." } }
        }
    }
}

/// An attempt in the list.
fn row(attempt: &Attempt) -> Markup {
    let outcome = &attempt.outcome;
    let failure = outcome.result.as_ref().err();
    html! {
        tr {
            th scope="row" {
                @if outcome.seconds.is_empty() { (time(outcome.started_unix_secs)) }
                @else { a href={ "#a" (attempt.id.0) } { (time(outcome.started_unix_secs)) } }
            }
            td.bad[failure.is_some_and(|failure| failure.kind != FailureKind::NotSupported)] data-label="Verdict" { (outcome.verdict_name().replace('_', " ")) }
            td.n data-label="Estimate" { @match outcome.estimate { Some(estimate) => { (rate(estimate.get())) } None => { "-" } } }
            td.n data-label="Seconds" { (attempt.measured_secs) " of " (outcome.asked_secs) }
            td.n data-label="Cells echoed" { (grouped(outcome.cells.echoed)) }
            td data-label=[failure.map(|_| "Why it failed")] { @if let Some(failure) = failure {
                (shown(&failure.message)) " (" code { (failure.code()) } ")"
                @if let Some(meaning) = meaning(failure.code()) { br; span.small { (meaning.means) } }
            } }
        }
    }
}

/// The seconds of an attempt as a chart.
fn seconds(attempt: &Attempt) -> Markup {
    let outcome = &attempt.outcome;
    let totals = outcome.second_rows();
    let least = totals.iter().map(|row| row.total_bytes).min().unwrap_or(0);
    let most = totals.iter().map(|row| row.total_bytes).max().unwrap_or(0);
    let label = format!(
        "Seconds: {}, from {} to {}; estimate: {}",
        totals.len(),
        rate(least),
        rate(most),
        outcome.estimate.map_or("none".to_owned(), |estimate| estimate.to_string())
    );
    html! {
        section id={ "a" (attempt.id.0) } {
            h3 { "Seconds of " (time(outcome.started_unix_secs)) }
            ul.legend {
                @for entry in chart::legend(outcome) {
                    li { span class={ "swatch k-" (entry.swatch.class()) } {} (maud::PreEscaped(entry.text)) }
                }
            }
            (figure(&label, chart::svg(outcome)))
        }
    }
}

/// Lines of text, each of which may contain foreign text.
fn shown_lines(text: &str) -> Markup {
    html! { @for line in text.lines() { (shown(line)) "\n" } }
}
