//! The weights that TorFlow's and sbws's formulas would compute from our capacities, for comparison
//! with ours.
//!
//! Both multiply a relay's self-reported bandwidth by the ratio of its measured rate to the mean
//! (bandwidth-file-spec B.4). So they need inputs that we do not use, and those that are missing
//! are listed with the result ([`LACKING`]): the weights are what such an aggregation of our
//! capacities gives, not what this software would have measured.

use core::fmt;

use ff_base::identity::Fingerprint;
use ff_proto::units::BytesPerSec;
use serde::Serialize;

use super::v3bw::Decisions;

/// Inputs of the formulas that are unknown here.
pub const LACKING: [&str; 4] = [
    "their measurements are downloads through two relays, ours are capacities, one to three in the days that count",
    "the observed bandwidth is that of the last descriptor, where sbws may take the mean of days",
    "relays without a descriptor have no weight",
    "TorFlow's feedback and its division into slices are left out, as in bandwidth-file-spec B.4",
];

/// TorFlow's and sbws's limit on one relay: this share of all weights (sbws's `TORFLOW_BW_MARGIN`).
pub const MOST_SHARE: f64 = 0.05;
/// Significant digits that sbws keeps (its `PROP276_ROUND_DIG`).
const SBWS_DIGITS: i32 = 2;
const KILOBYTE: f64 = 1000.0;

/// The software whose formula is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// TorFlow's, without feedback, as in bandwidth-file-spec B.4: ratio times observed bandwidth.
    Torflow,
    /// sbws's: ratio times the least of observed, average and burst bandwidth, at most 5 % of all,
    /// two digits.
    Sbws,
}

/// A formula's inputs for a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Its measured rates, in bytes a second.
    pub measured: Vec<f64>,
    /// The observed bandwidth in its descriptor, in bytes a second.
    pub observed: f64,
    /// The least of the average and the burst bandwidth in its descriptor and of other bounds in
    /// sbws's rule, in bytes a second; infinite if unknown.
    pub allowed: f64,
}

/// A relay's two weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingRow {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// Its nickname.
    pub nickname: Option<String>,
    /// Our weight, in kilobytes a second.
    pub bw: u32,
    /// The formula's weight, in kilobytes a second; `None` without a descriptor.
    pub scaled_bw: Option<u64>,
    /// The percentage of our weight in the sum of ours, over relays with both weights.
    pub percent: Option<f64>,
    /// The percentage of the formula's weight in the sum of the formula's.
    pub scaled_percent: Option<f64>,
}

/// The comparison of all relays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingComparison {
    /// The formula's software.
    pub scaling: Scaling,
    /// The relays with a number, in the order of their fingerprints.
    pub relays: Vec<ScalingRow>,
    /// The percentage of the weight that lies elsewhere: half of the sum of the differences.
    pub moved_percent: f64,
    /// [`LACKING`].
    pub lacking: [&'static str; 4],
}

impl ScalingComparison {
    /// Compares the relays of a file.
    #[must_use]
    pub fn of(scaling: Scaling, decisions: &Decisions<'_>) -> Self {
        let mut relays: Vec<(Fingerprint, ScalingRow, Option<Inputs>)> = Vec::new();
        for relay in decisions.relays() {
            let Ok(line) = &relay.line else { continue };
            let results = relay.attempts.iter().filter_map(|outcome| outcome.publishable());
            let rate = |rate: Option<BytesPerSec>| rate.map_or(f64::INFINITY, bytes);
            let facts = &line.directory;
            let inputs = facts.bandwidth_observed.map(|observed| Inputs {
                measured: results.map(bytes).collect(),
                observed: bytes(observed),
                allowed: rate(facts.bandwidth_avg).min(rate(facts.bandwidth_burst)),
            });
            let row = ScalingRow {
                fingerprint: hex::encode_upper(line.rsa_fingerprint),
                nickname: line.nickname.clone(),
                bw: line.bw_kilobytes().get(),
                scaled_bw: None,
                percent: None,
                scaled_percent: None,
            };
            relays.push((line.rsa_fingerprint, row, inputs));
        }
        relays.sort_by_key(|(fingerprint, ..)| *fingerprint);
        let inputs: Vec<_> = relays.iter().filter_map(|(.., inputs)| inputs.clone()).collect();
        let mut weights = weights(scaling, &inputs).into_iter();
        let rows = relays.into_iter().map(|(_, row, inputs)| ScalingRow {
            scaled_bw: inputs.and_then(|_| weights.next()),
            ..row
        });
        Self::with_percents(scaling, rows.collect())
    }

