//! Measuring the measurers (FlashFlow, §4.2): all of a team exchange UDP with all others at once.
//!
//! ```text
//!   Partner ─▶ describe, Bind ─▶ Listening ─▶ pairs() ─▶ Begin ─▶ seconds ─▶ judge() ─▶ Carried
//!                 carry_out.rs                here       carry_out.rs        here
//! ```
//!
//! Who is not there, or falls out, is named, and the others are measured without it.

mod carry_out;

use std::net::SocketAddr;

use ff_measurer::exchange::{
    ExchangePeer, ExchangeTotals, HostSecond, MAX_PEERS, Said, WARM_UP_SECS, capacity, pair_rates,
};
use ff_plan::period::carried::Carried;
use ff_proto::units::BytesPerSec;

pub use self::carry_out::{Partner, exchange};

/// The paper's 60 seconds.
pub const EXCHANGE_SECS: u16 = 60;
/// The shortest exchange that shows anything: the pace still grows in the first seconds.
pub const MIN_EXCHANGE_SECS: u16 = WARM_UP_SECS + 1;

/// A measurer's capacity in an exchange, or why it was not measured.
pub type Found = Result<Carried, String>;

/// Whom each measurer exchanges with, and how fast: all that listen by the same kind of IP address.
///
/// A measurer that does not listen is `None`. What each may send is divided among the others fairly
/// ([`pair_rates`]); of more than [`MAX_PEERS`]` + 1` the last have no partners.
fn pairs(listening: &[Option<(SocketAddr, BytesPerSec)>]) -> Vec<Vec<ExchangePeer>> {
    let mut peers = vec![Vec::new(); listening.len()];
    for is_ipv4 in [true, false] {
        let hosts: Vec<(u8, SocketAddr, BytesPerSec)> = (0_u8..=u8::MAX)
            .zip(listening)
            .filter_map(|(index, host)| host.map(|(addr, rate)| (index, addr, rate)))
            .filter(|(_, addr, _)| addr.is_ipv4() == is_ipv4)
            .take(MAX_PEERS + 1)
            .collect();
        let rates = pair_rates(&hosts.iter().map(|(_, _, rate)| *rate).collect::<Vec<_>>());
        for (&(index, ..), row) in hosts.iter().zip(rates) {
            let peer = |(&(index, addr, _), rate)| ExchangePeer { index, addr, rate };
            let row = hosts.iter().zip(row).map(peer).filter(|peer| peer.rate.get() > 0);
            peers[usize::from(index)] = row.collect();
        }
    }
    peers
}

/// A measurer's report of a complete exchange.
struct Told {
    /// The seconds of the exchange.
    seconds: Vec<HostSecond>,
    /// The totals of its peers.
    totals: ExchangeTotals,
}

impl Told {
    /// The problem in the exchange with a peer, if any.
    fn trouble(&self, index: u8) -> Option<&'static str> {
        let peer = self.totals.peers.iter().find(|peer| peer.counts.index == index);
        peer.map_or(Some("the measurer did not report on its peer"), |peer| peer.trouble())
    }
}

/// What each measurer's network carries, by these pairs of this many seconds and what they told;
/// those that told nothing have their reason.
fn judge(pairs: &[Vec<ExchangePeer>], told: Vec<Result<Told, String>>, secs: u16) -> Vec<Found> {
    let of = |index: u8| told.get(usize::from(index)).and_then(|told| told.as_ref().ok());
    let said: Said = (0_u8..=u8::MAX)
        .zip(&told)
        .filter_map(|(index, told)| Some((index, told.as_ref().ok()?.seconds.clone())))
        .collect();
    let trouble = |one: u8, other: u8| match (of(one), of(other)) {
        (Some(of_one), Some(of_other)) => of_one.trouble(other).or_else(|| of_other.trouble(one)),
        _ => Some("its peer failed"),
    };
    let found = |(index, told): (u8, &Result<Told, String>)| -> Found {
        told.as_ref().map_err(String::clone)?;
        let peers = pairs.get(usize::from(index)).map_or(&[][..], Vec::as_slice);
        // An attempt with a peer that did not respond says nothing about this measurer.
        let there = peers.iter().filter(|peer| trouble(index, peer.index).is_none());
        let tested = there.map(|peer| peer.rate).sum::<BytesPerSec>();
        if tested.get() == 0 {
            let first = peers.first().and_then(|peer| trouble(index, peer.index));
            return Err(format!("nothing was exchanged: {}", first.unwrap_or("it has no peer")));
        }
        let measured = capacity(index, &said, WARM_UP_SECS..secs);
        let measured = measured.ok_or("the exchange was too short")?;
        Ok(Carried {
            rate: measured.rate,
            sent: measured.sent,
            received: measured.received,
            tested,
            loss_permille: measured.loss_permille,
        })
    };
    (0_u8..=u8::MAX).zip(&told).map(found).collect()
}

