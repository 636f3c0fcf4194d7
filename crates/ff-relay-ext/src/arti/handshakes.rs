//! Limits the links that are in their handshake, and chooses which one to close when there are too
//! many.
//!
//! A peer that opens a connection and sends nothing keeps its place until the handshake's time
//! limit. So a new connection never waits for a place: when there are too many, an old one is
//! closed. If the new one's host has as many as a host may have, it is the oldest of that host;
//! otherwise it is the oldest of the fullest host of the fullest network. Links that a granted
//! measurement announced are never closed for others.
//!
//! A host is an IPv4 address or an IPv6 /64; a network is an IPv4 /24 or an IPv6 /48. A customer
//! often has a whole /48, and hosters rent out dozens of addresses of one /24.
//!
//! Limit: an honest link that was not announced loses its place too, if its network is the fullest,
//! or if all networks have equally many and it has become the oldest. If its network has only this
//! link, that takes as many new connections from other networks as there are places, before its
//! handshake ends.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Limits of handshakes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeLimits {
    /// The largest number of one host.
    pub(super) per_host: usize,
    /// The largest number in total.
    pub(super) in_total: usize,
    /// Time limit from the TCP connection to the end of the link handshake.
    pub(super) time: Duration,
}

/// The links of one relay that are in their handshake.
#[derive(Debug)]
pub(super) struct Handshakes {
    limits: HandshakeLimits,
    table: Mutex<Table>,
}

/// The state that the lock protects.
#[derive(Debug, Default)]
struct Table {
    /// The networks with links that can be closed.
    networks: HashMap<IpAddr, Network>,
    /// The number of these links.
    taken: usize,
    /// The number of announced links.
    announced: usize,
    /// The number of the next place.
    next: u64,
}

/// A network with links that can be closed.
#[derive(Debug, Default)]
struct Network {
    /// The places of each host, the oldest first; each host has at least one.
    hosts: HashMap<IpAddr, VecDeque<Entry>>,
    /// The number of these places.
    taken: usize,
}

/// An occupied place.
#[derive(Debug)]
struct Entry {
    /// Its number; older places have lower numbers.
    number: u64,
    /// Dropped to tell the link to close.
    _stay: oneshot::Sender<()>,
}

/// A link's place among the handshakes; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    handshakes: Arc<Handshakes>,
    /// How it can be lost; `None` for an announced link.
    seat: Option<Seat>,
}

/// A place that can be lost.
#[derive(Debug)]
struct Seat {
    host: IpAddr,
    number: u64,
    /// Ends when the link must close.
    stay: oneshot::Receiver<()>,
}

impl Handshakes {
    /// No handshakes yet.
    pub(super) fn new(limits: HandshakeLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// A place for a link from this address; another link may be closed for it.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Place {
        let host = host_of(from);
        let mut table = self.lock();
        if table.of_host(host) >= self.limits.per_host {
            table.remove_oldest(host);
        } else {
            table.make_room(self.limits.in_total);
        }
        let (sender, stay) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.add(host, Entry { number, _stay: sender });
        drop(table);
        Place { handshakes: Arc::clone(self), seat: Some(Seat { host, number, stay }) }
    }

    /// A place for a link that a granted measurement announced; it is never closed for another.
    ///
    /// There are at most as many of these as the measurement has sockets, which the operator
    /// limits. They count towards the total, but get a place even if they alone reach it.
    pub(super) fn enter_announced(self: &Arc<Self>) -> Place {
        let mut table = self.lock();
        table.make_room(self.limits.in_total);
        table.announced += 1;
        drop(table);
        Place { handshakes: Arc::clone(self), seat: None }
    }

    /// Closes one link, as when there are too many; `false` if there is none that can be closed.
    pub(super) fn make_room(&self) -> bool {
        self.lock().remove_one()
    }