    /// Computes the percentages from the weights.
    #[expect(clippy::cast_precision_loss, reason = "weights lie far below 2^53")]
    fn with_percents(scaling: Scaling, mut relays: Vec<ScalingRow>) -> Self {
        // Relays without a weight by the formula would differ by all of theirs.
        let both = relays.iter().filter(|row| row.scaled_bw.is_some());
        let sum: f64 = both.map(|row| f64::from(row.bw)).sum();
        let scaled_sum: f64 =
            relays.iter().filter_map(|row| row.scaled_bw).map(|bw| bw as f64).sum();
        let mut moved_percent = 0.0;
        for row in &mut relays {
            let Some(bw) = row.scaled_bw else { continue };
            let [ours, scaled] =
                [f64::from(row.bw) / sum, bw as f64 / scaled_sum].map(|part| part * 100.0);
            (row.percent, row.scaled_percent) = (Some(ours), Some(scaled));
            moved_percent += (ours - scaled).abs() / 2.0;
        }
        Self { scaling, relays, moved_percent, lacking: LACKING }
    }
}

impl fmt::Display for ScalingComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.scaling {
            Scaling::Torflow => "torflow",
            Scaling::Sbws => "sbws",
        };
        writeln!(f, "{:<40} {:>10} {name:>10} {:>8} {name:>8}  name", "relay", "bw", "%")?;
        for row in &self.relays {
            let scaled = row.scaled_bw.map_or("-".to_owned(), |bw| bw.to_string());
            let percents = [row.percent, row.scaled_percent]
                .map(|percent| percent.map_or("-".to_owned(), |percent| format!("{percent:.4}")));
            let nickname = row.nickname.as_deref().unwrap_or("");
            writeln!(
                f,
                "{} {:>10} {scaled:>10} {:>8} {:>8}  {nickname}",
                row.fingerprint, row.bw, percents[0], percents[1]
            )?;
        }
        writeln!(
            f,
            "{:.1} % of the weight lies on other relays by {name}'s formula",
            self.moved_percent
        )?;
        self.lacking.iter().try_for_each(|lacking| writeln!(f, "note: {lacking}"))
    }
}

/// A rate in bytes per second, as a float.
#[expect(clippy::cast_precision_loss, reason = "formulas by others that count in floating point")]
fn bytes(rate: BytesPerSec) -> f64 {
    rate.get() as f64
}

/// The weights of relays by a formula, in kilobytes a second.
#[must_use]
pub fn weights(scaling: Scaling, relays: &[Inputs]) -> Vec<u64> {
    let all = relays.iter().zip(ratios(relays));
    let mut scaled: Vec<f64> = all
        .map(|(relay, ratio)| {
            ratio
                * match scaling {
                    Scaling::Torflow => relay.observed,
                    Scaling::Sbws => relay.observed.min(relay.allowed),
                }
        })
        .collect();
    if scaling == Scaling::Sbws {
        cap(&mut scaled, MOST_SHARE);
    }
    scaled.into_iter().map(|scaled| in_kilobytes(scaling, scaled)).collect()
}

/// The ratio of each relay's measured rate to the mean: the greater of its two ratios
/// (bandwidth-file-spec B.4, steps 1 to 4).
#[must_use]
pub fn ratios(relays: &[Inputs]) -> Vec<f64> {
    let means: Vec<f64> = relays.iter().map(|relay| mean(&relay.measured)).collect();
    let filtered: Vec<f64> = relays.iter().map(|relay| filtered(&relay.measured)).collect();
    let (mean_of_means, mean_of_filtered) = (mean_of(&means), mean_of(&filtered));
    let both = means.iter().zip(&filtered);
    both.map(|(mean, filtered)| ratio(*mean, mean_of_means).max(ratio(*filtered, mean_of_filtered)))
        .collect()
}

/// Limits each relay to this share of the original sum.
pub fn cap(scaled: &mut [f64], most_share: f64) {
    let most = scaled.iter().sum::<f64>() * most_share;
    scaled.iter_mut().for_each(|scaled| *scaled = scaled.min(most));
}

/// A weight in kilobytes from bytes a second, rounded as by this formula's authors.
#[must_use]
pub fn in_kilobytes(scaling: Scaling, scaled: f64) -> u64 {
    whole(match scaling {
        Scaling::Torflow => (scaled / KILOBYTE).round_ties_even(),
        Scaling::Sbws => significant(scaled / KILOBYTE),
    })
}

/// A rate divided by the mean; 1 if all are 0 (bandwidth-file-spec B.1: "all relays should be given
/// equal bandwidths").
fn ratio(measured: f64, mean: f64) -> f64 {
    if mean > 0.0 { measured / mean } else { 1.0 }
}