#[cfg(test)]
mod tests {
    use ff_measurer::exchange::{PeerFate, PeerSecond, PeerTotals};

    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn host(text: &str, rate: u64) -> Option<(SocketAddr, BytesPerSec)> {
        Some((addr(text), BytesPerSec::new(rate)))
    }

    /// The report of a host that exchanged these rates with each of these peers.
    fn told(secs: u16, peers: &[(u8, u64)]) -> Result<Told, String> {
        let second = |second| HostSecond {
            second,
            peers: peers.iter().map(|&(index, bytes)| counts(index, bytes)).collect(),
            strangers: 0,
        };
        let fate = |bytes| PeerFate { has_answered: bytes > 0, ..PeerFate::default() };
        let total =
            |&(index, bytes)| PeerTotals { counts: counts(index, bytes), fate: fate(bytes) };
        let totals =
            ExchangeTotals { peers: peers.iter().map(total).collect(), ..Default::default() };
        Ok(Told { seconds: (0..secs).map(second).collect(), totals })
    }

    fn counts(index: u8, bytes: u64) -> PeerSecond {
        PeerSecond {
            index,
            sent_bytes: bytes,
            proven_bytes: bytes,
            received_bytes: bytes,
            ..Default::default()
        }
    }

    #[test]
    fn everybody_exchanges_with_everybody_of_its_kind() {
        let listening = [
            host("192.0.2.1:1", 100),
            None,
            host("192.0.2.2:1", 50),
            host("[2001:db8::1]:1", 100),
            host("192.0.2.3:1", 100),
        ];
        let pairs = pairs(&listening);
        let of = |index: usize| {
            pairs[index].iter().map(|peer| (peer.index, peer.rate.get())).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [(2, 25), (4, 75)]);
        assert_eq!(of(2), [(0, 25), (4, 25)]);
        assert!(of(1).is_empty() && of(3).is_empty(), "they have no partner");
        assert_eq!(pairs[4][1].addr, addr("192.0.2.2:1"));
        let many = vec![host("192.0.2.1:1", 1_000_000); 80];
        let many = super::pairs(&many);
        assert!(many[..65].iter().all(|peers| peers.len() == 64) && many[65].is_empty());
    }

    #[test]
    fn who_falls_out_takes_nothing_from_the_others() {
        let listening = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(|text| host(text, 100));
        let pairs = pairs(&listening);
        let all = vec![
            told(5, &[(1, 50), (2, 30)]),
            told(5, &[(0, 50), (2, 50)]),
            told(5, &[(0, 30), (1, 50)]),
        ];
        let found = judge(&pairs, all, 5);
        let rates = |found: &[Found]| {
            let both = |one: &Found| one.as_ref().ok().map(|of| (of.rate.get(), of.tested.get()));
            found.iter().map(both).collect::<Vec<_>>()
        };
        assert_eq!(rates(&found), [Some((80, 100)), Some((100, 100)), Some((80, 100))]);
        let lost = vec![
            told(5, &[(1, 50), (2, 30)]),
            told(5, &[(0, 50), (2, 50)]),
            Err("it was cut off".to_owned()),
        ];
        let found = judge(&pairs, lost, 5);
        assert_eq!(rates(&found), [Some((50, 50)), Some((50, 50)), None]);
        assert_eq!(found[2], Err("it was cut off".to_owned()));
        // Between the first and the last there is a wall.
        let wall = vec![
            told(5, &[(1, 50), (2, 0)]),
            told(5, &[(0, 50), (2, 0)]),
            told(5, &[(0, 0), (1, 0)]),
        ];
        let found = judge(&pairs, wall, 5);
        assert_eq!(rates(&found), [Some((50, 50)), Some((50, 50)), None]);
        let why = found[2].as_ref().expect_err("it reached nobody");
        assert!(why.contains("firewalls allow UDP"), "{why}");
    }
}
