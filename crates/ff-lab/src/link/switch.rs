//! Joins the hosts of a lab: an access link for each host and a delay for each pair.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::direction::{Direction, Link, Output, PacketCounts};

/// Index of a host, in the order in which hosts were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// One-way delays between access links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairDelays {
    /// Number of hosts.
    hosts: usize,
    /// Row by sender, column by receiver.
    delays: Vec<Duration>,
}

impl PairDelays {
    /// The same delay for all pairs.
    pub fn uniform(hosts: usize, delay: Duration) -> Self {
        Self { hosts, delays: vec![delay; hosts * hosts] }
    }

    /// Sets the delay from one host to another.
    ///
    /// # Panics
    ///
    /// If a host does not exist.
    pub fn set(&mut self, from: HostId, to: HostId, delay: Duration) {
        let index = self.index(from, to);
        self.delays[index] = delay;
    }

    /// Delay from one host to another.
    ///
    /// # Panics
    ///
    /// If a host does not exist.
    pub fn get(&self, from: HostId, to: HostId) -> Duration {
        self.delays[self.index(from, to)]
    }

    fn index(&self, from: HostId, to: HostId) -> usize {
        assert!(from.0 < self.hosts && to.0 < self.hosts, "{from:?} and {to:?} are not both hosts");
        from.0 * self.hosts + to.0
    }
}

/// A packet that has arrived at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Receiver.
    pub to: HostId,
    /// The packet.
    pub packet: P,
    /// Time of arrival, which may be before the call.
    pub due: Duration,
}

/// Counts of a host's access links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SwitchCounts {
    /// Packets that the host sent.
    pub up: PacketCounts,
    /// Packets sent to the host.
    pub down: PacketCounts,
}

/// All links of a lab at work.
///
/// Used like a [`Link`]: packets and timeouts in, in order of time; [`Switch::poll_delivery`]
/// returns arrivals in order of time. Late calls do not change times inside.
#[derive(Debug)]
pub struct Switch<P> {
    /// Two links per host: up at twice its index, down after it.
    links: Vec<Link<Addressed<P>>>,
    /// Earliest entry of each link in `wakes`.
    armed: Vec<Option<Duration>>,
    /// Delays from up links to down links.
    pairs: PairDelays,
    /// Times at which links have work.
    wakes: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Packets in flight.
    flights: BinaryHeap<Flight<P>>,
    /// Number of flights so far; of two with the same time, the older comes first.
    flown: u64,
}

/// A packet with its addresses.
#[derive(Clone, Debug)]
struct Addressed<P> {
    to: HostId,
    from: HostId,
    packet: P,
    bytes: u32,
}

/// A packet between links, or between a link and its host.
#[derive(Debug)]
struct Flight<P> {
    /// Time of arrival.
    due: Duration,
    number: u64,
    /// Whether it leaves the receiver's down link, so that it arrives at the host.
    is_last: bool,
    addressed: Addressed<P>,
}

impl<P: Clone> Switch<P> {
    /// Joins hosts with these links (up, down) and delays between them. `seed` determines
    /// everything random.
    ///
    /// # Panics
    ///
    /// If `pairs` is for another number of hosts.
    pub fn new(hosts: &[(Direction, Direction)], pairs: PairDelays, seed: u64) -> Self {
        assert_eq!(hosts.len(), pairs.hosts, "there is a delay for each pair of hosts");
        let mut seeds = ChaCha12Rng::seed_from_u64(seed);
        let directions = hosts.iter().flat_map(|(up, down)| [up, down]);
        let links = directions.map(|direction| Link::new(direction, seeds.random()));
        let links = links.collect::<Vec<_>>();
        let armed = vec![None; links.len()];
        let (wakes, flights) = (BinaryHeap::new(), BinaryHeap::new());
        let mut switch = Self { links, armed, pairs, wakes, flights, flown: 0 };
        (0..switch.links.len()).for_each(|link| switch.arm(link));
        switch
    }

