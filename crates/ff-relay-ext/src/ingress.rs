//! The limit where clients enter: which links of a relay get how many bytes per second.
//!
//! Links of clients get the limit, and so do links of relays that have not earned an exemption. A
//! relay earns it by flags that directory authorities give (Moore, Wacek, Sherr: *Tortoise*, ACSAC
//! 2011). [`options`] makes [`Rules`] from torrc and the consensus, and [`Rules::decide`] decides
//! what a link gets. The module has no socket, clock or memory: the host passes what it knows about
//! a link, and applies the decision.
//!
//! A rule may use only what a peer is and what authorities say about it. A rule that followed the
//! relay's load would reveal whose guard the relay is (Geddes, Jansen, Hopper, PETS 2013).

pub mod options;

use std::fmt;
use std::net::IpAddr;

pub use self::options::{AddressPrefix, IngressError, IngressOptions, Resolved};

/// The largest rate or burst of a bucket, in bytes: tor stores them as signed 32-bit integers.
pub const MAX_BYTES: u64 = 2_147_483_647;

/// The relays that are exempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exempt {
    /// None of them.
    None,
    /// All relays that this relay knows, with any flags: tor's own rule.
    Listed,
    /// Relays with the flag Fast in the consensus.
    #[default]
    Fast,
    /// Relays with both Stable and Fast.
    StableFast,
}

impl Exempt {
    /// All values, in the order of their numbers in the consensus, from 0.
    pub const ALL: [Self; 4] = [Self::None, Self::Listed, Self::Fast, Self::StableFast];

    /// The word in torrc.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Listed => "listed",
            Self::Fast => "fast",
            Self::StableFast => "stable-fast",
        }
    }
}

/// A token bucket of a link, for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The rate, in bytes per second: 1 to [`MAX_BYTES`].
    pub rate_bytes_per_sec: u32,
    /// The burst, in bytes: 1 to [`MAX_BYTES`].
    pub burst_bytes: u32,
}

impl Bucket {
    /// A bucket; values above [`MAX_BYTES`] are reduced to it.
    fn new(rate_bytes_per_sec: u64, burst_bytes: u64) -> Self {
        let cut = |bytes: u64| u32::try_from(bytes.clamp(1, MAX_BYTES)).unwrap_or(u32::MAX);
        Self { rate_bytes_per_sec: cut(rate_bytes_per_sec), burst_bytes: cut(burst_bytes) }
    }

    /// This bucket, or one with the given rate if that is greater; its burst lasts as many seconds.
    fn at_least(self, rate_bytes_per_sec: u64) -> Self {
        let own = u64::from(self.rate_bytes_per_sec);
        let rate = rate_bytes_per_sec.min(MAX_BYTES);
        if rate <= own { self } else { Self::new(rate, u64::from(self.burst_bytes) * rate / own) }
    }
}

/// A relay's entry in a consensus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Whether it has the flag Fast.
    pub is_fast: bool,
    /// Whether it has the flag Stable.
    pub is_stable: bool,
    /// Its weight in bytes per second; `None` if it was not measured.
    pub measured_bytes_per_sec: Option<u64>,
    /// Whether the consensus has a measured weight of any relay.
    pub is_any_measured: bool,
}

/// A relay's knowledge of the other end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Whether it has shown an identity: relays do, clients do not. A bridge does so only on links
    /// that are opened to it.
    pub is_authenticated: bool,
    /// Whether this relay has its descriptor, so that a recent consensus listed it.
    pub is_known: bool,
    /// Its entry in the consensus; `None` if it is not listed.
    pub listing: Option<Listing>,
    /// Its address, if it has one.
    pub address: Option<IpAddr>,
}

/// The reason for a link's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The operator has exempted its address.
    ExemptAddress,
    /// The peer is a relay with the flags that exempt it.
    ExemptRelay,
    /// The peer is a client: it has shown no identity.
    Client,
    /// The identity is not a listed relay's.
    Unlisted,
    /// The relay does not have the flag Fast.
    NotFast,
    /// The relay does not have the flag Stable.
    NotStable,
    /// The peer is a relay, but no relays are exempt.
    NoneExempt,
}

