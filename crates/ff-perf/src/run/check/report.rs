//! Output of `check`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use ff_circuits::check::{Finding, LEAST_OTHERS, RelayVerdict, found};
use ff_circuits::network::CircuitNetwork;
use serde::Serialize;

use super::inputs::Told;
use crate::cli::check::CheckArgs;
use crate::run::output::print as print_results;

/// Exit status if a relay starves clients.
const STARVES: u8 = 3;
/// Shares of starved clients for which the report gives chances of detection.
const SHARES: [f64; 3] = [0.05, 0.1, 0.3];

/// The report as printed.
#[derive(Serialize)]
struct Report<'a> {
    /// Version of this document.
    schema: u32,
    /// Random seed.
    seed: u64,
    /// A relay serves if it certainly starves less than this share.
    most: f64,
    /// Whether downloads ended before the last one. Downloads in progress then are in no figure.
    ended_early: bool,
    relays: Vec<Row<'a>>,
}

/// A relay as printed.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    nick: &'a str,
    capacity_bytes_per_sec: f64,
    /// Share of it in use, as the relay reports.
    busy: f64,
    #[serde(flatten)]
    finding: Finding,
    /// Fingerprint of the other relay that may be the cause, if that is why the result is
    /// undecided.
    perhaps_of: Option<&'a str>,
}

/// Prints the findings.
pub(super) fn print(
    args: &CheckArgs,
    network: &CircuitNetwork,
    told: &Told,
    findings: &[Finding],
    seed: u64,
    ended_early: bool,
) -> Result<ExitCode> {
    let row = |(&relay, &finding): (&usize, &Finding)| {
        let known = told.of(relay)?;
        let relay = &network.relays[relay];
        let (id, nick) = (relay.id.as_str(), relay.nick.as_str());
        let perhaps_of = finding.perhaps_of.map(|other| network.relays[other].id.as_str());
        let (capacity_bytes_per_sec, busy) = (known.capacity, known.busy);
        Some(Row { id, nick, capacity_bytes_per_sec, busy, finding, perhaps_of })
    };
    let relays = told.checked.iter().zip(findings).filter_map(row).collect();
    let report = Report { schema: 1, seed, most: args.most, ended_early, relays };
    let code = print_results(args.json, &report, text)?;
    let starves = findings.iter().any(|finding| finding.verdict == RelayVerdict::Starves);
    Ok(if starves { ExitCode::from(STARVES) } else { code })
}

fn text(report: &Report<'_>) -> String {
    let mut text = format!(
        "{:<20} {:>10} {:>6} {:>9} {:>8} {:>17} {:>11}  verdict\n",
        "relay", "capacity", "busy", "downloads", "starved", "95 % interval", "median"
    );
    text.push_str(&format!(
        "{:<20} {:>10} {:>6} {:>9} {:>8} {:>17} {:>11}\n",
        "", "MB/s", "%", "", "%", "%", "MB/s"
    ));
    for row in &report.relays {
        let Row { nick, capacity_bytes_per_sec, busy, finding, .. } = row;
        let share = finding.share.map_or_else(|| "-".to_owned(), percent);
        let interval = format!("{} to {}", percent(finding.share_from), percent(finding.share_to));
        let median = finding.median_bytes_per_sec;
        let median = median.map_or_else(|| "-".to_owned(), |rate| format!("{:.3}", rate / 1e6));
        let _ = writeln!(
            text,
            "{nick:<20} {:>10.3} {:>6} {:>9} {share:>8} {interval:>17} {median:>11}  {}",
            capacity_bytes_per_sec / 1e6,
            percent(*busy),
            finding.probes,
            verdict(row)
        );
    }
    if report.ended_early {
        text.push_str(
            "\nThe downloads ended early. Unfinished ones, which may be slower, are not counted.\n",
        );
    }
    if report.relays.iter().any(|row| row.finding.unclear > 0) {
        text.push_str("\nA slow download is unclear if too few other relays in the same position show what is usual (add relays of this speed to\n--relays), if the relay is much farther away than the others, or if time ran out before half of the usual bytes could arrive.\n");
        return text;
    }
    let least = report.relays.iter().map(|row| row.finding.probes).min().unwrap_or(0);
    let chances =
        SHARES.map(|share| format!("{} % with {} %", percent(share), percent(found(share, least))));
    let _ = writeln!(
        text,
        "\nWith at least {least} downloads, a relay that starves this share of its clients is caught at least once: {}.",
        chances.join(", ")
    );
    text
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Text of a verdict.
fn verdict(row: &Row<'_>) -> String {
    let finding = &row.finding;
    if let Some(other) = row.perhaps_of {
        return format!(
            "undecided: {other} is on the paths of slow downloads too and may be the cause"
        );
    }
    match finding.verdict {
        RelayVerdict::Starves => "starves clients".to_owned(),
        RelayVerdict::Serves => "serves clients".to_owned(),
        RelayVerdict::Undecided if finding.unclear > 0 => format!(
            "undecided: unclear slow downloads: {} (fewer than {LEAST_OTHERS} other relays in its position show what is usual, or it is far away, or time ran out)",
            finding.unclear
        ),
        RelayVerdict::Undecided => "undecided: more downloads are needed".to_owned(),
        RelayVerdict::TooBusy => "too busy to judge".to_owned(),
    }
}
