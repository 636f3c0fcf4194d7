//! The messages of an exchange among measurers.

use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::units::BytesPerSec;
use zeroize::Zeroizing;

use super::{BadMessage, Begin, Bind, ExchangeSecond, Exchanged, bad, millis, printable, within};
use crate::exchange::{
    ExchangeOrder, ExchangePeer, ExchangeTotals, HostSecond, MAX_DURATION, MAX_PACKET_BYTES,
    MAX_PEERS, MIN_PACKET_BYTES, PeerFate, PeerSecond, PeerTotals,
};

/// The largest value of any count, so that sums do not overflow.
const MAX_COUNT: u64 = 1 << 40;

/// The part of an exchange for which a host must listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangePart {
    /// The highest rate that it will be asked to send; it will receive as much.
    pub rate: BytesPerSec,
    /// The length of the exchange, in seconds.
    pub duration_secs: u16,
    /// Bytes of a data packet, as UDP's payload.
    pub packet_bytes: u16,
}

impl From<&ExchangePart> for Bind {
    fn from(part: &ExchangePart) -> Self {
        Self {
            rate_bytes_per_sec: part.rate.get(),
            duration_secs: part.duration_secs.into(),
            packet_bytes: part.packet_bytes.into(),
        }
    }
}

impl TryFrom<Bind> for ExchangePart {
    type Error = BadMessage;

    fn try_from(message: Bind) -> Result<Self, BadMessage> {
        let longest = u16::try_from(MAX_DURATION.as_secs()).unwrap_or(u16::MAX);
        let sizes = MIN_PACKET_BYTES..=MAX_PACKET_BYTES;
        Ok(Self {
            rate: BytesPerSec::new(within("the rate", message.rate_bytes_per_sec, 1..)?),
            duration_secs: within("the duration", message.duration_secs, 1..=longest)?,
            packet_bytes: within("the packets' length", message.packet_bytes, sizes)?,
        })
    }
}

impl From<&ExchangeOrder> for Begin {
    fn from(order: &ExchangeOrder) -> Self {
        let peer = |peer: &ExchangePeer| super::ExchangePeer {
            index: peer.index.into(),
            address: peer.addr.to_string(),
            rate_bytes_per_sec: peer.rate.get(),
        };
        Self {
            session: order.session.to_vec(),
            key: order.key.to_vec(),
            index: order.index.into(),
            peers: order.peers.iter().map(peer).collect(),
            in_millis: millis(order.start_in),
        }
    }
}

impl Begin {
    /// The order for a host that listens with this part; the exchange checks the rest itself.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub(crate) fn order(self, part: &ExchangePart) -> Result<ExchangeOrder, BadMessage> {
        if self.peers.len() > MAX_PEERS {
            return Err(bad("the number of peers"));
        }
        // Copies remain in gRPC's buffers until it is read; at least this one is wiped.
        let key = Zeroizing::new(self.key);
        let key: [u8; 32] = key.as_slice().try_into().map_err(|_| bad("the exchange's key"))?;
        let peers = self.peers.into_iter().map(ExchangePeer::try_from);
        Ok(ExchangeOrder {
            session: self.session.try_into().map_err(|_| bad("the exchange's name"))?,
            key: Zeroizing::new(key),
            index: within("the host's index", self.index, ..)?,
            peers: peers.collect::<Result<_, _>>()?,
            rate: part.rate,
            duration: Duration::from_secs(part.duration_secs.into()),
            start_in: Duration::from_millis(self.in_millis.into()),
        })
    }
}

impl TryFrom<super::ExchangePeer> for ExchangePeer {
    type Error = BadMessage;

    fn try_from(message: super::ExchangePeer) -> Result<Self, BadMessage> {
        let addr: SocketAddr = message.address.parse().map_err(|_| bad("a peer's address"))?;
        Ok(Self {
            index: within("a peer's index", message.index, ..)?,
            addr,
            rate: BytesPerSec::new(message.rate_bytes_per_sec),
        })
    }
}

impl From<&HostSecond> for ExchangeSecond {
    fn from(second: &HostSecond) -> Self {
        let peer = |peer: &PeerSecond| super::PeerSecond {
            index: peer.index.into(),
            sent_bytes: peer.sent_bytes,
            proven_bytes: peer.proven_bytes,
            received_bytes: peer.received_bytes,
            lost_packets: peer.lost_packets,
            duplicated_packets: peer.duplicated_packets,
            reordered_packets: peer.reordered_packets,
            stale_packets: peer.stale_packets,
            false_receipts: peer.false_receipts,
            pace_bytes_per_sec: peer.pace.get(),
        };
        Self {
            second: second.second.into(),
            peers: second.peers.iter().map(peer).collect(),
            strangers: second.strangers,
        }
    }
}

impl TryFrom<ExchangeSecond> for HostSecond {
    type Error = BadMessage;

    fn try_from(message: ExchangeSecond) -> Result<Self, BadMessage> {
        if message.peers.len() > MAX_PEERS {
            return Err(bad("the number of peers"));
        }
        let count = |count| within("a count of an exchange", count, ..=MAX_COUNT);
        let peer = |peer: super::PeerSecond| {
            Ok(PeerSecond {
                index: within("a peer's index", peer.index, ..)?,
                sent_bytes: count(peer.sent_bytes)?,
                proven_bytes: count(peer.proven_bytes)?,
                received_bytes: count(peer.received_bytes)?,
                lost_packets: count(peer.lost_packets)?,
                duplicated_packets: count(peer.duplicated_packets)?,
                reordered_packets: count(peer.reordered_packets)?,
                stale_packets: count(peer.stale_packets)?,
                false_receipts: count(peer.false_receipts)?,
                pace: BytesPerSec::new(peer.pace_bytes_per_sec),
            })
        };
        Ok(Self {
            second: within("the second", message.second, ..)?,
            peers: message.peers.into_iter().map(peer).collect::<Result<_, BadMessage>>()?,
            strangers: count(message.strangers)?,
        })
    }
}

