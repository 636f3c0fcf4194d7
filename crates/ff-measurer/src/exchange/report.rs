//! What a host counts, second by second.

use std::collections::VecDeque;

use ff_proto::units::BytesPerSec;

/// One second of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSecond {
    /// Seconds since the start.
    pub second: u16,
    /// The bytes exchanged with each peer, in the order's order.
    pub peers: Vec<PeerSecond>,
    /// Datagrams that were nobody's: without a valid tag, from another address, for another host.
    pub strangers: u64,
}

/// One second of one host with one peer. Bytes are those of UDP's payload, as with iPerf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerSecond {
    /// The peer.
    pub index: u8,
    /// Data sent.
    pub sent_bytes: u64,
    /// Of it, what the peer has proven to have received.
    pub proven_bytes: u64,
    /// Data received, each packet once.
    pub received_bytes: u64,
    /// Packets sent that were not proven within a second.
    pub lost_packets: u64,
    /// Packets received once more.
    pub duplicated_packets: u64,
    /// Packets received after others that were sent later.
    pub reordered_packets: u64,
    /// Packets that came too late to count, or with the number of a second far off.
    pub stale_packets: u64,
    /// Receipts by which the peer claimed what had not come.
    pub false_receipts: u64,
    /// The pace towards it when the second is reported.
    pub pace: BytesPerSec,
}

impl PeerSecond {
    /// Adds another second's counts; the pace becomes the later one's.
    pub(super) fn add(&mut self, later: &Self) {
        self.sent_bytes += later.sent_bytes;
        self.proven_bytes += later.proven_bytes;
        self.received_bytes += later.received_bytes;
        self.lost_packets += later.lost_packets;
        self.duplicated_packets += later.duplicated_packets;
        self.reordered_packets += later.reordered_packets;
        self.stale_packets += later.stale_packets;
        self.false_receipts += later.false_receipts;
        self.pace = later.pace;
    }
}

/// The seconds of a host that are not reported yet.
///
/// A second is reported one after it ended, when nothing more of it can be proven.
pub(super) struct Meter {
    /// The peers' indices.
    peers: Vec<u8>,
    /// Seconds that are open, the oldest first.
    open: VecDeque<HostSecond>,
    /// The oldest second that is open.
    first: u16,
    seconds: u16,
}

impl Meter {
    /// A meter of `seconds` seconds with these peers.
    pub(super) fn new(peers: Vec<u8>, seconds: u16) -> Self {
        Self { peers, open: VecDeque::new(), first: 0, seconds }
    }

    /// The counters of a second with the peer at this place; `None` when the second is over, or is
    /// none.
    pub(super) fn at(&mut self, second: u16, place: usize) -> Option<&mut PeerSecond> {
        self.second(second)?.peers.get_mut(place)
    }

    /// The counters of a second.
    pub(super) fn second(&mut self, second: u16) -> Option<&mut HostSecond> {
        if second >= self.seconds {
            return None;
        }
        let place = usize::from(second.checked_sub(self.first)?);
        while self.open.len() <= place {
            let next = self.first + u16::try_from(self.open.len()).ok()?;
            self.open.push_back(self.empty(next));
        }
        self.open.get_mut(place)
    }

    /// Ends the oldest second when it is before this one.
    pub(super) fn end(&mut self, before: u16) -> Option<HostSecond> {
        if self.first >= before.min(self.seconds) {
            return None;
        }
        let ended = self.open.pop_front().unwrap_or_else(|| self.empty(self.first));
        self.first += 1;
        Some(ended)
    }

    /// A second without anything.
    fn empty(&self, second: u16) -> HostSecond {
        let peers =
            self.peers.iter().map(|index| PeerSecond { index: *index, ..Default::default() });
        HostSecond { second, peers: peers.collect(), strangers: 0 }
    }
}
