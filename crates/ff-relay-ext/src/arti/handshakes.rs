//! The links that are in their handshake: how many there may be, and which makes room for another.
//!
//! Whoever opens a connection and says nothing keeps a place until the handshake's deadline. So a
//! new connection never waits for a place. When there are too many, the oldest one is closed: of
//! its own host if that has as many as a host may have, else of the host that has the most. A peer
//! that answers is done long before its connection is the oldest.
//!
//! A host is an IPv4 address, or a /64 of IPv6: whoever has one address of it has all.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// What handshakes are allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeLimits {
    /// How many one host may have at once.
    pub(super) per_host: usize,
    /// How many there may be at once.
    pub(super) in_total: usize,
    /// How long each may take, from the TCP connection to the finished link handshake.
    pub(super) time: Duration,
}

/// The links of one relay that are in their handshake.
#[derive(Debug)]
pub(super) struct Handshakes {
    /// What is allowed.
    limits: HandshakeLimits,
    /// Who is there.
    table: Mutex<Table>,
}

/// What the lock guards.
#[derive(Debug, Default)]
struct Table {
    /// The places of each host, the oldest first. No host has none.
    hosts: HashMap<IpAddr, VecDeque<Entry>>,
    /// How many places are taken.
    taken: usize,
    /// The number of the next place.
    next: u64,
}

/// A place that is taken.
#[derive(Debug)]
struct Entry {
    /// Its number; older ones have lower numbers.
    number: u64,
    /// Dropped to tell the link that it is to make room.
    _stay: oneshot::Sender<()>,
}

/// A link's place among the handshakes, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    /// Where it is.
    handshakes: Arc<Handshakes>,
    /// Whose it is.
    host: IpAddr,
    /// Its number.
    number: u64,
    /// Ends when the link is to make room.
    stay: oneshot::Receiver<()>,
}

impl Handshakes {
    /// No handshakes yet.
    pub(super) fn new(limits: HandshakeLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// A place for a link from this address, for which another may have to make room.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Place {
        let host = host_of(from);
        let mut table = self.lock();
        let of_host = table.hosts.get(&host).map_or(0, VecDeque::len);
        if of_host >= self.limits.per_host {
            table.remove_oldest(host);
        } else if table.taken >= self.limits.in_total {
            table.remove_one();
        }
        let (stay, is_over) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.taken += 1;
        table.hosts.entry(host).or_default().push_back(Entry { number, _stay: stay });
        drop(table);
        Place { handshakes: Arc::clone(self), host, number, stay: is_over }
    }

    /// Has one link make room, as when there are too many; `false` if there is none.
    pub(super) fn make_room(&self) -> bool {
        self.lock().remove_one()
    }

    /// The table, also after a panic: it is complete at any time.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Removes the oldest place of the host that has the most; of several such hosts, of the one
    /// whose oldest place is the oldest.
    fn remove_one(&mut self) -> bool {
        let rank = |places: &VecDeque<Entry>| {
            (places.len(), Reverse(places.front().map(|entry| entry.number)))
        };
        let fullest = self.hosts.iter().max_by_key(|(_, places)| rank(places));
        let host = fullest.map(|(&host, _)| host);
        host.is_some_and(|host| self.remove_oldest(host))
    }

    /// Removes the oldest place of a host.
    fn remove_oldest(&mut self, host: IpAddr) -> bool {
        let oldest = self.hosts.get(&host).and_then(|places| places.front());
        let number = oldest.map(|entry| entry.number);
        number.is_some_and(|number| self.remove(host, number))
    }

    /// Removes a place, if it is still there.
    fn remove(&mut self, host: IpAddr, number: u64) -> bool {
        let Some(places) = self.hosts.get_mut(&host) else { return false };
        let Ok(index) = places.binary_search_by_key(&number, |entry| entry.number) else {
            return false;
        };
        places.remove(index);
        self.taken -= 1;
        if places.is_empty() {
            self.hosts.remove(&host);
        }
        true
    }
}

impl Place {
    /// How long the handshake may take.
    pub(super) fn time(&self) -> Duration {
        self.handshakes.limits.time
    }

    /// Waits until the link is to make room for another.
    pub(super) async fn lost(&mut self) {
        // Nothing is ever sent: the sender is dropped.
        let _ = (&mut self.stay).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handshakes.lock().remove(self.host, self.number);
    }
}

/// What counts as one host.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Handshakes with room for 8, and 4 of a host.
    fn handshakes() -> Arc<Handshakes> {
        let time = Duration::from_secs(10);
        Handshakes::new(HandshakeLimits { per_host: 4, in_total: 8, time })
    }

    /// Whether each of these is to make room.
    fn lost(places: &mut [Place]) -> Vec<bool> {
        places.iter_mut().map(|place| place.lost().now_or_never().is_some()).collect()
    }

    fn enter(handshakes: &Arc<Handshakes>, from: &str) -> Place {
        handshakes.enter(from.parse().expect("an address"))
    }

    #[test]
    fn a_host_that_has_all_of_its_places_loses_its_oldest() {
        let handshakes = handshakes();
        // One host has a whole /64 of addresses.
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
            assert_eq!((table.taken, table.hosts.len()), (0, 0));
        }
        assert!(!handshakes.make_room());
        let mut last = [enter(&handshakes, "192.0.2.1")];
        assert!(handshakes.make_room());
        assert_eq!(lost(&mut last), [true]);
    }

    proptest::proptest! {
        /// A failing order is printed, with its seed.
        #[test]
        fn no_order_takes_more_places_than_there_are(
            steps in proptest::collection::vec((0..6_u8, 0..4_usize), 0..200),
        ) {
            let handshakes = handshakes();
            let mut places = VecDeque::new();
            for (host, kept) in steps {
                places.push_back(handshakes.enter(IpAddr::from([192, 0, 2, host])));
                let newest = places.back_mut().expect("one was added");
                proptest::prop_assert!(newest.lost().now_or_never().is_none());
                if kept == 0 {
                    places.pop_front();
                }
                let table = handshakes.lock();
                let lengths: Vec<_> = table.hosts.values().map(VecDeque::len).collect();
                proptest::prop_assert_eq!(lengths.iter().sum::<usize>(), table.taken);
                proptest::prop_assert!(table.taken <= 8 && lengths.iter().all(|&len| (1..=4).contains(&len)));
            }
        }
    }
}