impl Reason {
    /// Whether this reason exempts a link.
    #[must_use]
    pub const fn exempts(self) -> bool {
        matches!(self, Self::ExemptAddress | Self::ExemptRelay)
    }
}

/// The decision about a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The link's bucket; `None` if only the relay's own bandwidth limits it.
    pub bucket: Option<Bucket>,
    /// The reason.
    pub reason: Reason,
}

/// The rules in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The bucket of links that are not exempt.
    limit: Bucket,
    /// The relays that are exempt.
    exempt: Exempt,
    /// The part of its measured weight that an exempt relay gets, in percent; 0 sets no limit.
    share_percent: u32,
    /// The addresses that are exempt.
    addresses: Vec<AddressPrefix>,
}

impl Rules {
    /// The bucket of links that are not exempt.
    #[must_use]
    pub const fn limit(&self) -> Bucket {
        self.limit
    }

    /// Decides about a link.
    #[must_use]
    pub fn decide(&self, peer: &Peer) -> Decision {
        let has = |address| self.addresses.iter().any(|network| network.contains(address));
        if peer.address.is_some_and(has) {
            return Decision { bucket: None, reason: Reason::ExemptAddress };
        }
        match self.why_not(peer) {
            Some(reason) => Decision { bucket: Some(self.limit), reason },
            None => Decision { bucket: self.share_of(peer), reason: Reason::ExemptRelay },
        }
    }

    /// Why a link is not exempt as a relay's; `None` if it is.
    fn why_not(&self, peer: &Peer) -> Option<Reason> {
        if !peer.is_authenticated {
            return Some(Reason::Client);
        }
        match (self.exempt, peer.listing) {
            (Exempt::None, _) => Some(Reason::NoneExempt),
            (Exempt::Listed, None) if peer.is_known => None,
            (_, None) => Some(Reason::Unlisted),
            (Exempt::Listed, Some(_)) => None,
            (_, Some(listing)) if !listing.is_fast => Some(Reason::NotFast),
            (Exempt::StableFast, Some(listing)) if !listing.is_stable => Some(Reason::NotStable),
            (_, Some(_)) => None,
        }
    }

    /// The bucket of an exempt relay. Without a measured weight it is the limit, because its
    /// contribution is unknown. Without any measured weight in the consensus there is no bucket:
    /// measurements are missing then, and all links between relays would be limited.
    fn share_of(&self, peer: &Peer) -> Option<Bucket> {
        let has_no_weights = peer.listing.is_some_and(|listing| !listing.is_any_measured);
        if self.share_percent == 0 || has_no_weights {
            return None;
        }
        let weight = peer.listing.and_then(|listing| listing.measured_bytes_per_sec).unwrap_or(0);
        Some(self.limit.at_least(weight.saturating_mul(self.share_percent.into()) / 100))
    }
}

