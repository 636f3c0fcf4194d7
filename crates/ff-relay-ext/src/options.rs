//! The operator's options, and the policy that follows.
//!
//! The names are those of C tor's torrc; an Arti relay's configuration has another form
//! ([`crate::arti::section`]). An operator's value takes precedence over the consensus parameter of
//! the same name, and that over the default.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Duration;

use base64ct::{Base64Unpadded, Encoding};
use ff_proto::ids::Ed25519Id;
use ff_proto::params::PERIOD_SECS;
use ff_proto::session::target::Policy;
use ff_proto::units::Ratio;

/// Whether the relay takes part: 0 or 1, by default 0.
pub const MEASUREMENTS_ALLOWED: &str = "FFMeasurementsAllowed";
/// The coordinators that may measure: Ed25519 ids in base64, separated by commas or blanks; by
/// default none. There is no such consensus parameter, because those are numbers.
pub const ALLOWED_COORDINATORS: &str = "FFAllowedCoordinators";
/// The period in which each coordinator may measure once and retry once: 1 hour to 1 month, by
/// default 1 day; in a testing network at least 10 seconds.
pub const MEASUREMENT_PERIOD: &str = "FFMeasurementPeriod";
/// The greatest share of background traffic in percent: 0 to 99, by default 25.
pub const BACKGROUND_PERCENT: &str = "FFBackgroundTrafficPercent";
/// The longest measurement: 10 to 120 seconds, by default 45.
pub const MAX_DURATION: &str = "FFMaxMeasurementDuration";
/// The largest number of sockets that a team may announce: 1 to 32,768, by default 512.
pub const MAX_SOCKETS: &str = "FFMaxMeasurementSockets";
/// Whether the relay is in a testing network: 0 or 1, by default 0. The host sets it before the
/// options whose bounds depend on it; there is no such consensus parameter.
pub const TESTING_NETWORK: &str = "TestingTorNetwork";

/// The longest period in seconds: 30 days.
const MONTH_SECS: u64 = 30 * DAY_SECS;
/// Seconds of a day.
const DAY_SECS: u64 = 86_400;
/// The largest number of coordinators in the list: all directory authorities several times.
const MAX_COORDINATORS: usize = 64;

/// A numeric option: its name, default and bounds.
struct Number {
    /// The name in torrc and in the consensus.
    name: &'static str,
    /// The default.
    default: u64,
    /// The least value.
    min: u64,
    /// The greatest value.
    max: u64,
}

/// The least [`MEASUREMENT_PERIOD`] in a testing network, in seconds.
const TESTING_PERIOD_SECS: u64 = 10;

/// All numeric options.
const NUMBERS: [Number; 6] = [
    Number { name: TESTING_NETWORK, default: 0, min: 0, max: 1 },
    Number { name: MEASUREMENTS_ALLOWED, default: 0, min: 0, max: 1 },
    Number { name: MEASUREMENT_PERIOD, default: PERIOD_SECS, min: 3600, max: MONTH_SECS },
    Number { name: BACKGROUND_PERCENT, default: 25, min: 0, max: 99 },
    Number { name: MAX_DURATION, default: 45, min: 10, max: 120 },
    Number { name: MAX_SOCKETS, default: 512, min: 1, max: 32_768 },
];

/// The names of all options; the bounds of some depend on earlier ones.
pub fn names() -> impl Iterator<Item = &'static str> {
    NUMBERS.iter().map(|number| number.name).chain([ALLOWED_COORDINATORS])
}

/// An option that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The name of the option is unknown.
    #[error("there is no option {0}")]
    Unknown(String),
    /// The value is out of bounds or not a number.
    #[error("{name} is {value:?}, but must be a number from {min} to {max}{unit}")]
    BadNumber {
        /// The option.
        name: &'static str,
        /// The given value.
        value: String,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
        /// The unit of the number.
        unit: &'static str,
    },
    /// A coordinator's id does not decode.
    #[error("{ALLOWED_COORDINATORS}: {0:?} is not an Ed25519 identity: 43 base64 characters")]
    BadIdentity(String),
    /// Too many coordinators.
    #[error("{ALLOWED_COORDINATORS} lists more than {MAX_COORDINATORS} identities")]
    TooMany,
}

/// The operator's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetOptions {
    /// Numeric options by name, in seconds or percent.
    numbers: BTreeMap<&'static str, u64>,
    /// The coordinators that may measure.
    coordinators: Vec<Ed25519Id>,
}