impl From<&ExchangeTotals> for Exchanged {
    fn from(totals: &ExchangeTotals) -> Self {
        let peer = |peer: &PeerTotals| super::PeerFate {
            index: peer.counts.index.into(),
            has_answered: peer.fate.has_answered,
            silences: peer.fate.silences,
            from_elsewhere: peer.fate.from_elsewhere,
        };
        Self {
            peers: totals.peers.iter().map(peer).collect(),
            cpu_micros: totals.cpu_micros,
            send_errors: totals.send_errors,
            last_send_error: totals.last_send_error.clone().unwrap_or_default(),
        }
    }
}

impl Exchanged {
    /// Checks the report of an exchange's end, whose seconds have these totals so far.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub(crate) fn complete(self, mut totals: ExchangeTotals) -> Result<ExchangeTotals, BadMessage> {
        if self.peers.len() > MAX_PEERS {
            return Err(bad("the number of peers"));
        }
        for fate in self.peers {
            let index: u8 = within("a peer's index", fate.index, ..)?;
            let total = totals.peers.iter_mut().find(|total| total.counts.index == index);
            if let Some(total) = total {
                let super::PeerFate { has_answered, silences, from_elsewhere, .. } = fate;
                total.fate = PeerFate { has_answered, silences, from_elsewhere };
            }
        }
        totals.cpu_micros = self.cpu_micros;
        totals.send_errors = self.send_errors;
        let said = printable(&self.last_send_error);
        totals.last_send_error = Some(said).filter(|said| !said.is_empty());
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> ExchangePart {
        ExchangePart { rate: BytesPerSec::from_mbit(100), duration_secs: 60, packet_bytes: 1452 }
    }

    fn begin() -> Begin {
        let peer = |index: u8| ExchangePeer {
            index,
            addr: SocketAddr::from(([192, 0, 2, index], 9230)),
            rate: BytesPerSec::from_mbit(50),
        };
        Begin::from(&ExchangeOrder {
            session: [1; 16],
            key: Zeroizing::new([2; 32]),
            index: 0,
            peers: vec![peer(1), peer(2)],
            rate: part().rate,
            duration: Duration::from_secs(60),
            start_in: Duration::from_millis(700),
        })
    }

    #[test]
    fn orders_come_through_and_what_is_out_of_bounds_is_named() {
        assert_eq!(ExchangePart::try_from(Bind::from(&part())), Ok(part()));
        let order = begin().order(&part()).expect("a good one");
        assert_eq!(Begin::from(&order), begin());
        assert_eq!((order.rate, order.duration), (part().rate, Duration::from_secs(60)));
        let binds: [fn(&mut Bind); 4] = [
            |bind| bind.rate_bytes_per_sec = 0,
            |bind| bind.duration_secs = 601,
            |bind| bind.packet_bytes = 599,
            |bind| bind.packet_bytes = 65_536 + 1452,
        ];
        for change in binds {
            let mut bind = Bind::from(&part());
            change(&mut bind);
            assert!(ExchangePart::try_from(bind).is_err());
        }
        type Change = fn(&mut Begin);
        let begins: [(&str, Change); 6] = [
            ("the exchange's name", |m| m.session.truncate(15)),
            ("the exchange's key", |m| m.key.push(0)),
            ("the host's index", |m| m.index = 256),
            ("a peer's address", |m| m.peers[0].address = "example.com:9230".to_owned()),
            ("a peer's index", |m| m.peers[1].index = 256),
            ("the number of peers", |m| m.peers = vec![m.peers[0].clone(); 65]),
        ];
        for (what, change) in begins {
            let mut message = begin();
            change(&mut message);
            assert_eq!(message.order(&part()).map(drop), Err(BadMessage { what }));
        }
    }

    #[test]
    fn seconds_and_totals_come_through() {
        let peer = PeerSecond {
            index: 3,
            sent_bytes: 9,
            proven_bytes: 8,
            received_bytes: 7,
            lost_packets: 6,
            duplicated_packets: 5,
            reordered_packets: 4,
            stale_packets: 3,
            false_receipts: 2,
            pace: BytesPerSec::new(1),
        };
        let second = HostSecond { second: 59, peers: vec![peer], strangers: 11 };
        assert_eq!(HostSecond::try_from(ExchangeSecond::from(&second)), Ok(second.clone()));
        let mut odd = ExchangeSecond::from(&second);
        odd.peers[0].received_bytes = u64::MAX;
        assert!(HostSecond::try_from(odd).is_err(), "no host receives so much");
        let mut totals = ExchangeTotals::default();
        totals.add(&second);
        let sums = totals.clone();
        totals.peers[0].fate = PeerFate { has_answered: true, silences: 1, from_elsewhere: 2 };
        (totals.send_errors, totals.last_send_error) = (1, Some("no route".to_owned()));
        let back = Exchanged::from(&totals).complete(sums).expect("good");
        assert_eq!(back.peers, totals.peers);
        assert_eq!(back.last_send_error.as_deref(), Some("no route"));
    }
}
