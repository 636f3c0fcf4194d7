//! Tables as CSV: fits, and NavigaTor's tables 1 to 5 for our circuits.

use ff_report::output::Table;

use super::Report;
use super::performance::Performance;
use super::selected::Selection;
use crate::buckets::{Buckets, Held};
use crate::fit::{Fits, LawFit};

/// All tables.
#[must_use]
pub fn tables(report: &Report) -> Vec<Table> {
    let mut all =
        vec![fits(report), by_host(report), selections(report), attackers(report), tests(report)];
    all.extend(report.token_buckets.as_ref().map(buckets));
    all
}

/// A row for each distribution.
fn fits(report: &Report) -> Table {
    let header = &[
        "values",
        "distribution",
        "count",
        "given_up",
        "xi_or_shape",
        "mu_or_scale_ms",
        "sigma_or_shift_ms",
        "log_likelihood",
        "ks",
        "ks_p",
        "anderson_darling",
        "anderson_darling_p",
        "chi_square",
        "chi_square_df",
        "chi_square_p",
    ];
    let rows = report.fits.iter().flat_map(|(name, fits)| rows(name, fits)).collect();
    ("fits.csv", header, rows)
}

/// The rows of one kind of values.
fn rows(name: &str, fits: &Fits) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut add = |family: &str, parameters: [f64; 4], good: &crate::fit::good::Goodness| {
        let mut row = vec![name.to_owned(), family.to_owned()];
        row.extend([fits.values, fits.given_up].map(|count| count.to_string()));
        row.extend(parameters.map(|value| value.to_string()));
        let text = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        row.extend([Some(good.ks), good.ks_p].map(text));
        row.extend([good.anderson_darling, good.anderson_darling_p, good.chi_square].map(text));
        row.extend([good.chi_square_df.map(f64::from), good.chi_square_p].map(text));
        rows.push(row);
    };
    if let Some(gev) = &fits.gev {
        add("gev", [gev.xi, gev.mu_ms, gev.sigma_ms, gev.log_likelihood], &gev.good);
    }
    for (family, law) in laws(fits) {
        add(family, [law.shape, law.scale_ms, law.shift_ms, law.log_likelihood], &law.good);
    }
    rows
}

/// The fitted distributions of shape, scale and shift.
pub(super) fn laws(fits: &Fits) -> impl Iterator<Item = (&'static str, LawFit)> {
    let all = [
        ("frechet", fits.frechet),
        ("weibull", fits.weibull),
        ("pareto", fits.pareto),
        ("lognormal", fits.lognormal),
    ];
    all.into_iter().filter_map(|(name, law)| Some((name, law?)))
}

/// The performance for users, a row for each host and selection: tables 1, 3 and 5.
fn by_host(report: &Report) -> Table {
    let header = &[
        "host",
        "selection",
        "accepted_circuits",
        "ttfb_circuits",
        "ttfb_median_ms",
        "ttfb_p90_ms",
        "throughput_circuits",
        "throughput_median_mbit_per_sec",
        "throughput_p10_mbit_per_sec",
        "throughput_p90_mbit_per_sec",
        "latency_circuits",
        "latency_cut_circuits",
        "latency_probes",
        "latency_secs",
        "latency_mean_ms",
        "latency_deviation_ms",
        "latency_pooled_deviation_ms",
    ];
    let row = |host: &str, selection: &Selection, one: &Performance| {
        let mut row = vec![host.to_owned(), selection.name.clone()];
        if selection.accepted_share.is_none() {
            // No circuit has the measure that it needs, so its cells are empty.
            row.resize(header.len(), String::new());
            return row;
        }
        let text = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        row.extend([one.circuits, one.ttfb_circuits].map(|count| count.to_string()));
        row.extend([one.ttfb_median_ms, one.ttfb_p90_ms].map(text));
        row.push(one.throughput_circuits.to_string());
        let cells = [
            one.throughput_median_mbit_per_sec,
            one.throughput_p10_mbit_per_sec,
            one.throughput_p90_mbit_per_sec,
        ];
        row.extend(cells.map(text));
        row.extend([one.latency_circuits, one.latency_cut_circuits].map(|count| count.to_string()));
        let cells = [
            one.latency_probes,
            one.latency_secs,
            one.latency_mean_ms,
            one.latency_deviation_ms,
            one.latency_pooled_deviation_ms,
        ];
        row.extend(cells.map(text));
        row
    };
    let mut rows = Vec::new();
    for selection in &report.selections {
        rows.extend(selection.hosts.iter().map(|(host, one)| row(host, selection, one)));
        rows.push(row("average", selection, &selection.performance));
    }
    ("performance.csv", header, rows.into_iter().collect())
}

