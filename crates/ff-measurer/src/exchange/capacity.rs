//! Computes the capacity of a measurer's network from the reports of all measurers.
//!
//! The bytes carried from A to B in a second are the lesser of those that A has proof for and those
//! that B reports as received. So a host cannot raise its own capacity by a false report of sent or
//! received bytes. Both count by their own clocks, so it cannot do so by moving bytes between
//! seconds either.

use std::collections::BTreeMap;
use std::ops::Range;

use ff_proto::units::BytesPerSec;

use super::report::{HostSecond, PeerSecond};

/// Seconds left out at the beginning, in which the rate doubles until it is full.
pub const WARM_UP_SECS: u16 = 2;

/// A host is lossy if one in this number of its seconds is, or more.
const LOSSY_PART: usize = 10;
/// Loss above which a second is lossy, in thousandths.
const LOSS_BOUND_PERMILLE: u16 = 10;

/// The reports of all measurers of a session, by their indices.
pub type Said = BTreeMap<u8, Vec<HostSecond>>;

/// The capacity of one measurer's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The median over the seconds of the lesser of the bytes sent to and received from all peers
    /// together.
    pub rate: BytesPerSec,
    /// The median of the bytes sent that arrived.
    pub sent: BytesPerSec,
    /// The median of the bytes received.
    pub received: BytesPerSec,
    /// The part of the data sent to it and by it that did not arrive, in thousandths.
    pub loss_permille: u16,
    /// Whether in a tenth of the seconds, or more, a flow to or from it lost more than 1 %: then
    /// the sending rate was above the path's capacity, and `rate` is the part that arrived.
    pub is_lossy: bool,
    /// The peer with the greatest loss to or from it, and this loss in thousandths.
    pub worst_peer: Option<(u8, u16)>,
    /// The number of seconds used.
    pub seconds: u16,
}

/// The capacity of a host's network over these seconds; a second that a host did not report counts
/// as 0 bytes. `None` when there are no seconds.
///
/// Of 60 seconds, use [`WARM_UP_SECS`]`..60`.
#[must_use]
pub fn capacity(host: u8, said: &Said, seconds: Range<u16>) -> Option<Capacity> {
    let table = Table::new(said);
    let (mut both, mut sent, mut received) = (Vec::new(), Vec::new(), Vec::new());
    let mut losses = BTreeMap::<u8, Loss>::new();
    let mut lossy_seconds = 0_usize;
    for second in seconds.clone() {
        let (mut out_bytes, mut in_bytes, mut is_lossy) = (0_u64, 0_u64, false);
        for peer in said.keys().copied().filter(|peer| *peer != host) {
            let (out, back) = (table.flow(host, peer, second), table.flow(peer, host, second));
            out_bytes = out_bytes.saturating_add(out.carried());
            in_bytes = in_bytes.saturating_add(back.carried());
            let loss = losses.entry(peer).or_default();
            loss.to.add(out);
            loss.from.add(back);
            is_lossy |= Loss { to: out, from: back }.worst() > LOSS_BOUND_PERMILLE;
        }
        lossy_seconds += usize::from(is_lossy);
        both.push(out_bytes.min(in_bytes));
        sent.push(out_bytes);
        received.push(in_bytes);
    }
    let flows = || losses.values().flat_map(|loss| [loss.to, loss.from]);
    let sum =
        |count: fn(&Flow) -> u64| flows().fold(0_u64, |sum, flow| sum.saturating_add(count(&flow)));
    let loss_permille = permille(sum(Flow::lost), sum(|flow| flow.sent));
    let worst = losses.iter().map(|(peer, loss)| (*peer, loss.worst())).max_by_key(|worst| worst.1);
    Some(Capacity {
        rate: median(both)?,
        sent: median(sent)?,
        received: median(received)?,
        loss_permille,
        is_lossy: lossy_seconds * LOSSY_PART >= seconds.len(),
        worst_peer: worst.filter(|(_, permille)| *permille > 0),
        seconds: seconds.end.saturating_sub(seconds.start),
    })
}

/// The median; of an even number, the lesser middle one, because the result must be a lower bound.
fn median(mut bytes: Vec<u64>) -> Option<BytesPerSec> {
    bytes.sort_unstable();
    bytes.get(bytes.len().checked_sub(1)? / 2).copied().map(BytesPerSec::new)
}

/// Bytes from one host to another.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Bytes that the sender reports as sent.
    sent: u64,
    /// Of these, the bytes that the sender has proof for.
    proven: u64,
    received: u64,
}

impl Flow {
    fn add(&mut self, more: Self) {
        self.sent = self.sent.saturating_add(more.sent);
        self.proven = self.proven.saturating_add(more.proven);
        self.received = self.received.saturating_add(more.received);
    }

    /// Bytes that arrived according to both.
    fn carried(self) -> u64 {
        self.sent.min(self.proven).min(self.received)
    }

    /// Sent bytes without proof. The receiver's report is not used, because it is of its own
    /// seconds, and the last packets of a second arrive in the next.
    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.proven)
    }

    /// The lost part in thousandths.
    fn loss_permille(self) -> u16 {
        permille(self.lost(), self.sent)
    }
}

