//! An exchange's order for one host, and its checks.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ff_proto::units::BytesPerSec;
use zeroize::Zeroizing;

/// The shortest data packets, in bytes.
pub const MIN_PACKET_BYTES: u16 = 600;
/// The longest data packets, in bytes: they fill a link with an MTU of 9000.
pub const MAX_PACKET_BYTES: u16 = 8952;
/// The default size of data packets, in bytes: they fill a link with an MTU of 1500, with the
/// headers of IPv6 and UDP.
pub const DEFAULT_PACKET_BYTES: u16 = 1452;
/// The longest exchange.
pub const MAX_DURATION: Duration = Duration::from_secs(600);
/// The largest number of peers of a host.
pub const MAX_PEERS: usize = 64;
/// The longest time from an order to the beginning of data.
pub const MAX_START_IN: Duration = Duration::from_secs(60);

/// Where a host must listen.
#[derive(Clone, Debug)]
pub struct ExchangeBind {
    /// Its addresses, at most one of each family; peers must see its packets come from them.
    pub addrs: Vec<IpAddr>,
    /// The ports to try; the first free one is used. `0..=0` for any.
    pub ports: RangeInclusive<u16>,
    /// Bytes of a data packet, as UDP's payload.
    pub packet_bytes: u16,
}

/// One host's part in an exchange.
#[derive(Clone)]
pub struct ExchangeOrder {
    /// The exchange's id; random for each exchange.
    pub session: [u8; 16],
    /// The key shared by all hosts of the exchange.
    pub key: Zeroizing<[u8; 32]>,
    /// This host's index.
    pub index: u8,
    /// The other hosts.
    pub peers: Vec<ExchangePeer>,
    /// The highest rate of this host, to all peers together.
    pub rate: BytesPerSec,
    /// The duration of the data, in whole seconds.
    pub duration: Duration,
    /// The time from the order to the beginning of the data; all hosts should begin at the same
    /// time.
    pub start_in: Duration,
}