/// Accepted shares and the cost in anonymity: tables 2 and 4.
fn selections(report: &Report) -> Table {
    let header = &[
        "selection",
        "asked_share",
        "accepted_share",
        "published_entropy",
        "published_entropy_at_random",
        "published_gini",
        "published_gini_at_random",
        "pair_entropy_bits",
        "first_entropy_bits",
        "last_entropy_bits",
        "gini",
        "common_size",
    ];
    let row = |one: &Selection| {
        let text = |share: Option<f64>| share.map(|share| share.to_string()).unwrap_or_default();
        let mut row = vec![one.name.clone(), text(one.asked_share), text(one.accepted_share)];
        let Some(anonymity) = &one.anonymity else {
            row.resize(header.len(), String::new());
            return row;
        };
        let (published, random) = (anonymity.published, anonymity.at_random);
        row.extend(
            [published.entropy, random.entropy, published.gini, random.gini]
                .map(|value| value.to_string()),
        );
        let corrected = anonymity.corrected.map(|found| {
            let bits = [found.pair_entropy_bits, found.first_entropy_bits, found.last_entropy_bits];
            let [pair, first, last] = bits.map(|value| value.to_string());
            let size = report.common_size.map(|size| size.to_string()).unwrap_or_default();
            [pair, first, last, found.gini.to_string(), size]
        });
        row.extend(corrected.unwrap_or_default());
        row
    };
    ("selections.csv", header, report.selections.iter().map(row).collect())
}

/// How often an attacker has both ends.
fn attackers(report: &Report) -> Table {
    let header = &[
        "selection",
        "attacker",
        "chance",
        "low_95",
        "high_95",
        "tied_chosen",
        "tied",
        "chance_without_tied",
        "chance_with_all_tied",
    ];
    let of = |one: &Selection| {
        let name = one.name.clone();
        let row = move |gain: &crate::anonymity::attacker::Gain| {
            let mut row = vec![name.clone(), gain.attacker.clone()];
            row.extend([gain.chance, gain.low, gain.high].map(|value| value.to_string()));
            let tie = gain.tie.map(|tie| {
                let counts = [tie.chosen, tie.of].map(|count| count.to_string());
                let chances = [tie.least, tie.most].map(|value| value.to_string());
                [counts, chances].concat()
            });
            row.extend(tie.unwrap_or_else(|| vec![String::new(); 4]));
            row
        };
        let gains = one.anonymity.iter().flat_map(|anonymity| &anonymity.attackers);
        gains.map(row).collect::<Vec<_>>()
    };
    ("attackers.csv", header, report.selections.iter().flat_map(of).collect())
}

/// The Kruskal-Wallis tests.
fn tests(report: &Report) -> Table {
    let header = &["host", "share", "h", "df", "p"];
    let row = |one: &super::selected::Kruskal| {
        let test = one.test;
        vec![
            one.host.clone(),
            one.share.to_string(),
            test.h.to_string(),
            test.df.to_string(),
            test.p.to_string(),
        ]
    };
    ("kruskal_wallis.csv", header, report.kruskal_wallis.iter().map(row).collect())
}

/// Relays that hold cells back until a refill.
fn buckets(found: &Buckets) -> Table {
    let header = &["relay", "circuits", "held", "expected", "p", "share", "delay_ms", "or"];
    let row = |one: &Held| {
        let mut row = vec![one.id.clone(), one.circuits.to_string(), one.held.to_string()];
        row.extend([one.expected, one.p, one.share, one.delay_ms].map(|value| value.to_string()));
        row.push(one.or.join(" "));
        row
    };
    ("token_buckets.csv", header, found.found.iter().map(row).collect())
}