impl fmt::Display for Rules {
    /// A text for the operator; addresses are only counted, because they may be those of bridges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bucket { rate_bytes_per_sec, burst_bytes } = self.limit;
        let word = self.exempt.word();
        write!(
            f,
            "{rate_bytes_per_sec} bytes/s each way, burst {burst_bytes} bytes, exempt: {word}"
        )?;
        if self.share_percent > 0 {
            write!(f, " up to {} % of the measured weight", self.share_percent)?;
        }
        match self.addresses.len() {
            0 => Ok(()),
            1 => f.write_str(", and 1 address"),
            count => write!(f, ", and {count} addresses"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules with a limit of 100 kB/s.
    fn rules(exempt: Exempt, share_percent: u32) -> Rules {
        let addresses = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        Rules { limit: Bucket::new(100_000, 3_000_000), exempt, share_percent, addresses }
    }

    /// A relay with these flags and this weight.
    fn relay(is_fast: bool, is_stable: bool, weight: Option<u64>) -> Peer {
        let listing =
            Listing { is_fast, is_stable, measured_bytes_per_sec: weight, is_any_measured: true };
        Peer { is_authenticated: true, is_known: true, listing: Some(listing), address: None }
    }

    #[test]
    fn what_a_peer_is_decides_whether_it_is_exempt() {
        use Reason::{Client, ExemptRelay, NoneExempt, NotFast, NotStable, Unlisted};

        let client = Peer::default();
        let bridge = Peer { is_authenticated: true, ..client };
        let dropped = Peer { is_known: true, ..bridge };
        let all = [
            client,
            bridge,
            dropped,
            relay(false, false, None),
            relay(false, true, None),
            relay(true, false, None),
            relay(true, true, None),
        ];
        for (exempt, expected) in [
            (
                Exempt::None,
                [Client, NoneExempt, NoneExempt, NoneExempt, NoneExempt, NoneExempt, NoneExempt],
            ),
            (
                Exempt::Listed,
                [Client, Unlisted, ExemptRelay, ExemptRelay, ExemptRelay, ExemptRelay, ExemptRelay],
            ),
            (
                Exempt::Fast,
                [Client, Unlisted, Unlisted, NotFast, NotFast, ExemptRelay, ExemptRelay],
            ),
            (
                Exempt::StableFast,
                [Client, Unlisted, Unlisted, NotFast, NotFast, NotStable, ExemptRelay],
            ),
        ] {
            let rules = rules(exempt, 0);
            for (peer, reason) in all.iter().zip(expected) {
                let decision = rules.decide(peer);
                assert_eq!(decision.reason, reason, "{exempt:?} {peer:?}");
                let bucket = (!reason.exempts()).then_some(rules.limit());
                assert_eq!(decision.bucket, bucket, "{exempt:?} {peer:?}");
            }
        }
    }

    #[test]
    fn an_exempt_address_needs_nothing_else() {
        let rules = rules(Exempt::None, 50);
        for (address, is_exempt) in [
            ("192.0.2.0", true),
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("::ffff:192.0.2.7", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
        ] {
            let peer = Peer { address: Some(address.parse().unwrap()), ..Peer::default() };
            let decision = rules.decide(&peer);
            assert_eq!(decision.reason.exempts(), is_exempt, "{address}");
            assert_eq!(decision.bucket.is_none(), is_exempt, "{address}");
        }
    }

    #[test]
    fn an_exempt_relay_gets_its_share_of_what_was_measured_and_never_less_than_clients() {
        for (percent, weight, rate, burst) in [
            (50, None, 100_000, 3_000_000),
            (50, Some(0), 100_000, 3_000_000),
            (50, Some(199_000), 100_000, 3_000_000),
            (50, Some(400_000), 200_000, 6_000_000),
            (100, Some(1_000_000), 1_000_000, 30_000_000),
            (1000, Some(u64::MAX), 2_147_483_647, 2_147_483_647),
        ] {
            let decision = rules(Exempt::Fast, percent).decide(&relay(true, true, weight));
            assert_eq!(decision.reason, Reason::ExemptRelay);
            let bucket = Bucket { rate_bytes_per_sec: rate, burst_bytes: burst };
            assert_eq!(decision.bucket, Some(bucket), "{percent} % of {weight:?}");
        }
        // A relay that is not exempt gets no share.
        let slow = relay(false, true, Some(1_000_000));
        let rules = rules(Exempt::Fast, 100);
        assert_eq!(rules.decide(&slow).bucket, Some(rules.limit()));
    }

    #[test]
    fn without_any_measured_weight_a_share_limits_no_exempt_relay() {
        let rules = rules(Exempt::Fast, 100);
        for (is_fast, bucket) in [(true, None), (false, Some(rules.limit()))] {
            let listing = Listing { is_fast, ..Listing::default() };
            let peer = Peer { listing: Some(listing), ..relay(is_fast, false, None) };
            assert_eq!(rules.decide(&peer).bucket, bucket, "{is_fast}");
        }
    }

    #[test]
    fn the_operator_reads_the_rules_without_addresses() {
        let text = rules(Exempt::StableFast, 25).to_string();
        assert_eq!(
            text,
            "100000 bytes/s each way, burst 3000000 bytes, exempt: stable-fast up to 25 % of the \
             measured weight, and 2 addresses"
        );
        let none = Rules { addresses: Vec::new(), ..rules(Exempt::None, 0) };
        assert_eq!(none.to_string(), "100000 bytes/s each way, burst 3000000 bytes, exempt: none");
    }
}
