//! The ledger's rows about external results: the settings of Shadow's networks (D1), and the public
//! Tor of 2019 (D8).

use anyhow::{Context, Result};
use ff_flow::sim::LIMITS_SECS;
use ff_report::stats;

use super::{Data, Value, value};
use crate::trial::TrialSetting;

/// Statistics of the public Tor of 2019 and of three simulations of it at full size.
pub(super) const STATISTICS: &str = "d-2019/tor-2019-and-shadow-stats.txt";

/// Names of the download sizes.
pub(super) const SIZES: [&str; 3] = ["50 KiB", "1 MiB", "5 MiB"];
/// The figures of the statistics with the times to the last byte for these sizes.
const FIGURES: [&str; 3] = ["figure3e", "figure3f", "figure3g"];
/// The figure of the statistics with failed downloads, in percent.
const FAILED: &str = "figure3c";

/// D1: the simulated networks compared with the paper's Shadow.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub(super) fn setting(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let network = data.network("d-2019/shadow-10pct/01/relays.csv")?;
    let [users, downloading] = TrialSetting::default().clients;
    let mut values = vec![
        value("D1", "relays", network.relays.len() as f64),
        value("D1", "clients of users", users.into()),
        value("D1", "clients that download", downloading.into()),
    ];
    let limits = SIZES.iter().zip(LIMITS_SECS);
    values.extend(limits.map(|(size, secs)| value("D1", format!("limit, {size}"), secs)));
    Ok(values)
}

/// The medians of a figure of the statistics: of the public Tor, and the mean of Shadow's.
fn medians(text: &str, figure: &str) -> Result<[f64; 2]> {
    let (mut tor, mut shadow) = (None, Vec::new());
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2).filter(|pair| pair[0].starts_with(figure)) {
        let words = pair[1].split_whitespace();
        let median = words.filter_map(|word| word.strip_prefix("median=")).next();
        let median = median.and_then(|text| text.parse().ok());
        let median: f64 =
            median.with_context(|| format!("{figure} has a line without a median"))?;
        match pair[0].contains("Tor 2019") {
            true => tor = Some(median),
            false => shadow.push(median),
        }
    }
    let (tor, shadow) = tor.zip(stats::mean(&shadow)).with_context(|| format!("no {figure}"))?;
    Ok([tor, shadow])
}

/// The medians of the times to the last byte, by size.
pub(super) fn of_tor(data: &mut Data<'_>) -> Result<[[f64; 2]; 3]> {
    let text = String::from_utf8(data.read(STATISTICS)?).context("the statistics are not text")?;
    let [small, middle, large] = FIGURES.map(|figure| medians(&text, figure));
    Ok([small?, middle?, large?])
}

/// D8: the public Tor of 2019, and how much slower Shadow is.
pub(super) fn statistics(data: &mut Data<'_>) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for (size, [tor, shadow]) in SIZES.iter().zip(of_tor(data)?) {
        values.push(value("D8", format!("public Tor, {size}"), tor));
        values.push(value("D8", format!("Shadow is slower, {size}"), (shadow / tor - 1.0) * 100.0));
    }
    let text = String::from_utf8(data.read(STATISTICS)?).context("the statistics are not text")?;
    let [tor, shadow] = medians(&text, FAILED)?;
    values.push(value("D8", "public Tor, failed", tor));
    values.push(value("D8", "Shadow, failed", shadow));
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_those_of_their_figure() {
        let text = "figure3e.pdf: Tor 2019: \nmin=0.1 median=2.5 max=15.0\nfigure3e.pdf: Shadow 100\\%: 1:\n\
                    min=0.2 median=3 max=14\nfigure3e.pdf: Shadow 100\\%: 2:\nmin=0.2 median=4 max=14\n\
                    figure3f.pdf: Tor 2019: \nmin=0.1 max=1\n";
        assert_eq!(medians(text, "figure3e").expect("medians"), [2.5, 3.5]);
        let error = medians(text, "figure3f").expect_err("no median");
        assert_eq!(error.to_string(), "figure3f has a line without a median");
        assert_eq!(medians(text, "figure3g").expect_err("nothing").to_string(), "no figure3g");
    }
}