    /// A host sends a packet of `bytes` bytes to another host, or to itself.
    ///
    /// # Panics
    ///
    /// If a host does not exist.
    pub fn handle_packet(
        &mut self,
        from: HostId,
        to: HostId,
        packet: P,
        bytes: u32,
        now: Duration,
    ) {
        let link = up(from);
        self.links[link].handle_packet(Addressed { from, to, packet, bytes }, bytes, now);
        self.collect(link);
    }

    /// When the host's up link is free; a packet sent earlier would only wait. `None` without a
    /// rate.
    ///
    /// # Panics
    ///
    /// If the host does not exist.
    pub fn free_at(&self, from: HostId) -> Option<Duration> {
        self.links[up(from)].free_at()
    }

    /// Next packet that has arrived by `now`, in order of time.
    pub fn poll_delivery(&mut self, now: Duration) -> Option<Delivery<P>> {
        loop {
            let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
            let due = self.flights.peek().map(|flight| flight.due);
            let is_wake = wake.is_some_and(|wake| due.is_none_or(|due| wake < due));
            if is_wake && wake? <= now {
                self.wake();
            } else if !is_wake && due? <= now {
                let Flight { due, is_last, addressed, .. } = self.flights.pop()?;
                if is_last {
                    return Some(Delivery { to: addressed.to, packet: addressed.packet, due });
                }
                self.enter_down(addressed, due);
            } else {
                return None;
            }
        }
    }

    /// Time of the next work.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
        let due = self.flights.peek().map(|flight| flight.due);
        match (wake, due) {
            (Some(wake), Some(due)) => Some(wake.min(due)),
            (wake, due) => wake.or(due),
        }
    }

    /// Counts of a host's links so far.
    ///
    /// # Panics
    ///
    /// If the host does not exist.
    pub fn counts(&self, host: HostId) -> SwitchCounts {
        let [up, down] = [up(host), down(host)].map(|link| self.links[link].counts());
        SwitchCounts { up, down }
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.pairs.hosts
    }

    /// Present delay from one host to another in an empty network, without jitter.
    ///
    /// # Panics
    ///
    /// If a host does not exist.
    pub fn base_delay(&self, from: HostId, to: HostId) -> Duration {
        let links = [up(from), down(to)].map(|link| self.links[link].base_delay());
        links[0] + self.pairs.get(from, to) + links[1]
    }

    /// Processes the next link's timeout, at its own time.
    fn wake(&mut self) {
        let Some(Reverse((at, link))) = self.wakes.pop() else { return };
        // Skip an old entry of a link that was armed for an earlier time.
        if self.armed[link] == Some(at) {
            self.armed[link] = None;
            self.links[link].handle_timeout(at);
            self.collect(link);
        }
    }

    /// A packet enters the receiver's down link.
    fn enter_down(&mut self, addressed: Addressed<P>, now: Duration) {
        let link = down(addressed.to);
        let bytes = addressed.bytes;
        self.links[link].handle_packet(addressed, bytes, now);
        self.collect(link);
    }

    /// Takes a link's results and arms it.
    fn collect(&mut self, link: usize) {
        while let Some(output) = self.links[link].poll_output() {
            let Output::Arrives { packet: addressed, at } = output else { continue };
            let is_last = link % 2 == 1;
            let delay =
                if is_last { Duration::ZERO } else { self.pairs.get(addressed.from, addressed.to) };
            self.flown += 1;
            self.flights.push(Flight { due: at + delay, number: self.flown, is_last, addressed });
        }
        self.arm(link);
    }

    /// Schedules a link's next timeout.
    fn arm(&mut self, link: usize) {
        let Some(at) = self.links[link].poll_timeout() else { return };
        if self.armed[link].is_none_or(|armed| at < armed) {
            self.armed[link] = Some(at);
            self.wakes.push(Reverse((at, link)));
        }
    }
}

/// Index of a host's up link.
fn up(host: HostId) -> usize {
    host.0 * 2
}

/// Index of a host's down link.
fn down(host: HostId) -> usize {
    host.0 * 2 + 1
}

impl<P> Ord for Flight<P> {
    /// Reversed, so that the heap's first is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl<P> PartialOrd for Flight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Flight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for Flight<P> {}

#[cfg(test)]
mod tests {
    use ff_proto::units::BytesPerSec;
    use proptest::prelude::*;

