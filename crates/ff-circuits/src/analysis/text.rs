//! The report as text: our numbers compared with the paper's.

use std::fmt::Write as _;

use super::Report;
use super::congested::Congested;
use super::paper::{RHO, TABLE4, printed};
use super::selected::{Anonymity, Selection};
use super::tables::laws;
use crate::anonymity::Corrected;
use crate::anonymity::attacker::{FEW, Gain};
use crate::buckets::{Buckets, CIRCUIT_LEVEL};
use crate::fit::Fits;

/// The whole report.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    head(&mut text, report);
    for (name, fits) in &report.fits {
        fitted(&mut text, name, fits);
    }
    correlations(&mut text, report);
    if let Some(reason) = &report.not_decided {
        line(&mut text, format_args!("\n{reason}"));
    }
    if !report.undecided_hosts.is_empty() {
        let hosts = report.undecided_hosts.join(", ");
        line(
            &mut text,
            format_args!(
                "\nno selection was possible at these hosts, so `all` leaves them out too: {hosts}"
            ),
        );
    }
    performance(&mut text, report);
    table4(&mut text, report);
    table5(&mut text, report);
    anonymity(&mut text, report);
    attackers(&mut text, report);
    if let Some(found) = &report.token_buckets {
        buckets(&mut text, found);
    }
    if let Some(found) = &report.congested {
        congested(&mut text, found);
    }
    text
}

/// The most congested relays.
fn congested(text: &mut String, found: &Congested) {
    line(
        text,
        format_args!(
            "\ncongestion attributed to relays: {:.1} ms (median of {} relays); the most congested:",
            found.median_ms, found.relays
        ),
    );
    for one in &found.most {
        line(text, format_args!("  {}  {:.1} ms, {} circuits", one.id, one.delay_ms, one.circuits));
    }
}

/// The circuits that were read.
fn head(text: &mut String, report: &Report) {
    let read = report.read;
    let unknown = match read.unknown_hops_given_up {
        0 => String::new(),
        count => format!("{count} of an unknown number of hops, "),
    };
    line(
        text,
        format_args!(
            "{} circuits of {} hops were built, of {} read: {} more were built with other numbers of hops; given up: {} of {1} hops, {unknown}{} of other numbers of hops; {} failed otherwise",
            report.circuits,
            report.hops,
            read.all,
            read.other_hops,
            read.given_up,
            read.other_hops_given_up,
            read.failed
        ),
    );
    unknown_hops(text, report);
    if read.half_lines > 0 {
        let files = read.half_lines;
        line(text, format_args!("files with an incomplete last line, which is left out: {files}"));
    }
    if let Some(known) = read.relays_in_network {
        line(text, format_args!("the network has {known} of the circuits' {} relays", read.relays));
    }
    if read.left_out > 0 {
        let count = read.left_out;
        line(
            text,
            format_args!(
                "{count} others, for onion services or filtered out by OnionPerf, are left out"
            ),
        );
    }
    if report.damaged.count > 0 {
        let count = report.damaged.count;
        line(
            text,
            format_args!("skipped unreadable records (circuits, streams, downloads): {count}"),
        );
        for one in &report.damaged.first {
            line(text, format_args!("  {one}"));
        }
    }
    for host in report.hosts.iter().filter(|_| report.hosts.len() > 1) {
        let gev = host
            .build_gev
            .map(|gev| format!(", build times xi {:.3}, D {:.3}", gev.xi, gev.good.ks));
        line(text, format_args!("  {}: {}{}", host.name, host.circuits, gev.unwrap_or_default()));
    }
}

/// How circuits count that were given up while their intended number of hops was unknown.
fn unknown_hops(text: &mut String, report: &Report) {
    let read = report.read;
    if read.unknown_hops_given_up == 0 {
        return;
    }
    let part = report.circuits as f64 / read.built as f64;
    line(
        text,
        format_args!(
            "  those of an unknown number of hops each count as {part:.3} in build_with_timeouts, the share of built circuits \
             with {} hops; build_with_timeouts_least leaves them out, and in build_with_timeouts_most each counts fully",
            report.hops
        ),
    );
}