impl TargetOptions {
    /// Options with which these coordinators may measure.
    #[must_use]
    pub fn allowing(coordinators: Vec<Ed25519Id>) -> Self {
        Self { numbers: BTreeMap::from([(MEASUREMENTS_ALLOWED, 1)]), coordinators }
    }

    /// Sets an option from its text in torrc; the name's case does not matter.
    ///
    /// # Errors
    /// [`OptionError`] with the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        if name.eq_ignore_ascii_case(ALLOWED_COORDINATORS) {
            self.coordinators = parse_identities(value)?;
            return Ok(());
        }
        let number = NUMBERS
            .iter()
            .find(|number| name.eq_ignore_ascii_case(number.name))
            .ok_or_else(|| OptionError::Unknown(name.to_owned()))?;
        let is_time = matches!(number.name, MEASUREMENT_PERIOD | MAX_DURATION);
        let parsed = if is_time { parse_seconds(value) } else { value.trim().parse().ok() };
        let min = self.min(number);
        let in_bounds = |value: &u64| (min..=number.max).contains(value);
        let bad = || OptionError::BadNumber {
            name: number.name,
            value: value.to_owned(),
            min,
            max: number.max,
            unit: if is_time { " seconds" } else { "" },
        };
        self.numbers.insert(number.name, parsed.filter(in_bounds).ok_or_else(bad)?);
        Ok(())
    }

    /// The least value of an option in this network.
    fn min(&self, number: &Number) -> u64 {
        let is_testing = self.numbers.get(TESTING_NETWORK) == Some(&1);
        match number.name {
            MEASUREMENT_PERIOD if is_testing => TESTING_PERIOD_SECS,
            _ => number.min,
        }
    }

    /// The policy from these options and the consensus parameters, which are clamped to their
    /// bounds.
    #[must_use]
    pub fn resolve(&self, consensus: &BTreeMap<String, i64>) -> Policy {
        let value = |name: &str| {
            let number = NUMBERS.iter().find(|number| number.name == name);
            let bounds = |number: &Number| (number.default, self.min(number), number.max);
            let (default, min, max) = number.map_or((0, 0, 0), bounds);
            let in_consensus =
                consensus.get(name).map(|&value| u64::try_from(value).unwrap_or(0).clamp(min, max));
            self.numbers.get(name).copied().or(in_consensus).unwrap_or(default)
        };
        let percent = u8::try_from(value(BACKGROUND_PERCENT)).ok().and_then(Ratio::from_percent);
        let longest = u16::try_from(value(MAX_DURATION)).ok().and_then(NonZero::new);
        Policy {
            enabled: value(MEASUREMENTS_ALLOWED) == 1,
            coordinators: self.coordinators.clone(),
            period: Duration::from_secs(value(MEASUREMENT_PERIOD)),
            ratio: percent.unwrap_or(Ratio::MAX),
            max_duration_secs: longest.unwrap_or(NonZero::<u16>::MIN),
            max_sockets: u32::try_from(value(MAX_SOCKETS)).unwrap_or(u32::MAX),
        }
    }
}