    /// Locks the table, also after a panic: it is always consistent.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The number of a host's places that can be lost.
    fn of_host(&self, host: IpAddr) -> usize {
        let network = self.networks.get(&network_of(host));
        network.and_then(|network| network.hosts.get(&host)).map_or(0, VecDeque::len)
    }

    /// Adds a host's newest place.
    fn add(&mut self, host: IpAddr, entry: Entry) {
        let network = self.networks.entry(network_of(host)).or_default();
        network.hosts.entry(host).or_default().push_back(entry);
        network.taken += 1;
        self.taken += 1;
    }

    /// Removes a place if all are occupied.
    fn make_room(&mut self, in_total: usize) {
        if self.taken + self.announced >= in_total {
            self.remove_one();
        }
    }

    /// Removes the oldest place of the fullest host of the fullest network; of equally full ones,
    /// the one with the oldest place.
    fn remove_one(&mut self) -> bool {
        let fullest = self.networks.values().max_by_key(|network| network.rank());
        let host = fullest.and_then(Network::fullest_host);
        host.is_some_and(|host| self.remove_oldest(host))
    }

    /// Removes the oldest place of a host.
    fn remove_oldest(&mut self, host: IpAddr) -> bool {
        let network = self.networks.get(&network_of(host));
        let places = network.and_then(|network| network.hosts.get(&host));
        let number = places.and_then(oldest);
        number.is_some_and(|number| self.remove(host, number))
    }

    /// Removes a place if it still exists.
    fn remove(&mut self, host: IpAddr, number: u64) -> bool {
        let network_id = network_of(host);
        let Some(network) = self.networks.get_mut(&network_id) else { return false };
        let Some(places) = network.hosts.get_mut(&host) else { return false };
        let Ok(index) = places.binary_search_by_key(&number, |entry| entry.number) else {
            return false;
        };
        places.remove(index);
        if places.is_empty() {
            network.hosts.remove(&host);
        }
        network.taken -= 1;
        if network.taken == 0 {
            self.networks.remove(&network_id);
        }
        self.taken -= 1;
        true
    }
}

impl Network {
    /// The network with the greatest rank loses a place first.
    fn rank(&self) -> (usize, Reverse<Option<u64>>) {
        (self.taken, Reverse(self.hosts.values().filter_map(oldest).min()))
    }

    /// The host with the most places.
    fn fullest_host(&self) -> Option<IpAddr> {
        let rank = |places: &VecDeque<Entry>| (places.len(), Reverse(oldest(places)));
        let fullest = self.hosts.iter().max_by_key(|(_, places)| rank(places));
        fullest.map(|(&host, _)| host)
    }
}

/// The number of the oldest of a host's places.
fn oldest(places: &VecDeque<Entry>) -> Option<u64> {
    places.front().map(|entry| entry.number)
}

impl Place {
    /// The time limit of the handshake.
    pub(super) fn time(&self) -> Duration {
        self.handshakes.limits.time
    }

    /// Waits until the link must close.
    pub(super) async fn lost(&mut self) {
        match &mut self.seat {
            // Nothing is ever sent: the sender is dropped.
            Some(seat) => drop((&mut seat.stay).await),
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.handshakes.lock();
        match &self.seat {
            Some(seat) => drop(table.remove(seat.host, seat.number)),
            None => table.announced -= 1,
        }
    }
}

/// The address that stands for a host.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => prefix(v6, 64),
        v4 => v4,
    }
}

/// The address that stands for a network.
fn network_of(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V6(v6) => prefix(v6, 48),
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8).into(),
    }
}