/// The mean; 0 without numbers.
#[expect(clippy::cast_precision_loss, reason = "a count of measurements or of relays")]
fn mean_of(numbers: &[f64]) -> f64 {
    if numbers.is_empty() { 0.0 } else { numbers.iter().sum::<f64>() / numbers.len() as f64 }
}

/// The mean rounded to whole bytes, as in sbws.
fn mean(measured: &[f64]) -> f64 {
    mean_of(measured).round_ties_even()
}

/// bandwidth-file-spec B.4: "choose the relay's measurements that are equal or greater than the
/// mean [...] calculate the mean of those measurements".
fn filtered(measured: &[f64]) -> f64 {
    let least = mean(measured);
    let fast: Vec<f64> = measured.iter().copied().filter(|&rate| rate >= least).collect();
    if fast.is_empty() { least } else { mean(&fast) }
}

/// A number of kilobytes with two significant digits, ties to even; at least 1.
fn significant(kilobytes: f64) -> f64 {
    if kilobytes <= 1.0 {
        return 1.0;
    }
    #[expect(clippy::cast_possible_truncation, reason = "a logarithm of a double is below 309")]
    let digits = kilobytes.log10() as i32 + 1;
    let unit = 10_f64.powi((digits - SBWS_DIGITS).max(0));
    (kilobytes / unit).round_ties_even() * unit
}

/// A weight: at least 1 (bandwidth-file-spec B.1).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float-to-int casts saturate, and weights are not negative"
)]
fn whole(kilobytes: f64) -> u64 {
    (kilobytes as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of sbws itself for some networks; tests/data/README.md has their origin.
    const VECTORS: &str = include_str!("../../tests/data/sbws-scaling.json");

    /// A relay of the vectors.
    #[derive(serde::Deserialize)]
    struct Vector {
        /// The measured rates.
        measured: Vec<f64>,
        /// bandwidth-avg.
        avg: f64,
        /// bandwidth-burst.
        bur: f64,
        /// bandwidth-observed.
        obs: f64,
        /// sbws's weight.
        bw: u64,
    }

    /// The vectors.
    #[derive(serde::Deserialize)]
    struct Vectors {
        /// Numbers with their rounded values.
        rounded: Vec<[f64; 2]>,
        /// Networks of relays.
        networks: Vec<Vec<Vector>>,
    }

    #[test]
    fn sbws_makes_the_same_of_the_same() {
        let vectors: Vectors = serde_json::from_str(VECTORS).expect("vectors");
        for [number, rounded] in vectors.rounded {
            assert_eq!(significant(number).to_bits(), rounded.to_bits(), "{number}");
        }
        for network in &vectors.networks {
            let inputs: Vec<_> = network
                .iter()
                .map(|relay| Inputs {
                    measured: relay.measured.clone(),
                    observed: relay.obs,
                    allowed: relay.avg.min(relay.bur),
                })
                .collect();
            let expected: Vec<_> = network.iter().map(|relay| relay.bw).collect();
            assert_eq!(weights(Scaling::Sbws, &inputs), expected);
        }
    }

    #[test]
    fn torflow_multiplies_what_is_observed_by_how_much_faster_a_relay_is() {
        let relay = |measured: &[f64], observed| Inputs {
            measured: measured.to_vec(),
            observed,
            allowed: 1.0,
        };
        // By hand: the means are 2e6 and 6e6, and their mean is 4e6; the filtered means are 3e6 and
        // 6e6, and their mean is 4.5e6. The ratios are max(0.5, 0.667) and max(1.5, 1.333).
        let relays = [relay(&[1e6, 3e6], 3e6), relay(&[6e6], 2e6)];
        assert_eq!(weights(Scaling::Torflow, &relays), [2000, 3000]);
        assert_eq!(weights(Scaling::Sbws, &relays), [1, 1]);
    }

    #[test]
    fn nothing_measured_gives_everybody_the_same_ratio() {
        let nothing = Inputs { measured: vec![0.0], observed: 5e6, allowed: f64::INFINITY };
        assert_eq!(weights(Scaling::Torflow, &[nothing.clone(), nothing]), [5000, 5000]);
        assert_eq!(weights(Scaling::Torflow, &[Inputs::default()]), [1]);
        assert!(weights(Scaling::Sbws, &[]).is_empty());
        let huge = Inputs { measured: vec![1e300], observed: 1e300, allowed: f64::INFINITY };
        assert_eq!(weights(Scaling::Torflow, &[huge]), [u64::MAX]);
    }
}
