//! Errors of measurements: ratios of estimate to true capacity.
//!
//! The paper says that all of its 30 s measurements were within 0.84 and 1.01 of the truth (App.
//! E.3, Fig. 16), but not their distribution; here it is uniform. Our own ratios are read from a
//! table: one of `tests/ground-truth`, with estimates and the rates that the same relays forwarded,
//! or one with a column `ratio`. Where CPU was the limit in the former, the spread of single ratios
//! includes the machine's drift between two samples.
//!
//! A ratio depends on the seed, the relay, the coordinator and the number of its earlier
//! measurements, so nothing else in a simulation changes it.

use std::collections::BTreeMap;
use std::io::Read;

use ff_archives::read::table::{MOST_BYTES, line, lines, reason};
use ff_base::identity::Fingerprint;
use ff_report::skipped::Skips;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use sha2::{Digest, Sha256};

/// Ratios in a table are accepted within these bounds.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// The distribution of ratios.
#[derive(Clone, Debug, PartialEq)]
pub enum Errors {
    /// Always 1.
    Exact,
    /// A uniform distribution.
    Even {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// These ratios, equally likely.
    Seen(Vec<f64>),
}

/// The measurement for which a ratio is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawKey {
    /// The relay.
    pub relay: Fingerprint,
    /// The index of the coordinator.
    pub coordinator: usize,
    /// The number of earlier measurements of the relay by the coordinator.
    pub earlier: u32,
}

impl Errors {
    /// The paper's bounds.
    pub const PAPER: Self = Self::Even { low: 0.84, high: 1.01 };

    /// The ratio of a measurement's estimate to the truth.
    #[must_use]
    pub fn ratio(&self, seed: &[u8; 32], attempt: &DrawKey) -> f64 {
        match self {
            Self::Exact => 1.0,
            Self::Even { low, high } => low + (high - low) * chance(seed, attempt),
            Self::Seen(ratios) => place(ratios.len(), chance(seed, attempt))
                .and_then(|place| ratios.get(place))
                .copied()
                .unwrap_or(1.0),
        }
    }

    /// Reads a table of ratios. In a table of the ground truth a ratio is `echo` over `forward` for
    /// the same set, position, limit and round, without rejected rows; several `forward` values are
    /// averaged.
    #[must_use]
    pub fn read_csv(name: &str, from: impl Read) -> (Self, Skips) {
        let mut table = Table::default();
        let bytes = lines(name, from, MOST_BYTES, &mut table.skips);
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(&*bytes);
        match reader.headers() {
            Ok(header) => table.columns = header.iter().map(str::to_owned).collect(),
            Err(error) => table.skips.add(name, None, Some(1), reason(&error)),
        }
        for record in reader.records() {
            let (at, read) = match record {
                Ok(row) => (line(&bytes, row.position()), table.read(&row)),
                Err(error) => (line(&bytes, error.position()), Err(reason(&error))),
            };
            match read {
                Ok(()) => table.skips.read += 1,
                Err(reason) => table.skips.add(name, None, at, reason),
            }
        }
        table.finish(name)
    }
}

/// A number from 0 to below 1 that depends only on these arguments.
fn chance(seed: &[u8; 32], attempt: &DrawKey) -> f64 {
    let key = Sha256::new()
        .chain_update(b"flashflow-sim-error")
        .chain_update(seed)
        .chain_update(attempt.relay)
        .chain_update(attempt.coordinator.to_be_bytes())
        .chain_update(attempt.earlier.to_be_bytes());
    ChaCha12Rng::from_seed(key.finalize().into()).random()
}

/// The index in a list of `count` items that this number selects.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts lie far below 2^53, and a chance is not negative"
)]
fn place(count: usize, chance: f64) -> Option<usize> {
    let last = count.checked_sub(1)?;
    Some(((chance * count as f64) as usize).min(last))
}

/// The columns in which an estimate and a true rate must agree to be compared.
type Case = [String; 4];
/// The names of these columns; the first is missing in some tables.
const CASE: [&str; 4] = ["set", "position", "limit", "round"];

/// A table that is being read.
#[derive(Default)]
struct Table {
    columns: Vec<String>,
    /// Ratios in the table.
    ratios: Vec<f64>,
    /// The sum and the number of forwarded rates.
    truths: BTreeMap<Case, (f64, f64)>,
    estimates: Vec<(Case, f64)>,
    /// The omissions.
    skips: Skips,
}

impl Table {
    fn read(&mut self, row: &csv::StringRecord) -> Result<(), String> {
        let cell = |name: &str| {
            let place = self.columns.iter().position(|column| column == name)?;
            row.get(place)
        };
        let number = |name: &str| {
            let text = cell(name).ok_or_else(|| format!("it has no value in the column {name}"))?;
            let number: f64 = text.parse().map_err(|_| format!("{name} is {text:?}"))?;
            let is_good = number.is_finite() && number > 0.0;
            if is_good { Ok(number) } else { Err(format!("{name} is {text}")) }
        };
        if self.columns.iter().any(|column| column == "ratio") {
            let ratio = number("ratio")?;
            if !BELIEVED.contains(&ratio) {
                return Err(format!("the ratio {ratio} is out of bounds"));
            }
            self.ratios.push(ratio);
            return Ok(());
        }
        let rate = number("bytes_per_sec")?;
        let case = CASE.map(|name| cell(name).unwrap_or_default().to_owned());
        match (cell("work"), cell("rejected").unwrap_or_default()) {
            (Some("forward"), "") => {
                let (sum, count) = self.truths.entry(case).or_default();
                *sum += rate;
                *count += 1.0;
            }
            (Some("echo"), "") => self.estimates.push((case, rate)),
            // Other kinds of work have neither true rates nor estimates.
            (Some(_), _) => {}
            (None, _) => return Err("it has neither a ratio nor a work".to_owned()),
        }
        Ok(())
    }

