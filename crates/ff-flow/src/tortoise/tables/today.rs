//! The results of `tortoise --today`: as text, JSON, and tables.

use std::fmt::Write as _;

use ff_report::output::{Rows, Table};
use ff_report::stats::{mean, percentile, sorted};
use serde::Serialize;

use crate::tortoise::between::EXEMPT;
use crate::tortoise::bucket::LinkLimit;
use crate::tortoise::outcome::TortoiseOutcome;
use crate::tortoise::today::{TodayResults, world};

/// The header of the table of limits.
const LIMITS: [&str; 17] = [
    "limit_bytes_per_sec",
    "burst_bytes",
    "seed",
    "page_median_secs",
    "page_p90_secs",
    "page_median_without_limit_secs",
    "page_p90_without_limit_secs",
    "file_median_secs",
    "file_p90_secs",
    "file_median_without_limit_secs",
    "file_p90_without_limit_secs",
    "pages",
    "files",
    "relays_used_part",
    "above_limit_part",
    "above_limit_not_exempt_fast_part",
    "above_limit_not_exempt_stable_fast_part",
];
/// The header of the table of bytes above a rate without limits for clients.
const ABOVE: [&str; 5] = [
    "rate_bytes_per_sec",
    "seed",
    "above_rate_part",
    "above_rate_not_exempt_fast_part",
    "above_rate_not_exempt_stable_fast_part",
];

/// Times of transfers, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Times {
    median_secs: Option<f64>,
    /// The 90th percentile.
    p90_secs: Option<f64>,
    /// The number of transfers.
    transfers: usize,
}

impl Times {
    /// The times of web users (`kind` 0) or bulk users (1) in some simulations.
    fn of(outcomes: &[TortoiseOutcome], kind: usize) -> Self {
        let secs = sorted(outcomes.iter().flat_map(|one| &one.secs[kind]).copied().collect());
        let [median_secs, p90_secs] = [50.0, 90.0].map(|part| percentile(&secs, part));
        Self { median_secs, p90_secs, transfers: secs.len() }
    }
}

/// The shares of the bytes between relays above a rate: on all links, and on links that are not
/// exempt by each of [`EXEMPT`]. `None` if there were no bytes between relays.
fn above(outcomes: &[TortoiseOutcome], rate: usize) -> Option<[f64; 3]> {
    let bytes: f64 = outcomes.iter().map(|one| one.between.bytes).sum();
    let parts = [0, 1, 2].map(|links| {
        let above = outcomes.iter().filter_map(|one| one.between.above.get(rate));
        above.map(|above| above[links]).sum::<f64>() / bytes
    });
    (bytes > 0.0).then_some(parts)
}

/// The results with a limit, or without one.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct LimitReport {
    limit_bytes_per_sec: Option<f64>,
    /// The size of the bucket.
    burst_bytes: Option<f64>,
    /// Times of web users' pages.
    pages: Times,
    /// Times of bulk users' files.
    files: Times,
    /// The mean utilisation of relays.
    used_part: Option<f64>,
    /// The shares of the bytes between relays above the limit: on all links, on those not exempt by
    /// `fast`, and on those not exempt by `stable-fast`.
    above_parts: Option<[f64; 3]>,
}

impl LimitReport {
    /// The results of some simulations, in which bytes between relays were counted above these
    /// rates.
    fn of(limit: Option<LinkLimit>, outcomes: &[TortoiseOutcome], rates: &[f64]) -> Self {
        let used: Vec<f64> = outcomes.iter().map(|one| one.used).collect();
        let is_rate = |limit: LinkLimit| rates.iter().position(|rate| *rate == limit.rate);
        Self {
            limit_bytes_per_sec: limit.map(|limit| limit.rate),
            burst_bytes: limit.map(|limit| limit.burst),
            pages: Times::of(outcomes, 0),
            files: Times::of(outcomes, 1),
            used_part: mean(&used),
            above_parts: limit.and_then(is_rate).and_then(|rate| above(outcomes, rate)),
        }
    }
}

/// The shares of the bytes between relays above a rate, without limits for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct AboveReport {
    rate_bytes_per_sec: f64,
    /// On all links, on those not exempt by `fast`, and on those not exempt by `stable-fast`.
    above_parts: Option<[f64; 3]>,
}

/// The results for all limits.
#[derive(Debug, Serialize)]
pub struct TodayReport {
    seeds: Vec<u64>,
    /// The number of relays.
    relays: u32,
    /// The fitted number of clients.
    clients: u32,
    /// Each limit with each burst, no limit first; times are of all seeds together.
    limits: Vec<LimitReport>,
    /// Bytes between relays above each limit's rate, without limits for clients.
    without_limit: Vec<AboveReport>,
    /// The mean number of other circuits with bytes on a circuit's link between two relays, in a
    /// network of full size without a limit.
    others_on_link: Option<f64>,
}