/// Reads Ed25519 ids.
fn parse_identities(text: &str) -> Result<Vec<Ed25519Id>, OptionError> {
    let ids = text
        .split([',', ' ', '\t'])
        .filter(|id| !id.is_empty())
        .map(|id| {
            let mut bytes = [0; 32];
            match Base64Unpadded::decode(id.trim_end_matches('='), &mut bytes) {
                Ok(decoded) if decoded.len() == 32 => Ok(Ed25519Id(bytes)),
                _ => Err(OptionError::BadIdentity(id.to_owned())),
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if ids.len() > MAX_COORDINATORS { Err(OptionError::TooMany) } else { Ok(ids) }
}

/// Parses a duration in torrc's format: a number with a unit, or in seconds without one.
fn parse_seconds(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = words.next().unwrap_or("second");
    let seconds = match unit.trim_end_matches('s') {
        "second" => 1,
        "minute" => 60,
        "hour" => 3600,
        "day" => DAY_SECS,
        "week" => 7 * DAY_SECS,
        "month" => MONTH_SECS,
        _ => return None,
    };
    if words.next().is_some() { None } else { number.checked_mul(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_or_refused(index in 0..8_usize, value in ".{0,200}") {
            let name = names().chain(["FFNothing"]).nth(index).unwrap();
            let mut options = TargetOptions::default();
            if options.set(name, &value).is_err() {
                proptest::prop_assert_eq!(options, TargetOptions::default());
            }
        }
    }

    #[test]
    fn off_by_default() {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        assert!(!policy.enabled && policy.coordinators.is_empty());
        assert_eq!(policy.period, Duration::from_secs(86_400));
        assert_eq!((policy.ratio.percent(), policy.max_duration_secs.get()), (25, 45));
        assert_eq!(policy.max_sockets, 512);
    }

    #[test]
    fn the_operator_beats_the_consensus_which_beats_the_default() {
        let mut options = TargetOptions::default();
        let consensus = BTreeMap::from([
            (BACKGROUND_PERCENT.to_owned(), 10),
            (MAX_DURATION.to_owned(), 1_000_000),
            (MEASUREMENTS_ALLOWED.to_owned(), 1),
        ]);
        let policy = options.resolve(&consensus);
        assert!(policy.enabled);
        assert_eq!((policy.ratio.percent(), policy.max_duration_secs.get()), (10, 120));
        options.set("ffbackgroundtrafficpercent", "50").unwrap();
        options.set(MEASUREMENTS_ALLOWED, "0").unwrap();
        let policy = options.resolve(&consensus);
        assert_eq!((policy.ratio.percent(), policy.enabled), (50, false));
    }

    #[test]
    fn no_consensus_makes_measurements_shorter_or_longer_than_the_bounds() {
        for (parameter, secs) in
            [(i64::MIN, 10), (-1, 10), (0, 10), (9, 10), (30, 30), (121, 120), (i64::MAX, 120)]
        {
            let consensus = BTreeMap::from([(MAX_DURATION.to_owned(), parameter)]);
            let policy = TargetOptions::default().resolve(&consensus);
            assert_eq!(policy.max_duration_secs.get(), secs, "{parameter}");
        }
        assert!(TargetOptions::default().set(MAX_DURATION, "0").is_err());
    }

    #[test]
    fn values_out_of_bounds_are_named() {
        let mut options = TargetOptions::default();
        for (name, value, ok) in [
            (MEASUREMENT_PERIOD, "1 hour", true),
            (MEASUREMENT_PERIOD, "59 minutes", false),
            (MEASUREMENT_PERIOD, "1 month", true),
            (MEASUREMENT_PERIOD, "31 days", false),
            (MAX_DURATION, "10", true),
            (MAX_DURATION, "121", false),
            (BACKGROUND_PERCENT, "100", false),
            (MAX_SOCKETS, "0", false),
            (MAX_SOCKETS, "32768", true),
            (MEASUREMENTS_ALLOWED, "yes", false),
            (ALLOWED_COORDINATORS, "AAAA", false),
            (ALLOWED_COORDINATORS, "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc", true),
            ("FFNothing", "1", false),
        ] {
            let result = options.set(name, value);
            assert_eq!(result.is_ok(), ok, "{name} {value}: {result:?}");
        }
        let error = options.set(MAX_DURATION, "9").unwrap_err();
        assert!(error.to_string().contains("10 to 120 seconds"), "{error}");
        assert_eq!(options.resolve(&BTreeMap::new()).coordinators, [Ed25519Id([7; 32])]);
    }

    #[test]
    fn only_a_testing_network_has_shorter_periods() {
        let short =
            BTreeMap::from([(MEASUREMENT_PERIOD.to_owned(), 20), (TESTING_NETWORK.to_owned(), 1)]);
        let mut options = TargetOptions::default();
        assert!(options.set(MEASUREMENT_PERIOD, "10").is_err());
        assert_eq!(options.resolve(&short).period, Duration::from_secs(3600));
        options.set(TESTING_NETWORK, "1").unwrap();
        assert_eq!(options.resolve(&short).period, Duration::from_secs(20));
        options.set(MEASUREMENT_PERIOD, "10").unwrap();
        assert_eq!(options.resolve(&short).period, Duration::from_secs(10));
        let error = options.set(MEASUREMENT_PERIOD, "9").unwrap_err();
        assert!(error.to_string().contains("from 10 to 2592000 seconds"), "{error}");
        options.set(TESTING_NETWORK, "0").unwrap();
        assert!(options.set(MEASUREMENT_PERIOD, "59 minutes").is_err());
    }
}
