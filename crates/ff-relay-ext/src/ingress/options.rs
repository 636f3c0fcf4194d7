//! The options of the limit from the operator and the consensus, and the rules that follow.
//!
//! A value in torrc takes precedence over the consensus parameter of the same name, and that over
//! the default. Rate and burst are tor's own: `PerConnBWRate` and `PerConnBWBurst`, or else
//! `perconnbwrate` and `perconnbwburst`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use super::{Bucket, Exempt, MAX_BYTES, Rules};
use crate::options::OptionError;

/// Whether the rules apply: 0 or 1, by default 0.
pub const LIMIT: &str = "FFIngressLimit";
/// The relays that are exempt: a word in torrc; in the consensus 0 (none), 1 (listed), 2 (fast, the
/// default) or 3 (stable-fast).
pub const EXEMPT: &str = "FFIngressExempt";
/// The part of its measured weight that an exempt relay's link gets, in percent: 0 to 1000, by
/// default 0, which sets no limit.
pub const SHARE: &str = "FFIngressShare";
/// Exempt addresses, separated by blanks or commas, each with or without a mask. No consensus
/// parameter has this name.
pub const EXEMPT_ADDRESS: &str = "FFIngressExemptAddress";
/// The limit of each link in bytes per second; 0 means not set.
pub const RATE: &str = "PerConnBWRate";
/// The burst of each link, in bytes; 0 means not set.
pub const BURST: &str = "PerConnBWBurst";
/// The consensus parameter for [`RATE`].
pub const RATE_PARAM: &str = "perconnbwrate";
/// The consensus parameter for [`BURST`].
pub const BURST_PARAM: &str = "perconnbwburst";

/// The least limit, in bytes per second: less is too little for a web page.
const MIN_RATE: u64 = 10_000;
/// The greatest [`SHARE`]: weights are not in bytes per second, and may be far below a relay's
/// capacity.
const MAX_SHARE_PERCENT: u64 = 1000;
/// The largest number of exempt addresses in torrc.
const MAX_ADDRESSES: usize = 256;
/// The least burst is the limit divided by this, 0.2 s: tor refills buckets ten times a second, and
/// a bucket of less than two such intervals loses bytes (5 kB at 100 kB/s gave 0.52 of the limit).
const BURST_DIVISOR: u64 = 5;
/// The default burst, in seconds of the limit.
const BURST_SECS: u64 = 10;
/// The least default burst, in bytes: a web page.
const BURST_BYTES: u64 = 3_000_000;

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    /// An address in the network.
    address: IpAddr,
    /// The length of the prefix in bits.
    bits: u32,
}

impl AddressPrefix {
    /// Whether it contains this address; an IPv4 address that is mapped into IPv6 counts as an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for AddressPrefix {
    type Err = IngressError;

    /// Parses an address, with or without a mask: `192.0.2.1`, `192.0.2.0/24`,
    /// `192.0.2.0/255.255.255.0`, `2001:db8::/32`, `[2001:db8::]/32`. An IPv4 address that is
    /// mapped into IPv6 is parsed as an IPv4 address, and so is its mask.
    fn from_str(text: &str) -> Result<Self, IngressError> {
        let bad = || IngressError::BadAddress(text.to_owned());
        let (address, mask) =
            text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address: IpAddr = bare.unwrap_or(address).parse().map_err(|_| bad())?;
        if bare.is_some() && address.is_ipv4() {
            return Err(bad());
        }
        // As `contains` does with peers' addresses.
        let address = address.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match mask {
            None => most,
            Some(mask) => mask_bits(mask, address.is_ipv4()).ok_or_else(bad)?,
        };
        if bits > most { Err(bad()) } else { Ok(Self { address, bits }) }
    }
}