/// Another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangePeer {
    /// Its index.
    pub index: u8,
    /// Its listening address.
    pub addr: SocketAddr,
    /// The highest rate of this host to it, from [`pair_rates`](super::pair_rates).
    pub rate: BytesPerSec,
}

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The order or the address to listen on is not valid.
    #[error("invalid exchange: {0}")]
    BadOrder(String),
    /// No socket is available.
    #[error("cannot listen at any UDP port {ports:?} of {addr}")]
    Bind {
        /// The address.
        addr: IpAddr,
        /// The ports that were tried.
        ports: RangeInclusive<u16>,
        /// The system's error for the last port.
        source: std::io::Error,
    },
    /// An operation of this host failed.
    #[error("this host cannot exchange: {what}")]
    Host {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl ExchangeBind {
    /// Checks the values.
    pub(super) fn check(&self) -> Result<(), ExchangeError> {
        let families: BTreeSet<_> = self.addrs.iter().map(|addr| addr.is_ipv4()).collect();
        let bytes = self.packet_bytes;
        if self.addrs.is_empty() || families.len() != self.addrs.len() {
            return bad("it needs one listening address for IPv4, for IPv6, or for each");
        }
        if self.ports.is_empty() {
            return bad("the range of ports is empty");
        }
        if !(MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&bytes) {
            return bad(format!(
                "packets have {bytes} bytes; allowed: {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES}"
            ));
        }
        Ok(())
    }
}

impl ExchangeOrder {
    /// Checks that a host that listens at these addresses can and may carry it out.
    pub(super) fn check(&self, listening: &[SocketAddr]) -> Result<(), ExchangeError> {
        if self.rate.get() == 0 {
            return bad("its rate is 0");
        }
        if self.duration.as_secs() == 0 || self.duration > MAX_DURATION {
            return bad(format!("it lasts {:?}; allowed: 1 s to {MAX_DURATION:?}", self.duration));
        }
        if self.start_in > MAX_START_IN {
            return bad(format!("it begins in {:?}, later than {MAX_START_IN:?}", self.start_in));
        }
        if self.peers.is_empty() || self.peers.len() > MAX_PEERS {
            return bad(format!("it has {} peers; allowed: 1 to {MAX_PEERS}", self.peers.len()));
        }
        let (mut indices, mut addrs) = (BTreeSet::from([self.index]), BTreeSet::new());
        for peer in &self.peers {
            let ExchangePeer { index, addr, rate } = *peer;
            if !indices.insert(index) || !addrs.insert((addr.ip().to_canonical(), addr.port())) {
                return bad(format!("peer {index} at {addr} is listed twice"));
            }
            if !is_one_host(addr) || listening.contains(&addr) {
                return bad(format!("peer {index} at {addr} is not another host"));
            }
            if rate.get() == 0 {
                return bad(format!("the rate of peer {index} is 0"));
            }
            if !listening.iter().any(|own| own.is_ipv4() == addr.is_ipv4()) {
                return bad(format!(
                    "no listening address has the family of peer {index} at {addr}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether an address can be one host's: it is neither multicast, broadcast nor unspecified.
fn is_one_host(addr: SocketAddr) -> bool {
    let is_broadcast = matches!(addr.ip().to_canonical(), IpAddr::V4(ip) if ip.is_broadcast());
    let ip = addr.ip().to_canonical();
    addr.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

/// The error of an invalid order.
fn bad<T>(why: impl Into<String>) -> Result<T, ExchangeError> {
    Err(ExchangeError::BadOrder(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> ExchangeOrder {
        ExchangeOrder {
            session: [1; 16],
            key: Zeroizing::new([2; 32]),
            index: 0,
            peers: vec![peer(1, "192.0.2.1:5001"), peer(2, "192.0.2.2:5001")],
            rate: BytesPerSec::from_mbit(100),
            duration: Duration::from_secs(60),
            start_in: Duration::from_millis(500),
        }
    }

    fn peer(index: u8, addr: &str) -> ExchangePeer {
        ExchangePeer { index, addr: addr.parse().unwrap(), rate: BytesPerSec::from_mbit(50) }
    }

    #[test]
    fn orders_that_make_no_sense_are_refused_with_the_reason() {
        let own = ["192.0.2.9:5000".parse().unwrap()];
        assert!(order().check(&own).is_ok());
        type Change = fn(&mut ExchangeOrder);
        let bad: [(Change, &str); 14] = [
            (|o| o.rate = BytesPerSec::new(0), "its rate is 0"),
            (|o| o.duration = Duration::from_millis(900), "it lasts 900ms"),
            (|o| o.duration = Duration::from_secs(601), "it lasts 601s"),
            (|o| o.start_in = Duration::from_secs(61), "it begins in 61s"),
            (|o| o.peers.clear(), "it has 0 peers"),
            (|o| o.index = 2, "peer 2 at 192.0.2.2:5001 is listed twice"),
            (|o| o.peers[1] = peer(1, "192.0.2.3:1"), "peer 1 at 192.0.2.3:1 is listed twice"),
            (|o| o.peers[1] = peer(2, "[::ffff:192.0.2.1]:5001"), "is listed twice"),
            (|o| o.peers[0] = peer(1, "192.0.2.9:5000"), "is not another host"),
            (|o| o.peers[0] = peer(1, "224.0.0.1:5000"), "is not another host"),
            (|o| o.peers[0] = peer(1, "255.255.255.255:5000"), "is not another host"),
            (|o| o.peers[0] = peer(1, "192.0.2.1:0"), "is not another host"),
            (
                |o| o.peers[0] = peer(1, "[2001:db8::1]:5000"),
                "no listening address has the family of peer 1",
            ),
            (|o| o.peers[0].rate = BytesPerSec::new(0), "the rate of peer 1 is 0"),
        ];
        for (change, why) in bad {
            let mut order = order();
            change(&mut order);
            let error = order.check(&own).unwrap_err().to_string();
            assert!(error.contains(why), "{error:?} does not say {why:?}");
        }
    }
}