impl TodayReport {
    /// The results of these simulations, each with this many measured seconds.
    #[must_use]
    pub fn new(results: &TodayResults, secs: u32) -> Self {
        let base = base(results);
        let of = |(limit, outcomes): &(Option<LinkLimit>, Vec<TortoiseOutcome>)| {
            LimitReport::of(*limit, outcomes, &results.rates)
        };
        let without = |(number, rate): (usize, &f64)| AboveReport {
            rate_bytes_per_sec: *rate,
            above_parts: above(base, number),
        };
        let others = |(one, seed): (&TortoiseOutcome, &u64)| {
            let world = world(None, &[], results.relays, results.clients, *seed);
            one.between.others(&world, secs.into())
        };
        let others: Vec<f64> = base.iter().zip(&results.seeds).map(others).collect();
        Self {
            seeds: results.seeds.clone(),
            relays: results.relays,
            clients: results.clients,
            limits: results.cells.iter().map(of).collect(),
            without_limit: results.rates.iter().enumerate().map(without).collect(),
            others_on_link: mean(&others),
        }
    }
}

/// The results without a limit.
fn base(results: &TodayResults) -> &[TortoiseOutcome] {
    results.cells.first().map_or(&[][..], |(_, outcomes)| outcomes.as_slice())
}

/// A number with decimal digits, or a dash.
fn short(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Shares in percent, or dashes.
fn percent(parts: Option<[f64; 3]>) -> [String; 3] {
    [0, 1, 2].map(|links| short(parts.map(|parts| parts[links] * 100.0), 3))
}

/// The results as text.
#[must_use]
pub fn text(report: &TodayReport) -> String {
    let [fast, stable_fast] = EXEMPT;
    let above = format!("above limit %: all  {fast:>9}  {stable_fast:>11}");
    let mut text = format!(
        "limit MB/s  burst MB  page s    (x)    p90  file s    (x)    p90  used %  {above}\n"
    );
    let free = report.limits.first();
    let ratio = |one: Times, free: Option<Times>| {
        Some(one.median_secs? / free.and_then(|free| free.median_secs)?)
    };
    // Writing to a string cannot fail.
    for one in &report.limits {
        let limit = one.limit_bytes_per_sec.map(|rate| (rate / 1e6).to_string());
        let burst = one.burst_bytes.map(|burst| (burst / 1e6).to_string());
        let [all, fast, stable_fast] = percent(one.above_parts);
        let _ = writeln!(
            text,
            "{:>10}  {:>8}  {:>6}  {:>5}  {:>5}  {:>6}  {:>5}  {:>5}  {:>6}  {all:>18}  {fast:>9}  {stable_fast:>11}",
            limit.as_deref().unwrap_or("none"),
            burst.as_deref().unwrap_or("-"),
            short(one.pages.median_secs, 2),
            short(ratio(one.pages, free.map(|free| free.pages)), 2),
            short(one.pages.p90_secs, 1),
            short(one.files.median_secs, 1),
            short(ratio(one.files, free.map(|free| free.files)), 2),
            short(one.files.p90_secs, 1),
            short(one.used_part.map(|part| part * 100.0), 1),
        );
    }
    text.push_str(
        "\nBytes between relays above a rate, without a limit of clients' links, in % of all\n",
    );
    let _ = writeln!(text, "rate MB/s  all links  {fast:>9}  {stable_fast:>11}");
    for one in &report.without_limit {
        let [all, fast, stable_fast] = percent(one.above_parts);
        let rate = one.rate_bytes_per_sec / 1e6;
        let _ = writeln!(text, "{rate:>9}  {all:>9}  {fast:>9}  {stable_fast:>11}");
    }
    let seeds: Vec<String> = report.seeds.iter().map(u64::to_string).collect();
    let _ = writeln!(
        text,
        "\n{} relays of May 2024, {} clients (fitted), seeds {}. (x): in times of the median without a limit. Columns {fast} \
         and {stable_fast}: links that these do not exempt. Other circuits that carry bytes on the same link between \
         relays, in a network of full size: {} on average.",
        report.relays,
        report.clients,
        seeds.join(" "),
        short(report.others_on_link, 4),
    );
    text
}

/// The tables: a row for each limit, burst and seed, and a row for each rate and seed.
#[must_use]
pub fn tables(results: &TodayResults) -> [Table; 2] {
    let of = |limit, outcome: &TortoiseOutcome| {
        LimitReport::of(limit, std::slice::from_ref(outcome), &results.rates)
    };
    let (mut limits, mut above_rates) = (Rows::default(), Rows::default());
    for (limit, outcomes) in &results.cells {
        for ((outcome, free), seed) in outcomes.iter().zip(base(results)).zip(&results.seeds) {
            let (one, free) = (of(*limit, outcome), of(None, free));
            limits.optional(one.limit_bytes_per_sec).optional(one.burst_bytes).cell(seed);
            for (times, free) in [(one.pages, free.pages), (one.files, free.files)] {
                for secs in [times.median_secs, times.p90_secs, free.median_secs, free.p90_secs] {
                    limits.optional(secs);
                }
            }
            limits.cell(one.pages.transfers).cell(one.files.transfers).optional(one.used_part);
            parts(&mut limits, one.above_parts);
        }
    }
    for (number, rate) in results.rates.iter().enumerate() {
        for (outcome, seed) in base(results).iter().zip(&results.seeds) {
            above_rates.cell(rate).cell(seed);
            parts(&mut above_rates, above(std::slice::from_ref(outcome), number));
        }
    }
    [("limits.csv", &LIMITS, limits), ("above.csv", &ABOVE, above_rates)]
}

/// Ends a row with shares of the bytes between relays.
fn parts(rows: &mut Rows, parts: Option<[f64; 3]>) {
    for links in 0..3 {
        rows.optional(parts.map(|parts| parts[links]));
    }
    rows.end_row();
}