/// The distributions of one kind of values.
fn fitted(text: &mut String, name: &str, fits: &Fits) {
    let given_up = match fits.given_up {
        0 => String::new(),
        count => format!(" and {count} given up, which count as longer than the time of giving up"),
    };
    line(text, format_args!("\n{name}: {} values{given_up}", fits.values));
    if fits.gev.is_none() && laws(fits).next().is_none() {
        line(
            text,
            format_args!(
                "  no fit: fewer than ten values, fewer than three distinct ones, or more than a fifth equal to the minimum"
            ),
        );
        return;
    }
    let header = [
        "distribution",
        "xi|shape",
        "mu|scale ms",
        "sigma|shift ms",
        "ln likelihood",
        "D",
        "A2",
        "chi2 p",
    ];
    line(
        text,
        format_args!(
            "  {:<12}{:>10}{:>13}{:>15}{:>15}{:>8}{:>9}{:>10}",
            header[0], header[1], header[2], header[3], header[4], header[5], header[6], header[7]
        ),
    );
    let gev = fits
        .gev
        .map(|gev| ("gev", [gev.xi, gev.mu_ms, gev.sigma_ms], gev.log_likelihood, gev.good));
    let others = laws(fits).map(|(name, law)| {
        (name, [law.shape, law.scale_ms, law.shift_ms], law.log_likelihood, law.good)
    });
    for (name, [one, two, three], likelihood, good) in gev.into_iter().chain(others) {
        line(
            text,
            format_args!(
                "  {name:<12} {one:>9.3} {two:>12.1} {three:>14.1} {likelihood:>14.2} {:>7.3} {:>8} {:>9}",
                good.ks,
                cell(good.anderson_darling, 2),
                good.chi_square_p.map_or("-".to_owned(), |p| format!("{p:.2e}"))
            ),
        );
    }
    if let Some(tor) = &fits.tor {
        line(
            text,
            format_args!(
                "  tor's estimator: Xm {:.0} ms, alpha {:.2}, timeout {:.0} ms, which accepts {:.1} % (aim: 80 %)",
                tor.estimate.xm_ms,
                tor.estimate.alpha,
                tor.timeout_ms,
                100.0 * tor.accepted_share
            ),
        );
    }
}

/// Spearman's rho.
fn correlations(text: &mut String, report: &Report) {
    for (name, paper) in RHO {
        if let Some(found) = report.spearman_with_ttfb.get(name) {
            line(
                text,
                format_args!(
                    "\nrho of {name} with time to first byte: {:.3} ({} pairs, p {:.1e}); NavigaTor: {paper}",
                    found.rho, found.pairs, found.p
                ),
            );
        }
    }
}

/// Tables 1 and 3.
fn performance(text: &mut String, report: &Report) {
    line(
        text,
        format_args!(
            "\ntables 1, 3: means over hosts, n circuits in total (NavigaTor's values after the bar). NavigaTor calls the p10 of throughput its 90th percentile.\n  \
             {:<22}{:>9}{:>9}{:>17}{:>17}{:>9}{:>15}{:>8}",
            "selection", "accepted", "n", "TTFB p50 ms", "TTFB p90 ms", "n", "Mbit/s p50", "p10"
        ),
    );
    for one in &report.selections {
        let (found, paper) = (&one.performance, printed(&one.name));
        let Some(accepted) = one.accepted_share else {
            line(text, format_args!("  {:<22}{:>17}", one.name, "not measured"));
            continue;
        };
        line(
            text,
            format_args!(
                "  {:<22}{:>7.1} %{:>9}{:>17}{:>17}{:>9}{:>15}{:>8}",
                one.name,
                100.0 * accepted,
                found.ttfb_circuits,
                pair(found.ttfb_median_ms, paper.and_then(|row| row.ttfb_median_ms), 0),
                pair(found.ttfb_p90_ms, paper.and_then(|row| row.ttfb_p90_ms), 0),
                found.throughput_circuits,
                pair(found.throughput_median_mbit_per_sec, paper.and_then(|row| row.mbit), 2),
                cell(found.throughput_p10_mbit_per_sec, 2),
            ),
        );
    }
    of_fewer_hosts(text, report);
    for one in &report.kruskal_wallis {
        line(
            text,
            format_args!(
                "  Kruskal-Wallis, rtt{0:.0} against build{0:.0} at {1}: H {2:.2}, p {3:.1e} (NavigaTor's 68.76 is the quantile at 2^-53)",
                100.0 * one.share,
                one.host,
                one.test.h,
                one.test.p
            ),
        );
    }
}

