//! The results as text.

use std::fmt::Write as _;

use ff_circuits::downloads::parts::NAMES;
use ff_circuits::lab::mobile::{LinksResult, ProfileResult, StartResult};

use super::Found;

/// A number with these digits after the point, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// All results. Writing to a string cannot fail.
pub(super) fn text(found: &Found) -> String {
    let mut text = profiles(&found.rows, found.size_bytes);
    text.push_str(&starts(&found.starts));
    text.push_str(&links(&found.links));
    for wrong in &found.wrong {
        let _ = writeln!(text, "DOES NOT HOLD: {wrong}");
    }
    if !found.emulator_is_in_time {
        text.push_str("INVALID RUN: the emulator was too late; repeat it\n");
    }
    text
}

fn profiles(rows: &[ProfileResult], size_bytes: u64) -> String {
    let mut text = format!(
        "{size_bytes} bytes; times in s, from asking for the stream to the last byte\n{:<12} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "profile",
        "whole",
        "failed",
        "least",
        "q1",
        "median",
        "q3",
        "most",
        "mean",
        "wire",
        "of wire"
    );
    for row in rows {
        let quartile =
            |at: usize| number(row.quartiles_secs.and_then(|all| all.get(at).copied()), 2);
        let _ = writeln!(
            text,
            "{:<12} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            row.profile,
            row.whole,
            row.failed,
            quartile(0),
            quartile(1),
            quartile(2),
            quartile(3),
            quartile(4),
            number(row.mean_secs, 2),
            number(row.wire_secs, 2),
            number(row.of_wire, 3)
        );
    }
    text.push_str("\nmean time of each part, in s\n");
    for row in rows {
        let Some(parts) = row.parts else { continue };
        let named = NAMES.iter().zip(parts.means_secs());
        let all: Vec<String> = named.map(|(name, secs)| format!("{name} {secs:.2}")).collect();
        let _ =
            writeln!(text, "{:<12} {}; total {:.2}", row.profile, all.join(", "), parts.total_secs);
    }
    for row in rows.iter().filter(|row| !row.reasons.is_empty()) {
        let _ = writeln!(text, "{} failed: {}", row.profile, row.reasons.join("; "));
    }
    text
}

fn starts(rows: &[StartResult]) -> String {
    let mut text = format!(
        "\na client's start without documents, and its onion service until another client had a download; bytes on the link, both directions\n{:<12} {:>9} {:>9} {:>10} {:>10}\n",
        "profile", "client, s", "kB", "service, s", "kB"
    );
    for row in rows {
        let [client, service] =
            [row.client_bytes, row.service_bytes].map(|bytes| bytes as f64 / 1e3);
        let _ = writeln!(
            text,
            "{:<12} {:>9} {client:>9.1} {:>10} {service:>10.1}",
            row.profile,
            number(row.client_secs, 2),
            number(row.service_secs, 2)
        );
    }
    for row in rows {
        if let Some(reason) = &row.failure {
            let _ = writeln!(text, "{} failed: {reason}", row.profile);
        }
    }
    text
}

fn links(rows: &[LinksResult]) -> String {
    let mut text = format!(
        "\ntwo downloads at once over LTE, median in s, by the number of links that their circuits have\n{:<8} {:>9} {:>9} {:>8} {:>6} {:>7}\n",
        "lost, %", "one link", "two links", "two/one", "whole", "failed"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<8} {:>9} {:>9} {:>8} {:>6} {:>7}",
            row.loss * 100.0,
            number(row.one_link.median_secs, 2),
            number(row.two_links.median_secs, 2),
            number(row.ratio, 2),
            row.one_link.whole + row.two_links.whole,
            row.one_link.failed + row.two_links.failed
        );
    }
    text
}