    use super::super::delay::{Delay, Jitter};
    use super::super::loss::Loss;
    use super::super::queue::QueueLimit;
    use super::super::rate::Rate;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn link(mbit: u64, delay: u64) -> Direction {
        let rate = Rate::Constant(BytesPerSec::from_mbit(mbit));
        Direction { rate, delay: Delay::constant(ms(delay)), ..Direction::default() }
    }

    fn deliveries(switch: &mut Switch<u32>, now: Duration) -> Vec<(usize, u32, Duration)> {
        let next = || switch.poll_delivery(now).map(|found| (found.to.0, found.packet, found.due));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_packet_passes_both_links_and_the_delay_of_the_pair() {
        let hosts = [(link(12, 3), link(6, 1)), (link(12, 0), link(4, 2))];
        let mut pairs = PairDelays::uniform(2, ms(20));
        pairs.set(HostId(1), HostId(0), ms(30));
        let mut switch = Switch::new(&hosts, pairs, 1);
        switch.handle_packet(HostId(0), HostId(1), 7, 1500, ms(0));
        switch.handle_packet(HostId(1), HostId(0), 8, 1500, ms(0));
        assert_eq!(switch.poll_timeout(), Some(ms(1)));
        // 1 ms up, 3, 20, then 3 ms down, 2; and 1 ms up, 30, 2 ms down, 1.
        assert_eq!(deliveries(&mut switch, ms(28)), []);
        assert_eq!(deliveries(&mut switch, ms(99)), [(1, 7, ms(29)), (0, 8, ms(34))]);
        assert_eq!(switch.poll_timeout(), None);
        assert_eq!(switch.base_delay(HostId(1), HostId(0)), ms(31));
        assert_eq!(switch.counts(HostId(0)).up.packets, 1);
    }

    #[test]
    fn senders_share_a_receivers_link() {
        let free = || (Direction::default(), Direction::default());
        let hosts = [free(), free(), (Direction::default(), link(12, 0))];
        let mut switch = Switch::new(&hosts, PairDelays::uniform(3, ms(10)), 1);
        for packet in 0..4 {
            switch.handle_packet(HostId(packet as usize % 2), HostId(2), packet, 1500, ms(0));
        }
        let due = deliveries(&mut switch, ms(99)).iter().map(|found| found.2).collect::<Vec<_>>();
        assert_eq!(due, [11, 12, 13, 14].map(ms));
    }

    proptest! {
        /// Late calls do not change times of arrival.
        #[test]
        fn asking_late_changes_nothing(
            packets in proptest::collection::vec((0usize..3, 0usize..3, 0u64..5, 40u32..1500), 1..80),
            seed in any::<u64>(),
        ) {
            let shaky = |mbit| Direction {
                queue: QueueLimit::Bytes(6000),
                loss: Loss::Independent(0.1),
                delay: Delay { base: ms(4), jitter: Jitter::Normal { sigma: ms(2) }, overtaking: true },
                ..link(mbit, 0)
            };
            let hosts = [(shaky(1), shaky(2)), (shaky(3), shaky(1)), (shaky(5), shaky(9))];
            let run = |asks_early: bool| {
                let mut switch = Switch::new(&hosts, PairDelays::uniform(3, ms(7)), seed);
                let (mut now, mut found) = (Duration::ZERO, Vec::new());
                for (number, (from, to, gap, bytes)) in (0..).zip(&packets) {
                    now += ms(*gap);
                    while let Some(due) = switch.poll_timeout().filter(|due| asks_early && *due <= now) {
                        found.extend(deliveries(&mut switch, due));
                    }
                    found.extend(deliveries(&mut switch, now));
                    switch.handle_packet(HostId(*from), HostId(*to), number, *bytes, now);
                }
                found.extend(deliveries(&mut switch, now + ms(10_000)));
                found
            };
            let early = run(true);
            prop_assert!(early.windows(2).all(|pair| pair[0].2 <= pair[1].2));
            prop_assert_eq!(early, run(false));
        }
    }
}
