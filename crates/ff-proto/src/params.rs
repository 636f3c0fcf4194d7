//! The parameters of a measurement with their bounds; the defaults are mostly the paper's values.
//!
//! Decisions: doc/decisions.md, "CGO alone by default".

use core::ops::RangeInclusive;
use core::time::Duration;

use crate::ids::CryptoKind;
use crate::units::{BytesPerSec, Ratio};

/// Valid durations of a measurement in seconds: up to the greatest `FFMaxMeasurementDuration`.
pub const DURATION_SECS: RangeInclusive<u16> = 1..=120;
/// The default length of a period, in which a relay is measured once, in seconds (paper §4.3: 24
/// h).
pub const PERIOD_SECS: u64 = 86_400;
/// Valid numbers of sockets of a team.
pub const SOCKETS: RangeInclusive<u16> = 1..=4096;
/// Valid numbers of cells per TLS record: 31 fill the largest record.
pub const CELLS_PER_RECORD: RangeInclusive<usize> = 1..=31;
/// The least probability of checking a cell (paper §4.1: p = 1e-5).
pub const MIN_CHECK_PROBABILITY: f64 = 1e-5;
/// The least background allowance, whatever the ratio, so that a relay's few clients do not notice
/// a measurement.
pub const BACKGROUND_FLOOR: BytesPerSec = BytesPerSec::from_mbit(1);

/// A path with a shorter round trip than this is full at once.
const NEAR: Duration = Duration::from_millis(5);
/// The longest round trip that is used, because a relay may delay all its answers.
const FAR: Duration = Duration::from_millis(500);
/// The number of round trips until a relay's rate is found and the surplus queue is drained: the
/// window doubles in each of the first ones, three show no growth, and three drain.
const SETTLE_ROUND_TRIPS: u32 = 11;
/// The largest number of additional seconds.
pub const MAX_SETTLE_SECS: u16 = 5;
/// The round trip that is assumed if it is unknown.
const UNKNOWN: Duration = Duration::from_millis(250);

/// The number of additional seconds for a relay with this round trip, because its rate is not found
/// at once: 11 round trips, and one second so that whole ones count; 0 for a round trip below 5 ms.
#[must_use]
pub fn settle_secs(round_trip: Option<Duration>) -> u16 {
    let round_trip = round_trip.unwrap_or(UNKNOWN).min(FAR);
    if round_trip < NEAR {
        return 0;
    }
    let secs = (SETTLE_ROUND_TRIPS * round_trip).as_secs_f64().ceil();
    1 + (1..MAX_SETTLE_SECS).find(|&whole| f64::from(whole) >= secs).unwrap_or(MAX_SETTLE_SECS - 1)
}

/// ε2 in percent: the largest relative error of an estimate above the truth (paper §6.1), and above
/// the mean second (`aggregate::estimate`).
pub const EPSILON2_PERCENT: u8 = 5;

/// How the estimate is computed from the seconds of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Estimator {
    /// The median second, but at most 1 + ε2 times the mean second.
    ///
    /// The median alone can be inflated by choosing when cells come back: echoes of nearly half of
    /// the seconds can be kept for the others. The mean cannot, because cells echoed in all seconds
    /// have been decrypted in all seconds. PROTOCOL.md §9 has the bounds.
    #[default]
    BoundedMedian,
}

impl Estimator {
    /// All estimators.
    pub const ALL: &[Self] = &[Self::BoundedMedian];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BoundedMedian => "bounded_median",
        }
    }
}

/// The parameters on which all roles of a measurement must agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// s: sockets of the whole team, if relay and path are unknown (paper App. E.1: 160).
    pub sockets: u16,
    /// t: counted seconds. The paper uses 30 (App. E.3), some of which its TCP needed to start.
    /// Here these do not count, and 10 s give 0.945 to 1.013 of the truth (PROTOCOL.md §9 has the
    /// table).
    pub duration_secs: u16,
    /// r: the largest share of background traffic (paper §6.2: 0.25).
    pub ratio: Ratio,
    /// The estimator.
    pub estimator: Estimator,
    /// m: measurer capacity per relay capacity. The paper uses 2.25 (App. E.2), because the sending
    /// rate of its measurers varied; here they send at a set rate, and with 1.5 two of three
    /// measurers are still enough.
    pub multiplier: f64,
    /// ε1: the largest relative error of an estimate below the truth (paper §6.1: 0.20).
    pub epsilon1: f64,
    /// ε2: the largest relative error of an estimate above the truth (paper §6.1: 0.05).
    pub epsilon2: f64,
    /// p: the probability of checking a cell. The paper's 1e-5 is the least; at 1e-3 the check
    /// takes under 1 ns a cell, and there are a hundred times as many samples of round trips.
    pub check_probability: f64,
    /// Cells per TLS record. Tor's relays send records of up to 4 KB, and busy ones 3.1 to 3.3 KB
    /// in the mean, which is 6 cells (observed with tor 0.4.9.11). With larger records the relay
    /// would look faster than it is for clients.
    pub cells_per_record: usize,
    /// The accepted ciphers of the measurement circuits in order of preference; by default only the
    /// one that clients use. The relay takes the first that it supports, so a cheaper one must not
    /// come first.
    pub crypto: &'static [CryptoKind],
}

impl Default for Params {
    /// The default parameters of coordinators.
    fn default() -> Self {
        Self { duration_secs: 10, multiplier: 1.5, ..Self::PAPER }
    }
}

/// A parameter outside of its bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be within {bounds}")]
pub struct ParamError {
    /// The parameter.
    name: &'static str,
    value: f64,
    /// The allowed values.
    bounds: String,
}