/// The number of bits of a mask; `None` if it is not a mask.
fn mask_bits(mask: &str, is_ipv4: bool) -> Option<u32> {
    if !mask.is_empty() && mask.bytes().all(|byte| byte.is_ascii_digit()) {
        return mask.parse().ok();
    }
    let mask = mask.parse::<Ipv4Addr>().ok().filter(|_| is_ipv4)?.to_bits();
    (mask.leading_ones() + mask.trailing_zeros() == 32).then(|| mask.leading_ones())
}

/// An option that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IngressError {
    /// The option is unknown, or its value is out of bounds.
    #[error(transparent)]
    Value(#[from] OptionError),
    /// Not a word for exempt relays.
    #[error("{EXEMPT} is {0:?}, but must be fast, stable-fast, listed or none")]
    BadWord(String),
    /// Not an address, or not a mask.
    #[error(
        "{EXEMPT_ADDRESS}: {0:?} is not an address or an address with a mask of 0 to 32 (IPv4) or 128 (IPv6) bits"
    )]
    BadAddress(String),
    /// Too many addresses.
    #[error("{EXEMPT_ADDRESS} lists more than {MAX_ADDRESSES} addresses")]
    TooManyAddresses,
    /// The rules are on, but no limit is set.
    #[error(
        "{LIMIT} is 1, but {RATE} is not set; it must be a number from {MIN_RATE} to {MAX_BYTES} bytes per second"
    )]
    NoRate,
}

/// The result of options and consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The rules; `None` when tor's own rule holds.
    pub rules: Option<Rules>,
    /// Values that were ignored, with the reason, for the operator.
    pub ignored: Vec<String>,
}

/// The operator's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressOptions {
    /// Whether the rules apply.
    is_on: Option<bool>,
    /// The relays that are exempt.
    exempt: Option<Exempt>,
    /// Their part of the measured weight, in percent.
    share_percent: Option<u64>,
    /// The addresses that are exempt.
    addresses: Vec<AddressPrefix>,
    /// The limit in bytes per second.
    rate: Option<u64>,
    /// The burst of a link, in bytes.
    burst: Option<u64>,
}

impl IngressOptions {
    /// Sets an option from its text in torrc; the name's case does not matter.
    ///
    /// # Errors
    /// [`IngressError`] with the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), IngressError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is(LIMIT) {
            self.is_on = Some(number(LIMIT, value, (0, 1), "")? == 1);
        } else if is(EXEMPT) {
            self.exempt = Some(exempt(value)?);
        } else if is(SHARE) {
            self.share_percent = Some(number(SHARE, value, (0, MAX_SHARE_PERCENT), " percent")?);
        } else if is(EXEMPT_ADDRESS) {
            self.addresses = addresses(value)?;
        } else if is(RATE) {
            self.rate = Some(number(RATE, value, (0, u64::MAX), "")?).filter(|&rate| rate > 0);
        } else if is(BURST) {
            self.burst = Some(number(BURST, value, (0, u64::MAX), "")?).filter(|&burst| burst > 0);
        } else {
            return Err(OptionError::Unknown(name.to_owned()).into());
        }
        Ok(())
    }

    /// Checks rate and burst, if torrc turns the rules on. The consensus is not checked: a relay
    /// may have none at its start.
    ///
    /// # Errors
    /// [`IngressError`] with the allowed values.
    pub fn check(&self) -> Result<(), IngressError> {
        if self.is_on != Some(true) {
            return Ok(());
        }
        let rate = self.rate.ok_or(IngressError::NoRate)?;
        check_rate(rate)?;
        self.burst.map_or(Ok(()), |burst| check_burst(burst, rate))
    }

    /// Makes rules from the options and the consensus parameters. Parameters out of bounds are
    /// ignored.
    #[must_use]
    pub fn resolve(&self, consensus: &BTreeMap<String, i64>) -> Resolved {
        let mut reader = Reader { consensus, ignored: Vec::new() };
        let rules = self.rules(&mut reader);
        Resolved { rules, ignored: reader.ignored }
    }

    /// The rules; `None` when they are off or there is no valid limit.
    fn rules(&self, consensus: &mut Reader<'_>) -> Option<Rules> {
        let is_on = self.is_on.or_else(|| Some(consensus.number(LIMIT, (0, 1))? == 1));
        if is_on != Some(true) {
            return None;
        }
        let rate = match self.rate {
            Some(rate) => consensus.unless_bad(check_rate(rate)).map(|()| rate),
            None => consensus.number(RATE_PARAM, (MIN_RATE, MAX_BYTES)),
        };
        let Some(rate) = rate else {
            let text = format!(
                "{LIMIT} is 1, but neither torrc nor the consensus has a valid limit: tor's own rule holds"
            );
            consensus.ignored.push(text);
            return None;
        };
        let share = self.share_percent.or_else(|| consensus.number(SHARE, (0, MAX_SHARE_PERCENT)));
        Some(Rules {
            limit: Bucket::new(rate, self.burst(rate, consensus)),
            exempt: self.exempt.or_else(|| consensus.exempt()).unwrap_or_default(),
            share_percent: share.and_then(|share| u32::try_from(share).ok()).unwrap_or(0),
            addresses: self.addresses.clone(),
        })
    }

    /// The burst of a link with this limit, in bytes.
    fn burst(&self, rate: u64, consensus: &mut Reader<'_>) -> u64 {
        let burst = match self.burst {
            Some(burst) => consensus.unless_bad(check_burst(burst, rate)).map(|()| burst),
            None => consensus.number(BURST_PARAM, (min_burst(rate), MAX_BYTES)),
        };
        burst.unwrap_or_else(|| rate.saturating_mul(BURST_SECS).max(BURST_BYTES))
    }
}

