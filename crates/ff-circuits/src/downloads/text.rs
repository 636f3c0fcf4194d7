//! The report on downloads as text.

use std::fmt::Write as _;

use super::parts::NAMES;
use super::relays::PositionReport;
use super::{Comparison, DownloadReport, DownloadTarget, GroupReport, SetReport, Spread, is_open};
use crate::interval::Interval;
use crate::rank::MOST_MORE;

/// The report as text.
#[must_use]
pub fn text(report: &DownloadReport) -> String {
    let mut text = String::new();
    for set in &report.sets {
        add_set(set, &mut text);
    }
    if !report.comparisons.is_empty() {
        text.push_str("Sets compared, medians with 95 % intervals\n");
    }
    for one in &report.comparisons {
        add_comparison(one, &mut text);
    }
    text
}

/// A set. Writing to a string cannot fail.
fn add_set(set: &SetReport, text: &mut String) {
    let SetReport {
        label, hosts, downloads, left_out, other_circuits, half_lines, damaged, ..
    } = set;
    let _ = writeln!(text, "{label}: {downloads} downloads of {}", hosts.join(", "));
    for (count, what) in [
        (*left_out, "filtered out by OnionPerf"),
        (*other_circuits, "circuits without a download"),
        (*half_lines, "files with an incomplete last line"),
        (damaged.count, "records that cannot be read"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  left out: {count} {what}");
        }
    }
    for first in &damaged.first {
        let _ = writeln!(text, "    {first}");
    }
    for group in &set.groups {
        add_group(group, text);
    }
    text.push('\n');
}

/// The name of a target.
const fn target(target: DownloadTarget) -> &'static str {
    match target {
        DownloadTarget::Exit => "exit",
        DownloadTarget::Onion => "onion service",
    }
}

fn add_group(group: &GroupReport, text: &mut String) {
    let GroupReport { size_bytes, downloads, whole, .. } = group;
    let _ = writeln!(
        text,
        "  {}, {size_bytes} bytes: {downloads} downloads, {whole} complete",
        target(group.target)
    );
    for (what, spread) in [
        ("first byte, s", group.first_byte_secs),
        ("last byte, s", group.last_byte_secs),
        ("Mbit/s", group.mbit_per_sec),
        ("last MiB, Mbit/s", group.last_mbit_per_sec),
    ] {
        if let Some(Spread { values, q1, median, q3, p90 }) = spread {
            let _ = writeln!(
                text,
                "    {what:<18} median {}, quartiles {q1:.3} and {q3:.3}, p90 {p90:.3}, {values} values",
                interval(Some(median))
            );
        }
    }
    if let Some(parts) = group.parts {
        let named = NAMES.iter().zip(parts.means_secs());
        let named: Vec<String> = named.map(|(name, mean)| format!("{name} {mean:.3}")).collect();
        let _ = writeln!(
            text,
            "    mean parts, s      {}: {:.3} together, {} downloads",
            named.join(" + "),
            parts.total_secs,
            parts.downloads
        );
    }
    for position in &group.positions {
        add_position(position, text);
    }
    for (reason, count) in &group.failures {
        let _ = writeln!(text, "    failed             {count} {reason}");
    }
    if let Some(note) = &group.note {
        let _ = writeln!(text, "    note               {note}");
    }
}

fn add_position(found: &PositionReport, text: &mut String) {
    let PositionReport { position, relays, failed_at, compared_relays, test } = found;
    let what = format!("{} relays", position.name());
    let _ = write!(text, "    {what:<18} {relays}");
    if *failed_at > 0 {
        let _ = write!(text, ", failed at {failed_at} times");
    }
    if let Some(test) = test {
        let p = test.p;
        let _ = write!(text, "; last byte, {compared_relays} of them compared: p {p:.2e}");
    }
    text.push('\n');
}

fn add_comparison(one: &Comparison, text: &mut String) {
    let _ = write!(
        text,
        "  {}, {} bytes, {}: {} {}, {} {}",
        target(one.target),
        one.size_bytes,
        one.measure,
        one.one,
        interval(one.one_median),
        one.other,
        interval(one.other_median)
    );
    if let Some(test) = one.test {
        let percent = 100.0 * test.greater;
        let _ = write!(text, "; {} greater in {percent:.1} % of pairs, p {:.2e}", one.one, test.p);
    }
    if one.difference.is_some_and(|difference| difference.low.is_some()) {
        let _ = write!(text, "; difference {}", interval(one.difference));
    }
    if let Some(more) = one.more_downloads {
        let _ = write!(text, "; {more} more downloads of each would decide");
    } else if one.test.as_ref().is_some_and(is_open) {
        let _ = write!(text, "; {MOST_MORE} more downloads of each would not decide");
    }
    if let Some(note) = &one.note {
        let _ = write!(text, "; {note}");
    }
    text.push('\n');
}

/// A median and its interval.
fn interval(found: Option<Interval>) -> String {
    match found {
        Some(Interval { value, low: Some(low), high: Some(high) }) => {
            format!("{value:.3} ({low:.3} to {high:.3})")
        }
        Some(Interval { value, .. }) => format!("{value:.3}"),
        None => "-".to_owned(),
    }
}