/// The selections with fewer hosts than `all`, for example because round trips were measured at
/// some hosts only.
fn of_fewer_hosts(text: &mut String, report: &Report) {
    let Some(all) = report.selections.first() else { return };
    let measured = report.selections.iter().filter(|one| one.accepted_share.is_some());
    let fewer = measured.filter(|one| one.hosts.len() < all.hosts.len());
    let names: Vec<&str> = fewer.map(|one| one.name.as_str()).collect();
    if !names.is_empty() {
        line(
            text,
            format_args!(
                "  from fewer hosts than `all`, so not comparable with it: {}",
                names.join(", ")
            ),
        );
    }
}

/// Table 5, if there are latencies over the life of circuits.
fn table5(text: &mut String, report: &Report) {
    let has_latency = |one: &&Selection| one.performance.latency_circuits > 0;
    let Some(all) = report.selections.iter().find(has_latency) else { return };
    let whole = &all.performance;
    line(
        text,
        format_args!(
            "\ntable 5: time to first byte over the life of circuits, median {} times in {} s (NavigaTor's after the bar: 600 in\n\
             ten minutes). Mean and sd are means over circuits; the pooled sd is of all values, so differences between circuits add to it.\n  \
             {:<22}{:>9}{:>5}{:>15}{:>16}{:>15}{:>11}",
            cell(whole.latency_probes, 0),
            cell(whole.latency_secs, 0),
            "selection",
            "circuits",
            "cut",
            "mean ms",
            "gain %",
            "sd ms",
            "pooled sd"
        ),
    );
    let (ours, papers) = (whole.latency_mean_ms, printed("all").and_then(|row| row.latency_ms));
    let gain = |mean: Option<f64>, all: Option<f64>| Some(100.0 * (1.0 - mean? / all?));
    for one in report.selections.iter().filter(has_latency) {
        let (found, paper) = (&one.performance, printed(&one.name).and_then(|row| row.latency_ms));
        let (mean, deviation) = paper.unzip();
        line(
            text,
            format_args!(
                "  {:<22}{:>9}{:>5}{:>15}{:>16}{:>15}{:>11}",
                one.name,
                found.latency_circuits,
                found.latency_cut_circuits,
                pair(found.latency_mean_ms, mean, 0),
                pair(gain(found.latency_mean_ms, ours), gain(mean, papers.map(|all| all.0)), 1),
                pair(found.latency_deviation_ms, deviation, 0),
                cell(found.latency_pooled_deviation_ms, 0),
            ),
        );
    }
}

/// Table 4.
fn table4(text: &mut String, report: &Report) {
    line(
        text,
        format_args!(
            "\ntable 4: TTFB p50 ms, Mbit/s p50 (n as above), \"entropy\" (NavigaTor's after the bar)"
        ),
    );
    for (name, ttfb, mbit, entropy) in TABLE4 {
        let Some(one) = report.selections.iter().find(|one| one.name == name) else { continue };
        let Some(anonymity) = &one.anonymity else { continue };
        line(
            text,
            format_args!(
                "  {name:<22}{:>17}{:>15}{:>17}",
                pair(one.performance.ttfb_median_ms, Some(ttfb), 0),
                pair(one.performance.throughput_median_mbit_per_sec, Some(mbit), 2),
                pair(Some(anonymity.published.entropy), Some(entropy), 3),
            ),
        );
    }
}

/// Table 2, and its values for a random choice.
fn anonymity(text: &mut String, report: &Report) {
    let compared = match report.common_size {
        Some(size) => format!("and entropies and Gini of {size} circuits of each selection (those with fewer are too small)"),
        None => "and entropies and Gini of equally many circuits of each selection, for which there are too few".to_owned(),
    };
    line(
        text,
        format_args!(
            "\ntable 2: the published \"entropy\" and \"Gini\" (NavigaTor's after the bar), the same for as many circuits kept at random,\n\
             {compared}\n  {:<22}{:>15}{:>10}{:>15}{:>10}{:>11}{:>11}{:>11}{:>7}",
            "selection",
            "entropy",
            "random",
            "Gini",
            "random",
            "pair bits",
            "first bits",
            "last bits",
            "Gini"
        ),
    );
    for (one, found) in accepting(report) {
        let paper = printed(&one.name);
        let corrected =
            |of: fn(&Corrected) -> f64, digits| cell(found.corrected.as_ref().map(of), digits);
        line(
            text,
            format_args!(
                "  {:<22}{:>15}{:>10.3}{:>15}{:>10.3}{:>11}{:>11}{:>11}{:>7}",
                one.name,
                pair(Some(found.published.entropy), paper.and_then(|row| row.entropy), 3),
                found.at_random.entropy,
                pair(Some(found.published.gini), paper.and_then(|row| row.gini), 3),
                found.at_random.gini,
                corrected(|found| found.pair_entropy_bits, 2),
                corrected(|found| found.first_entropy_bits, 2),
                corrected(|found| found.last_entropy_bits, 2),
                corrected(|found| found.gini, 3),
            ),
        );
    }
}