/// Reads the parameters of a consensus.
struct Reader<'a> {
    /// The parameters by name.
    consensus: &'a BTreeMap<String, i64>,
    /// Values that were ignored, with the reason, for the operator.
    ignored: Vec<String>,
}

impl Reader<'_> {
    /// A parameter within its bounds.
    fn number(&mut self, name: &str, (min, max): (u64, u64)) -> Option<u64> {
        let value = *self.consensus.get(name)?;
        let number = u64::try_from(value).ok().filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.ignored.push(format!(
                "the consensus parameter {name} is {value}, but must be from {min} to {max}: it is ignored"
            ));
        }
        number
    }

    /// The relays that are exempt.
    fn exempt(&mut self) -> Option<Exempt> {
        let number = self.number(EXEMPT, (0, 3))?;
        Exempt::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Notes the error of a line of torrc, which is accepted while nothing turns the rules on.
    fn unless_bad(&mut self, result: Result<(), IngressError>) -> Option<()> {
        result.map_err(|error| self.ignored.push(format!("{error}: it is ignored"))).ok()
    }
}

/// The least burst for a limit, in bytes.
fn min_burst(rate: u64) -> u64 {
    rate.div_ceil(BURST_DIVISOR)
}

/// Checks that a limit is within its bounds.
fn check_rate(rate: u64) -> Result<(), IngressError> {
    number(RATE, &rate.to_string(), (MIN_RATE, MAX_BYTES), " bytes per second").map(|_| ())
}

/// Checks that a burst is within its bounds.
fn check_burst(burst: u64, rate: u64) -> Result<(), IngressError> {
    let bounds = (min_burst(rate), MAX_BYTES);
    number(BURST, &burst.to_string(), bounds, " bytes (at least 0.2 seconds of PerConnBWRate)")
        .map(|_| ())
}

/// Reads a number.
fn number(
    name: &'static str,
    value: &str,
    (min, max): (u64, u64),
    unit: &'static str,
) -> Result<u64, IngressError> {
    let parsed: Option<u64> = value.trim().parse().ok();
    let parsed = parsed.filter(|number| (min..=max).contains(number));
    let bad = || OptionError::BadNumber { name, value: value.to_owned(), min, max, unit };
    parsed.ok_or_else(|| bad().into())
}

