//! The commands `circuits guards` and `circuits pairs`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use ff_circuits::guards::Guards;
use ff_circuits::interval::Interval;
use ff_circuits::pairs::{Pair, pairs};
use ff_circuits::rank::KruskalWallis;
use ff_circuits::read::Circuits;
use ff_report::input::Inputs;

use super::output::print;
use crate::cli::compared::{GuardsArgs, PairsArgs};

/// Runs `circuits guards`.
pub(super) fn guards(args: &GuardsArgs) -> Result<ExitCode> {
    let found = Guards::of(&read(&args.paths)?, args.hops, args.least);
    ensure!(
        !found.guards.is_empty(),
        "none of {} guards has {} circuits of {} hops, and {} circuits have other numbers of them: measure more, lower \
         --least, or see --hops",
        found.with_too_few_circuits,
        args.least,
        found.hops,
        found.other_hops
    );
    print(args.json, &found, guards_text)
}

/// Runs `circuits pairs`.
pub(super) fn pairs_of(args: &PairsArgs) -> Result<ExitCode> {
    let found = pairs(&read(&args.paths)?, args.least);
    ensure!(
        !found.is_empty(),
        "no two paths with {} round trips each differ only by one relay at the end: see `ff-perf circuits pairs --help`",
        args.least
    );
    print(args.json, &found, |pairs| pairs_text(pairs))
}

fn read(paths: &[PathBuf]) -> Result<Circuits> {
    Ok(Circuits::read(paths, &mut Inputs::default())?)
}

fn guards_text(found: &Guards) -> String {
    let mut text = format!(
        "{:<40} {:>8} {:>20} {:>24} {:>24} {:>24} {:>22} {:>24} {:>22}\n",
        "guard",
        "circuits",
        "built, %",
        "build, ms",
        "without link, ms",
        "round trip, ms",
        "congestion, ms",
        "first byte, ms",
        "Mbit/s"
    );
    for guard in &found.guards {
        let percent = |part: f64| part * 100.0;
        let built = Interval {
            value: percent(guard.built.value),
            low: guard.built.low.map(percent),
            high: guard.built.high.map(percent),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<40} {:>8} {:>20} {:>24} {:>24} {:>24} {:>22} {:>24} {:>22}",
            guard.id,
            guard.circuits,
            interval(Some(built)),
            interval(guard.build_ms),
            interval(guard.build_without_link_ms),
            interval(guard.rtt_ms),
            interval(guard.congestion_ms),
            interval(guard.ttfb_ms),
            interval(guard.throughput_mbit_per_sec)
        );
    }
    let _ = writeln!(
        text,
        "medians with 95 % intervals; {} guards had fewer circuits; {} circuits had other than {} hops",
        found.with_too_few_circuits, found.other_hops, found.hops
    );
    let unknown: u64 = found.guards.iter().map(|guard| guard.unknown_hops).sum();
    if unknown > 0 {
        let _ = writeln!(
            text,
            "circuits that failed before it was known how many hops they were meant to have: {unknown}; the share built may be greater"
        );
    }
    let differ = &found.differ;
    for (what, test) in [
        ("build times", differ.build),
        ("build times without the link", differ.build_without_link),
        ("round trips", differ.rtt),
        ("congestion delays", differ.congestion),
        ("times to first byte", differ.ttfb),
        ("throughputs", differ.throughput),
    ] {
        if let Some(KruskalWallis { h, df, p }) = test {
            let _ = writeln!(
                text,
                "whether {what} differ between guards: H = {h:.2}, df {df}, p {p:.2e}"
            );
        }
    }
    text
}

/// A value with its interval.
fn interval(found: Option<Interval>) -> String {
    match found {
        Some(Interval { value, low: Some(low), high: Some(high) }) => {
            format!("{value:.1} ({low:.1} to {high:.1})")
        }
        Some(Interval { value, .. }) => format!("{value:.1} (under 6 values)"),
        None => "-".to_owned(),
    }
}

fn pairs_text(found: &[Pair]) -> String {
    let mut text = format!(
        "{:<40} {:<40} {:>14} {:>9} {:>12} {:>6}\n",
        "one relay", "the other", "round trip, ms", "least, ms", "greatest, ms", "ways"
    );
    for Pair { one, other, rtt_ms, least_ms, greatest_ms, ways } in found {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{one:<40} {other:<40} {rtt_ms:>14.2} {least_ms:>9.2} {greatest_ms:>12.2} {ways:>6}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use ff_circuits::read::Seen;

    use super::*;

    #[test]
    fn guards_that_are_alike_are_not_said_to_differ() {
        let mut circuits = Circuits::default();
        for guard in ["AA", "BB"].map(|id| circuits.relay(id)) {
            let seen = |number: u32| Seen {
                path: vec![guard, 8, 9],
                hops: Some(3),
                build_ms: Some(f64::from(number)),
                ..Seen::default()
            };
            circuits.all.extend((0..20).map(seen));
        }
        let text = guards_text(&Guards::of(&circuits, 3, 10));
        let line = text.lines().last().expect("a test");
        let said = "whether build times differ between guards: H = 0.00, df 1, p 1.00e0";
        assert_eq!(line, said, "{text}");
        assert!(!text.contains("under 6 values") && !text.contains("failed before"), "{text}");
    }

    #[test]
    fn a_median_of_few_values_and_circuits_of_unknown_length_are_named() {
        let mut circuits = Circuits::default();
        let path = vec![circuits.relay("AA"), 8, 9];
        let seen = Seen { path, hops: Some(3), build_ms: Some(5.0), ..Seen::default() };
        circuits.all = vec![seen.clone(); 20];
        circuits.all[0].ttfb_ms = Some(300.0);
        circuits.all.push(Seen { path: vec![seen.path[0]], ..Seen::default() });
        let text = guards_text(&Guards::of(&circuits, 3, 10));
        assert!(text.contains("300.0 (under 6 values)"), "{text}");
        assert!(text.contains("how many hops they were meant to have: 1;"), "{text}");
    }
}