/// A part of the whole in thousandths.
fn permille(part: u64, whole: u64) -> u16 {
    u16::try_from(u128::from(part) * 1000 / u128::from(whole.max(1))).unwrap_or(1000)
}

/// A peer's losses.
#[derive(Clone, Copy, Default)]
struct Loss {
    /// On the way to it.
    to: Flow,
    /// On the way from it.
    from: Flow,
}

impl Loss {
    /// The greater of the two, in thousandths.
    fn worst(&self) -> u16 {
        self.to.loss_permille().max(self.from.loss_permille())
    }
}

/// Reports by second, host and peer; of two for the same, the first counts.
struct Table<'a>(BTreeMap<(u16, u8, u8), &'a PeerSecond>);

impl<'a> Table<'a> {
    /// Sorts the reports.
    fn new(said: &'a Said) -> Self {
        let mut table = BTreeMap::new();
        for (host, seconds) in said {
            for second in seconds {
                for peer in &second.peers {
                    table.entry((second.second, *host, peer.index)).or_insert(peer);
                }
            }
        }
        Self(table)
    }

    /// The flow from one host to another in a second.
    fn flow(&self, from: u8, to: u8, second: u16) -> Flow {
        let sender = self.0.get(&(second, from, to));
        let receiver = self.0.get(&(second, to, from));
        let received = receiver.map_or(0, |receiver| receiver.received_bytes);
        let (sent, proven) = sender.map_or((0, 0), |said| (said.sent_bytes, said.proven_bytes));
        Flow { sent, proven, received }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A second in which a host reports these bytes as sent, proven and received.
    fn second(second: u16, peers: &[(u8, u64, u64, u64)]) -> HostSecond {
        let peer = |&(index, sent_bytes, proven_bytes, received_bytes): &_| PeerSecond {
            index,
            sent_bytes,
            proven_bytes,
            received_bytes,
            ..Default::default()
        };
        HostSecond { second, peers: peers.iter().map(peer).collect(), strangers: 0 }
    }

    #[test]
    fn the_median_of_the_lesser_of_the_sums_counts() {
        let mut said = Said::new();
        for (at, back) in [(0, 100), (1, 500), (2, 300), (3, 200)] {
            said.entry(0).or_default().push(second(at, &[(1, 400, 390, back), (2, 100, 100, 50)]));
            said.entry(1).or_default().push(second(at, &[(0, back, back, 395)]));
            said.entry(2).or_default().push(second(at, &[(0, 50, 50, 80)]));
        }
        // Sent 390 + 80 in each second; received 150, 550, 350, 250.
        let capacity = capacity(0, &said, 0..4).unwrap();
        assert_eq!(capacity.rate, BytesPerSec::new(250), "of 150, 250, 350 and 470");
        assert_eq!(
            (capacity.sent, capacity.received),
            (BytesPerSec::new(470), BytesPerSec::new(250))
        );
        assert_eq!((capacity.worst_peer, capacity.is_lossy), (Some((1, 25)), true));
        assert_eq!(capacity.loss_permille, 12, "40 of 3300 bytes");
        assert_eq!(super::capacity(0, &said, 1..4).unwrap().rate, BytesPerSec::new(350));
    }

    #[test]
    fn who_says_nothing_carries_nothing() {
        let said = Said::from([(0, vec![second(0, &[(1, 9, 9, 9)])])]);
        assert_eq!(capacity(0, &said, 0..1).unwrap().rate, BytesPerSec::new(0));
        assert_eq!(capacity(7, &said, 0..3).unwrap().rate, BytesPerSec::new(0));
        assert_eq!(capacity(0, &said, 3..3), None);
    }

    proptest! {
        #[test]
        fn a_host_that_says_anything_at_all_gains_nothing(
            honest in proptest::collection::vec((1_u64..1000, 1_u64..1000), 1..20),
            lies in proptest::collection::vec(
                (0_u16..25, any::<u64>(), any::<u64>(), any::<u64>(), any::<u8>()), 0..60),
        ) {
            let seconds = u16::try_from(honest.len()).unwrap();
            let (mut said, mut told) = (Said::new(), Said::new());
            for (at, (out, back)) in (0..).zip(honest) {
                // The bytes that really arrived in both directions; host 0 lies, host 1 is honest.
                said.entry(0).or_default().push(second(at, &[(1, out, out, back)]));
                told.entry(1).or_default().push(second(at, &[(0, back, back, out)]));
            }
            said.extend(told.clone());
            told.insert(0, lies.iter().map(|&(at, a, b, c, peer)| {
                second(at, &[(1, a, b, c), (1, c, a, b), (0, a, b, c), (peer, b, c, a)])
            }).collect());
            let truth = capacity(0, &said, 0..seconds).unwrap();
            let lie = capacity(0, &told, 0..seconds).unwrap();
            prop_assert!(lie.rate <= truth.rate && lie.sent <= truth.sent, "{lie:?} of {truth:?}");
            // Nor does the lie raise the rate of host 1.
            prop_assert!(capacity(1, &told, 0..seconds).unwrap().rate <= capacity(1, &said, 0..seconds).unwrap().rate);
        }
    }
}