/// Reads which relays are exempt.
fn exempt(value: &str) -> Result<Exempt, IngressError> {
    let is = |exempt: &Exempt| value.trim().eq_ignore_ascii_case(exempt.word());
    let found = Exempt::ALL.into_iter().find(is);
    found.ok_or_else(|| IngressError::BadWord(value.to_owned()))
}

/// Reads addresses.
fn addresses(value: &str) -> Result<Vec<AddressPrefix>, IngressError> {
    let words = value.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let addresses = words.map(str::parse::<AddressPrefix>).collect::<Result<Vec<_>, _>>()?;
    if addresses.len() > MAX_ADDRESSES {
        Err(IngressError::TooManyAddresses)
    } else {
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::Peer;

    /// Options of these names and values.
    fn options(lines: &[(&str, &str)]) -> IngressOptions {
        let mut options = IngressOptions::default();
        for (name, value) in lines {
            options.set(name, value).unwrap();
        }
        options
    }

    /// Parameters of a consensus.
    fn params(values: &[(&str, i64)]) -> BTreeMap<String, i64> {
        values.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_or_refused(index in 0..7_usize, value in ".{0,200}") {
            let name = [LIMIT, EXEMPT, SHARE, EXEMPT_ADDRESS, RATE, BURST, "FFNothing"][index];
            let mut options = IngressOptions::default();
            if options.set(name, &value).is_err() {
                proptest::prop_assert_eq!(options, IngressOptions::default());
            }
        }

        #[test]
        fn any_consensus_makes_buckets_within_tors_bounds(
            values in proptest::collection::vec(
                proptest::prop_oneof![proptest::num::i64::ANY, -1..=1_001_i64, 0..=(1_i64 << 31)],
                5,
            ),
            weight in proptest::prop_oneof![proptest::num::u64::ANY, 0..=(1_u64 << 33)],
        ) {
            let names = [EXEMPT, SHARE, RATE_PARAM, BURST_PARAM, LIMIT];
            let consensus = params(&std::array::from_fn::<_, 5, _>(|index| (names[index], values[index])));
            let mut options = options(&[(LIMIT, "1")]);
            if weight % 2 == 0 {
                options.set(RATE, &(weight % (2 * MAX_BYTES)).to_string()).unwrap();
            }
            if let Some(rules) = options.resolve(&consensus).rules {
                let listing = crate::ingress::Listing {
                    is_fast: true,
                    is_stable: true,
                    measured_bytes_per_sec: Some(weight),
                    is_any_measured: true,
                };
                let peer = Peer { is_authenticated: true, listing: Some(listing), ..Peer::default() };
                let bucket = rules.decide(&peer).bucket.unwrap_or(rules.limit());
                for bytes in [bucket.rate_bytes_per_sec, bucket.burst_bytes] {
                    proptest::prop_assert!((1..=MAX_BYTES).contains(&u64::from(bytes)));
                }
            }
        }
    }

    #[test]
    fn without_options_tors_own_rule_holds() {
        let all = params(&[(RATE_PARAM, 100_000), (EXEMPT, 3), (SHARE, 9)]);
        assert_eq!(IngressOptions::default().resolve(&all), Resolved::default());
        assert_eq!(options(&[(RATE, "100000")]).resolve(&all), Resolved::default());
        let off = options(&[(LIMIT, "0"), (RATE, "1")]);
        assert_eq!(off.check(), Ok(()));
        assert_eq!(off.resolve(&params(&[(LIMIT, 1)])), Resolved::default());
    }

    #[test]
    fn torrc_beats_the_consensus_which_beats_the_default() {
        let consensus = params(&[
            (LIMIT, 1),
            (RATE_PARAM, 200_000),
            (BURST_PARAM, 50_000),
            (EXEMPT, 3),
            (SHARE, 7),
        ]);
        let text = |options: IngressOptions, consensus: &_| {
            let resolved = options.resolve(consensus);
            assert_eq!(resolved.ignored, [""; 0]);
            resolved.rules.map(|rules| rules.to_string()).unwrap_or_default()
        };
        assert_eq!(
            text(IngressOptions::default(), &consensus),
            "200000 bytes/s each way, burst 50000 bytes, exempt: stable-fast up to 7 % of the measured weight"
        );
        let own = [(RATE, "100000"), (BURST, "20000"), (EXEMPT, "None"), (SHARE, "0")];
        assert_eq!(
            text(options(&own), &consensus),
            "100000 bytes/s each way, burst 20000 bytes, exempt: none"
        );
        assert_eq!(text(options(&[(LIMIT, "0")]), &consensus), "");
        for (rate, burst) in [
            (10_000, 3_000_000),
            (300_000, 3_000_000),
            (300_001, 3_000_010),
            (MAX_BYTES, MAX_BYTES),
        ] {
            let set = options(&[(LIMIT, "1"), (RATE, &rate.to_string())]);
            assert_eq!(set.check(), Ok(()));
            assert_eq!(
                text(set, &BTreeMap::new()),
                format!("{rate} bytes/s each way, burst {burst} bytes, exempt: fast")
            );
        }
    }

    #[test]
    fn bad_values_are_refused_with_option_value_and_bounds() {
        let mut options = IngressOptions::default();
        for (name, value, texts) in [
            (LIMIT, "2", ["FFIngressLimit", "\"2\"", "from 0 to 1"]),
            (LIMIT, "yes", ["FFIngressLimit", "\"yes\"", "from 0 to 1"]),
            (
                EXEMPT,
                "quick",
                ["FFIngressExempt", "\"quick\"", "fast, stable-fast, listed or none"],
            ),
            (EXEMPT, "2", ["FFIngressExempt", "\"2\"", "fast, stable-fast, listed or none"]),
            (SHARE, "1001", ["FFIngressShare", "\"1001\"", "from 0 to 1000 percent"]),
            (SHARE, "-1", ["FFIngressShare", "\"-1\"", "from 0 to 1000 percent"]),
            (
                EXEMPT_ADDRESS,
                "192.0.2.0/33",
                ["FFIngressExemptAddress", "\"192.0.2.0/33\"", "0 to 32"],
            ),
            (EXEMPT_ADDRESS, "192.0.2.1,::/129", ["FFIngressExemptAddress", "\"::/129\"", "128"]),
            ("FFNothing", "1", ["no option", "FFNothing", ""]),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(texts.iter().all(|text| error.contains(text)), "{name} {value}: {error}");
        }
        assert_eq!(options, IngressOptions::default());
    }

    #[test]
    fn bad_masks_are_refused() {
        for (text, is_good) in [
            ("192.0.2.1", true),
            ("192.0.2.1/0", true),
            ("192.0.2.1/32", true),
            ("192.0.2.1/", false),
            ("192.0.2.1/-1", false),
            ("192.0.2.1/+8", false),
            ("192.0.2.1/8x", false),
            ("192.0.2.1/99999999999", false),
            ("192.0.2.1/255.255.0.0", true),
            ("192.0.2.1/0.0.0.0", true),
            ("192.0.2.1/255.255.255.255", true),
            ("192.0.2.1/255.0.255.0", false),
            ("192.0.2.1/24/24", false),
            ("192.0.2", false),
            ("[192.0.2.1]", false),
            ("2001:db8::/128", true),
            ("[2001:db8::]/32", true),
            ("[2001:db8::/32", false),
            ("2001:db8::/255.255.0.0", false),
            ("::ffff:192.0.2.0/120", false),
            ("bridge.example", false),
        ] {
            assert_eq!(text.parse::<AddressPrefix>().is_ok(), is_good, "{text}");
        }
        let everything: AddressPrefix = "192.0.2.1/0".parse().unwrap();
        assert!(everything.contains("10.0.0.1".parse().unwrap()));
        assert!(!everything.contains("2001:db8::1".parse().unwrap()));
        let mapped: AddressPrefix = "::ffff:192.0.2.1".parse().unwrap();
        assert!(mapped.contains("192.0.2.1".parse().unwrap()));
        assert!(mapped.contains("::ffff:192.0.2.1".parse().unwrap()));
        let many = vec!["192.0.2.1"; MAX_ADDRESSES + 1].join(" ");
        let refused = IngressOptions::default().set(EXEMPT_ADDRESS, &many);
        assert_eq!(refused, Err(IngressError::TooManyAddresses));
        let set = options(&[(EXEMPT_ADDRESS, &many[10..])]);
        assert_eq!(set.addresses.len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_limit_needs_a_rate_and_a_burst_that_can_be_kept() {
        for (lines, error) in [
            (vec![], "PerConnBWRate is not set"),
            (vec![(RATE, "0")], "PerConnBWRate is not set"),
            (
                vec![(RATE, "9999")],
                "PerConnBWRate is \"9999\", but must be a number from 10000 to 2147483647",
            ),
            (vec![(RATE, "2147483648")], "from 10000 to 2147483647 bytes per second"),
            (
                vec![(RATE, "100001"), (BURST, "20000")],
                "PerConnBWBurst is \"20000\", but must be a number from 20001 to 2147483647 bytes",
            ),
            (vec![(RATE, "100000"), (BURST, "2147483648")], "from 20000 to 2147483647 bytes"),
        ] {
            let mut set = options(&[(LIMIT, "1")]);
            for (name, value) in lines {
                set.set(name, value).unwrap();
            }
            let text = set.check().unwrap_err().to_string();
            assert!(text.contains(error), "{text}");
        }
        assert_eq!(options(&[(LIMIT, "1"), (RATE, "100000"), (BURST, "20000")]).check(), Ok(()));
    }

    #[test]
    fn parameters_out_of_bounds_are_ignored_and_reported() {
        let base = [(LIMIT, 1), (RATE_PARAM, 100_000)];
        let default = IngressOptions::default().resolve(&params(&base)).rules.unwrap();
        for (name, value) in [
            (EXEMPT, 4),
            (EXEMPT, -1),
            (SHARE, 1001),
            (SHARE, -1),
            (BURST_PARAM, 19_999),
            (BURST_PARAM, -1),
        ] {
            let all = params(&[base[0], base[1], (name, value)]);
            let resolved = IngressOptions::default().resolve(&all);
            assert_eq!(resolved.rules.as_ref(), Some(&default), "{name}");
            let [told] = &resolved.ignored[..] else { panic!("{name}: {:?}", resolved.ignored) };
            assert!(told.contains(name) && told.contains(&value.to_string()), "{told}");
        }
        // Without a valid switch or a valid limit the rules are off.
        for (values, count) in [
            (vec![(LIMIT, 2), base[1]], 1),
            (vec![base[0], (RATE_PARAM, 9_999)], 2),
            (vec![base[0], (RATE_PARAM, 1 << 31)], 2),
            (vec![base[0]], 1),
        ] {
            let resolved = IngressOptions::default().resolve(&params(&values));
            assert_eq!((resolved.rules, resolved.ignored.len()), (None, count), "{values:?}");
        }
        // A value that torrc may have while the rules are off is ignored when the consensus turns
        // them on.
        let resolved = options(&[(RATE, "5000")]).resolve(&params(&base));
        assert_eq!((resolved.rules, resolved.ignored.len()), (None, 2));
        let resolved = options(&[(BURST, "5")]).resolve(&params(&base));
        assert_eq!((resolved.rules, resolved.ignored.len()), (Some(default), 1));
    }
}