/// The first address with the same prefix; `bits` must be from 1 to 128.
fn prefix(address: Ipv6Addr, bits: u32) -> IpAddr {
    let others = 128 - bits;
    Ipv6Addr::from_bits(address.to_bits() >> others << others).into()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    /// Handshakes with room for 8 in total and 4 per host.
    fn handshakes() -> Arc<Handshakes> {
        let time = Duration::from_secs(10);
        Handshakes::new(HandshakeLimits { per_host: 4, in_total: 8, time })
    }

    /// Whether each of these must close.
    fn lost(places: &mut [Place]) -> Vec<bool> {
        let is_lost = |place: &mut Place| match &mut place.seat {
            Some(seat) => seat.stay.try_recv() == Err(TryRecvError::Closed),
            None => place.lost().now_or_never().is_some(),
        };
        places.iter_mut().map(is_lost).collect()
    }

    /// The number of places, and of those for announced links.
    fn taken(handshakes: &Handshakes) -> (usize, usize) {
        let table = handshakes.lock();
        (table.taken, table.announced)
    }

    fn enter(handshakes: &Arc<Handshakes>, from: &str) -> Place {
        handshakes.enter(from.parse().expect("an address"))
    }

    #[test]
    fn a_host_that_has_all_of_its_places_loses_its_oldest() {
        let handshakes = handshakes();
        // One host can use a whole /64.
        let mut many: Vec<_> =
            (0..6).map(|n| enter(&handshakes, &format!("2001:db8::{n}"))).collect();
        let mut other = [enter(&handshakes, "2001:db8:0:1::1")];
        assert_eq!(lost(&mut many), [true, true, false, false, false, false]);
        assert_eq!(lost(&mut other), [false]);
        assert_eq!(handshakes.lock().taken, 5);
    }

    #[test]
    fn whoever_has_the_most_makes_room_and_then_the_oldest() {
        let handshakes = handshakes();
        let mut early = [enter(&handshakes, "192.0.2.1")];
        let mut many: Vec<_> = (0..4).map(|_| enter(&handshakes, "::ffff:192.0.2.2")).collect();
        let mut others: Vec<_> =
            (3..9).map(|n| enter(&handshakes, &format!("192.0.2.{n}"))).collect();
        // Three more than there is room for.
        assert_eq!(lost(&mut many), [true, true, true, false]);
        assert_eq!((lost(&mut early), lost(&mut others)), (vec![false], vec![false; 6]));
        let mut late = [enter(&handshakes, "198.51.100.1")];
        assert_eq!((lost(&mut early), lost(&mut late)), (vec![true], vec![false]));
        // The other network has two hosts with one link each; this one has seven, then six, then
        // five.
        let mut later = [enter(&handshakes, "198.51.100.2"), enter(&handshakes, "203.0.113.1")];
        assert_eq!((lost(&mut late), lost(&mut later)), (vec![false], vec![false; 2]));
        assert_eq!(lost(&mut many), [true; 4]);
        assert_eq!(lost(&mut others), [true, false, false, false, false, false]);
    }

    #[test]
    fn places_are_free_again_when_their_links_are_open_or_gone() {
        let handshakes = handshakes();
        for _ in 0..3 {
            let mut places: Vec<_> =
                (0..20).map(|n| enter(&handshakes, &format!("192.0.2.{}", n % 5))).collect();
            assert_eq!(lost(&mut places).iter().filter(|is_lost| !**is_lost).count(), 8);
            drop(places);
            let table = handshakes.lock();
            assert_eq!((table.taken, table.networks.len()), (0, 0));
        }
        assert!(!handshakes.make_room());
        let mut last = [enter(&handshakes, "192.0.2.1")];
        assert!(handshakes.make_room());
        assert_eq!(lost(&mut last), [true]);
    }

    #[test]
    fn announced_links_make_no_room_and_the_others_share_what_is_left() {
        let handshakes = handshakes();
        let mut others: Vec<_> =
            (0..8).map(|n| enter(&handshakes, &format!("192.0.2.{n}"))).collect();
        let mut announced: Vec<_> = (0..10).map(|_| handshakes.enter_announced()).collect();
        assert_eq!((lost(&mut others), lost(&mut announced)), (vec![true; 8], vec![false; 10]));
        assert!(!handshakes.make_room());
        // More of them than there are places, and still one place for all others.
        for _ in 0..3 {
            others.push(enter(&handshakes, "198.51.100.1"));
        }
        assert_eq!(lost(&mut others[8..]), [true, true, false]);
        assert_eq!(lost(&mut announced), [false; 10]);
        drop((announced, others));
        assert_eq!(taken(&handshakes), (0, 0));
    }

    /// How many of a measurer's 512 links from one host have a place at the end, if 2,048 idle
    /// links from these hosts, in turn, come before them, one after each of them, and 2,048 after
    /// them.
    fn left_of_burst(is_announced: bool, idle_hosts: &[IpAddr]) -> usize {
        let time = Duration::from_secs(10);
        let handshakes = Handshakes::new(HandshakeLimits { per_host: 768, in_total: 2048, time });
        let mut hosts = idle_hosts.iter().cycle();
        let mut enter_idle = |count| -> Vec<_> {
            hosts.by_ref().take(count).map(|&host| handshakes.enter(host)).collect()
        };
        let mut idle = enter_idle(2048);
        let mut burst = Vec::new();
        for _ in 0..512 {
            burst.push(if is_announced {
                handshakes.enter_announced()
            } else {
                enter(&handshakes, "2001:db8:ffff::1")
            });
            idle.extend(enter_idle(1));
        }
        idle.extend(enter_idle(2048));
        let (others, announced) = taken(&handshakes);
        assert_eq!(others + announced, 2048);
        lost(&mut burst).iter().filter(|is_lost| !**is_lost).count()
    }

    #[test]
    fn a_measurers_burst_keeps_its_places_amid_idle_links() {
        let v6 = |bits: u32| {
            let base: Ipv6Addr = "3fff::".parse().expect("an address");
            (0..2048_u128).map(move |n| Ipv6Addr::from_bits(base.to_bits() + (n << bits)).into())
        };
        let hosts_of_one_network: Vec<IpAddr> = v6(64).collect();
        let networks: Vec<IpAddr> = v6(80).collect();
        let one_network: Vec<IpAddr> = (0..20).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        let twenty_networks: Vec<IpAddr> = (0..20).map(|n| IpAddr::from([10, 0, n, 1])).collect();
        for (hosts, unannounced) in
            [(hosts_of_one_network, 512), (networks, 0), (one_network, 512), (twenty_networks, 97)]
        {
            assert_eq!(left_of_burst(true, &hosts), 512, "{} hosts", hosts.len());
            assert_eq!(left_of_burst(false, &hosts), unannounced, "{} hosts", hosts.len());
        }
    }

    proptest::proptest! {
        /// A failing order is printed, with its seed.
        #[test]
        fn no_order_takes_more_places_than_there_are(
            steps in proptest::collection::vec((0..6_u8, 0..3_u8, 0..4_usize), 0..200),
        ) {
            let handshakes = handshakes();
            let mut places = VecDeque::new();
            for (host, network, kept) in steps {
                let is_announced = (host, network) == (0, 0);
                places.push_back(match is_announced {
                    true => handshakes.enter_announced(),
                    false => handshakes.enter(IpAddr::from([192, 0, network, host])),
                });
                let newest = places.back_mut().expect("one was added");
                proptest::prop_assert!(newest.lost().now_or_never().is_none());
                if kept == 0 {
                    places.pop_front();
                }
                let table = handshakes.lock();
                for network in table.networks.values() {
                    let lengths: Vec<_> = network.hosts.values().map(VecDeque::len).collect();
                    proptest::prop_assert_eq!(lengths.iter().sum::<usize>(), network.taken);
                    proptest::prop_assert!(lengths.iter().all(|len| (1..=4).contains(len)));
                }
                let taken: usize = table.networks.values().map(|network| network.taken).sum();
                proptest::prop_assert_eq!(taken, table.taken);
                proptest::prop_assert!(taken <= 8_usize.saturating_sub(table.announced).max(1));
            }
        }
    }
}
