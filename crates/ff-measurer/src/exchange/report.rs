//! A host's counters, second by second.

use std::collections::VecDeque;

use ff_proto::units::BytesPerSec;

/// One second of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSecond {
    /// The number of the second, from 0.
    pub second: u16,
    /// Counts with each peer, in the order of the order's peers.
    pub peers: Vec<PeerSecond>,
    /// Datagrams of no peer: without a valid tag, from another address, or for another host.
    pub strangers: u64,
}

/// One second of one host with one peer. Bytes are those of UDP's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerSecond {
    /// The peer's index.
    pub index: u8,
    /// Data sent, in bytes.
    pub sent_bytes: u64,
    /// Of these, the bytes that the peer has proven to have received.
    pub proven_bytes: u64,
    /// Data received, in bytes, each packet once.
    pub received_bytes: u64,
    /// Packets sent that were not proven within a second.
    pub lost_packets: u64,
    /// Packets received again.
    pub duplicated_packets: u64,
    /// Packets received after others that were sent later.
    pub reordered_packets: u64,
    /// Packets that arrived too late to count, or whose second differs too much from ours.
    pub stale_packets: u64,
    /// Receipts that claimed packets which had not arrived.
    pub false_receipts: u64,
    /// The sending rate to it when the second is reported.
    pub pace: BytesPerSec,
}

impl PeerSecond {
    /// Adds a later second's counts, and takes over its rate.
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

/// The seconds of a host that have not been reported.
///
/// A second is reported one second after its end, when nothing more of it can be proven.
pub(super) struct Meter {
    /// The peers' indices.
    peers: Vec<u8>,
    /// Open seconds, the oldest first.
    open: VecDeque<HostSecond>,
    /// The number of the oldest open second.
    first: u16,
    seconds: u16,
}

impl Meter {
    /// A meter of `seconds` seconds with these peers.
    pub(super) fn new(peers: Vec<u8>, seconds: u16) -> Self {
        Self { peers, open: VecDeque::new(), first: 0, seconds }
    }

    /// The counters of a second with the peer at this index; `None` outside of the open seconds.
    pub(super) fn at(&mut self, second: u16, place: usize) -> Option<&mut PeerSecond> {
        self.second(second)?.peers.get_mut(place)
    }

    /// The counters of a second, if it is open.
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

    /// Closes the oldest second if it is before this one.
    pub(super) fn end(&mut self, before: u16) -> Option<HostSecond> {
        if self.first >= before.min(self.seconds) {
            return None;
        }
        let ended = self.open.pop_front().unwrap_or_else(|| self.empty(self.first));
        self.first += 1;
        Some(ended)
    }

    /// A second with counts of 0.
    fn empty(&self, second: u16) -> HostSecond {
        let peers =
            self.peers.iter().map(|index| PeerSecond { index: *index, ..Default::default() });
        HostSecond { second, peers: peers.collect(), strangers: 0 }
    }
}