/// The selections that accept circuits, with their cost in anonymity; the others are only named.
fn accepting(report: &Report) -> impl Iterator<Item = (&Selection, &Anonymity)> {
    let accepts = |one: &&Selection| one.accepted_share.is_some_and(|share| share > 0.0);
    let all = report.selections.iter().filter(accepts);
    all.filter_map(|one| Some((one, one.anonymity.as_ref()?)))
}

/// The gains of attackers.
fn attackers(text: &mut String, report: &Report) {
    line(
        text,
        format_args!(
            "\nan attacker has both ends, % of accepted circuits (95 % interval: bootstrap, or Wilson's if fewer than {FEW} have or have \
             not; tie: how many of the equally used relays the attacker has, and the % with none and with all of them)"
        ),
    );
    for (one, anonymity) in accepting(report) {
        let gains: Vec<String> = anonymity.attackers.iter().map(gained).collect();
        line(text, format_args!("  {:<22}{}", one.name, gains.join(", ")));
    }
}

/// An attacker's gain, and the effect of a tie.
fn gained(gain: &Gain) -> String {
    let [chance, low, high] = [gain.chance, gain.low, gain.high].map(|part| 100.0 * part);
    let tie = gain.tie.filter(|tie| tie.least < tie.most).map(|tie| {
        let (least, most) = (100.0 * tie.least, 100.0 * tie.most);
        format!("; tie: {} of {}, {least:.2} to {most:.2}", tie.chosen, tie.of)
    });
    let tie = tie.unwrap_or_default();
    format!("{} {chance:.2} ({low:.2}-{high:.2}{tie})", gain.attacker)
}

/// Relays that hold cells back, compared with the truth if it is known.
fn buckets(text: &mut String, found: &Buckets) {
    line(
        text,
        format_args!(
            "\ntoken buckets, refilled each {} ms: {} of {} circuits are held back (by chance at most {:.0} % would be), {} have no pauses spread over that time, \
             see `circuits run --rtt-pause`\n  {} of their {} relays hold cells back (chance of naming any relay falsely: {:.0} %)\n  \
             relays that are not named may be full as well: of a tor's links only those with a queue wait for the refill; a quota of CPU time in such periods looks the same",
            found.interval_ms,
            found.held,
            found.circuits,
            100.0 * CIRCUIT_LEVEL,
            found.without_pauses,
            found.found.len(),
            found.relays,
            100.0 * found.level
        ),
    );
    for one in &found.found {
        let or =
            if one.or.is_empty() { String::new() } else { format!(", or {}", one.or.join(", ")) };
        line(
            text,
            format_args!(
                "  {}  {} of {} circuits, {:.1} without it, p {:.1e}; {:.0} % of replies, mean {:.0} ms{or}",
                one.id,
                one.held,
                one.circuits,
                one.expected,
                one.p,
                100.0 * one.share,
                one.delay_ms
            ),
        );
    }
    if let Some(truth) = &found.truth {
        line(
            text,
            format_args!(
                "  compared with the truth: {} hits, {} misses, {} false alarms of {} others, {} indistinguishable, {} not examined",
                truth.hits.len(),
                truth.misses.len(),
                truth.false_alarms.len(),
                truth.innocent,
                truth.not_told_apart.len(),
                truth.not_looked_at.len()
            ),
        );
        for (what, list) in [("missed", &truth.misses), ("false alarm", &truth.false_alarms)] {
            list.iter().for_each(|id| line(text, format_args!("  {what}: {id}")));
        }
    }
}

/// A value, if there is one.
fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Our value and the paper's.
fn pair(ours: Option<f64>, paper: Option<f64>, digits: usize) -> String {
    match paper {
        Some(_) => format!("{} | {}", cell(ours, digits), cell(paper, digits)),
        None => cell(ours, digits),
    }
}

/// Adds a line.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}