    /// The ratios; exact estimates if there are none.
    fn finish(mut self, name: &str) -> (Errors, Skips) {
        for (case, estimate) in &self.estimates {
            let ratio = self.truths.get(case).map(|(sum, count)| estimate * count / sum);
            match ratio.filter(|ratio| BELIEVED.contains(ratio)) {
                Some(ratio) => self.ratios.push(ratio),
                None => self.skips.add(name, Some(&case.join(", ")), None, "it has no truth"),
            }
        }
        if self.ratios.is_empty() {
            self.skips.add(name, None, None, "it has no ratio");
            return (Errors::Exact, self.skips);
        }
        (Errors::Seen(self.ratios), self.skips)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A measurement.
    fn attempt(relay: u8, coordinator: usize, earlier: u32) -> DrawKey {
        DrawKey { relay: [relay; 20], coordinator, earlier }
    }

    #[test]
    fn ratios_are_even_and_depend_on_all_that_they_should() {
        let ratio = |errors: &Errors, number: u32| errors.ratio(&[7; 32], &attempt(1, 2, number));
        let mut counts = [0_u32; 17];
        for number in 0..17_000 {
            let ratio = ratio(&Errors::PAPER, number);
            assert!((0.84..1.01).contains(&ratio), "{ratio}");
            counts[place(17, (ratio - 0.84) / 0.17).expect("a place")] += 1;
        }
        // 16 degrees of freedom: above 39.3 for one of 1,000 seeds.
        let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1e3).powi(2) / 1e3).sum();
        assert!(chi < 39.3, "{counts:?}: {chi}");
        let of = |seed, attempt| Errors::PAPER.ratio(&[seed; 32], &attempt).to_bits();
        let first = of(7, attempt(1, 2, 3));
        assert_eq!(first, of(7, attempt(1, 2, 3)));
        for other in [of(8, attempt(1, 2, 3)), of(7, attempt(2, 2, 3)), of(7, attempt(1, 1, 3))] {
            assert_ne!(first, other);
        }
        assert!((ratio(&Errors::Exact, 0) - 1.0).abs() < 1e-12);
        let seen = Errors::Seen(vec![0.5, 2.0]);
        let low = (0..1000).filter(|&number| ratio(&seen, number) < 1.0).count();
        assert!((430..570).contains(&low), "{low}");
        assert!((ratio(&Errors::Seen(vec![]), 0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn tables_of_both_kinds_are_read() {
        let (errors, skips) =
            Errors::read_csv("a", "id,ratio\na,0.9\nb,1.1\nc,NaN\nd,-1\ne\n".as_bytes());
        assert_eq!(errors, Errors::Seen(vec![0.9, 1.1]));
        assert_eq!((skips.read, skips.all.len()), (2, 3), "{skips:?}");
        assert_eq!(skips.all[0].line, Some(4));
        // After an empty line and a line end in quotes.
        let (_, skips) = Errors::read_csv("a", "id,ratio\n\n\"a\n\",0.9\nc,NaN\n".as_bytes());
        assert_eq!((skips.all.len(), skips.all[0].line), (1, Some(5)), "{skips:?}");
        let truth = "position,limit,work,round,bytes_per_sec,rejected\nmiddle,50,forward,0,100,\n\
            middle,50,echo,0,98,\nmiddle,50,forward,0,96,\nmiddle,50,echo,0,9,yes\nguard,50,echo,0,98,\n\
            middle,50,transit,0,3,\n";
        let (errors, skips) = Errors::read_csv("b", truth.as_bytes());
        assert_eq!(errors, Errors::Seen(vec![1.0]));
        assert_eq!(skips.all.len(), 1, "{skips:?}");
        for odd in ["", "\n", "work\necho\n", "x,y\n1\n", "ratio\n1e999\n", "\u{0}\u{ff}"] {
            let (errors, skips) = Errors::read_csv("c", odd.as_bytes());
            assert_eq!(errors, Errors::Exact, "{odd:?}");
            assert!(!skips.all.is_empty(), "{odd:?}");
        }
        let (_, skips) = Errors::read_csv("d", [b'a', b'\n', 0xff, b'\n'].as_slice());
        assert!(!skips.all.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_table_panics(text: String, row: String) {
            let _ = Errors::read_csv("odd", text.as_bytes());
            let _ = Errors::read_csv("odd", format!("ratio,{text}\n{row}").as_bytes());
            let _ = crate::schedule::arrivals::Listed::read_csv("odd", format!("hour,fingerprint,bytes_per_sec\n{row}").as_bytes());
        }
    }

    #[test]
    fn our_own_ground_truth_can_be_read() {
        let (errors, skips) = Errors::read_csv(
            "rate-30s.csv",
            include_bytes!("../../../ff-archives/tests/data/ground-truth-rate-30s.csv").as_slice(),
        );
        assert_eq!(skips.all.len(), 0, "{skips:?}");
        let Errors::Seen(ratios) = errors else { panic!("{errors:?}") };
        assert_eq!(ratios.len(), 9);
        assert!(ratios.iter().all(|ratio| (0.98..1.001).contains(ratio)), "{ratios:?}");
    }
}