impl Params {
    /// The paper's (§4.1, §6.1, §6.2, App. E), except check probability, cells per record and
    /// ciphers, which are ours.
    pub const PAPER: Self = Self {
        sockets: 160,
        duration_secs: 30,
        ratio: Ratio::from_percent(25).unwrap(),
        estimator: Estimator::BoundedMedian,
        multiplier: 2.25,
        epsilon1: 0.20,
        epsilon2: 0.05,
        check_probability: 1e-3,
        cells_per_record: 6,
        crypto: &[CryptoKind::CGO_AES128],
    };

    /// Checks every bound.
    ///
    /// # Errors
    /// [`ParamError`] with the first parameter that is out of its bounds.
    pub fn validate(&self) -> Result<(), ParamError> {
        let check = |name, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(ParamError { name, value, bounds: format!("{low}..={high}") })
        };
        let bounds =
            |range: &RangeInclusive<u16>| (f64::from(*range.start()), f64::from(*range.end()));
        let (low, high) = bounds(&SOCKETS);
        check("the number of sockets", f64::from(self.sockets), low, high)?;
        let (low, high) = bounds(&DURATION_SECS);
        check("the duration in seconds", f64::from(self.duration_secs), low, high)?;
        check("the multiplier m", self.multiplier, 1.0, 100.0)?;
        check("epsilon 1", self.epsilon1, 0.0, 0.99)?;
        check("epsilon 2", self.epsilon2, 0.0, 10.0)?;
        check("the check probability", self.check_probability, MIN_CHECK_PROBABILITY, 1.0)?;
        let cells = |cells: usize| f64::from(u8::try_from(cells).unwrap_or(u8::MAX));
        let (low, high) = (cells(*CELLS_PER_RECORD.start()), cells(*CELLS_PER_RECORD.end()));
        check("the number of cells per record", cells(self.cells_per_record), low, high)?;
        // Unknown kinds cannot be checked, and there are no duplicates, so there are few.
        let most = cells(CryptoKind::SUPPORTED.len());
        check("the number of crypto kinds", cells(self.crypto.len()), 1.0, most)?;
        self.crypto.iter().enumerate().try_for_each(|(index, kind)| {
            let is_good =
                CryptoKind::SUPPORTED.contains(kind) && !self.crypto[..index].contains(kind);
            let bounds = || "the kinds known here, each once".to_owned();
            let (name, value) = ("a crypto kind", f64::from(kind.0));
            if is_good { Ok(()) } else { Err(ParamError { name, value, bounds: bounds() }) }
        })
    }

    /// f = m(1+ε2)/(1-ε1): measurer capacity to allocate per guessed relay capacity (paper §4.2).
    #[must_use]
    pub fn excess_factor(&self) -> f64 {
        self.multiplier * (1.0 + self.epsilon2) / (1.0 - self.epsilon1)
    }

    /// The estimate below which a measurement with `allocated` capacity is conclusive:
    /// Σa(1-ε1)/m (paper §4.2).
    #[must_use]
    pub fn conclusive_below(&self, allocated: BytesPerSec) -> BytesPerSec {
        allocated.scale(1.0 / self.headroom())
    }

    /// m/(1-ε1): the factor by which the capacity of measurers and paths must exceed the echo rate,
    /// so that the relay is the limit.
    #[must_use]
    pub fn headroom(&self) -> f64 {
        self.multiplier / (1.0 - self.epsilon1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_and_the_defaults_are_valid() {
        let params = Params::PAPER;
        params.validate().unwrap();
        assert!((params.epsilon2 - f64::from(EPSILON2_PERCENT) / 100.0).abs() < 1e-9);
        Params::default().validate().unwrap();
        assert!((Params::default().excess_factor() - 1.96875).abs() < 1e-9);
        // The paper's own formula gives 2.953 for its m, e1 and e2; the 2.84 it prints (§7) would
        // need e2 = 0.01.
        assert!((params.excess_factor() - 2.953_125).abs() < 1e-9);
        assert!((Params { epsilon2: 0.01, ..params }.excess_factor() - 2.84).abs() < 0.001);
    }

    #[test]
    fn a_far_relay_is_measured_for_some_seconds_more() {
        for (millis, secs) in
            [(0, 0), (4, 0), (5, 2), (90, 2), (118, 3), (210, 4), (300, 5), (400, 5), (9000, 5)]
        {
            assert_eq!(settle_secs(Some(Duration::from_millis(millis))), secs, "{millis} ms");
        }
        assert_eq!(settle_secs(None), 4);
    }

    #[test]
    fn parameters_out_of_bounds_are_named() {
        let error = Params { sockets: 0, ..Params::default() }.validate().unwrap_err();
        assert!(error.to_string().contains("sockets is 0"), "{error}");
        assert!(Params { check_probability: f64::NAN, ..Params::default() }.validate().is_err());
        assert!(Params { cells_per_record: 32, ..Params::default() }.validate().is_err());
    }

    #[test]
    fn crypto_kinds_are_known_and_listed_once() {
        const CGO: CryptoKind = CryptoKind::CGO_AES128;
        const CTR: CryptoKind = CryptoKind::AES128_CTR;
        const CASES: &[(&[CryptoKind], bool)] = &[
            (&[CGO, CTR], true),
            (&[CTR, CGO], true),
            (&[CTR], true),
            (&[], false),
            (&[CGO, CGO], false),
            (&[CGO, CryptoKind(3)], false),
            (&[CGO, CTR, CGO], false),
        ];
        for &(crypto, is_good) in CASES {
            let result = Params { crypto, ..Params::default() }.validate();
            assert_eq!(result.is_ok(), is_good, "{crypto:?}: {result:?}");
        }
    }
}
