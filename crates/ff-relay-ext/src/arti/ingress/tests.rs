use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::ingress::IngressOptions;

/// How often the extension looks at waiting links.
const TICK: Duration = Duration::from_millis(10);
/// A clock in the day of [`listings`].
const NOON: u64 = 1_796_040_000;
const CLIENT: LinkId = LinkId(1);
const RELAY: LinkId = LinkId(2);
const SLOW: LinkId = LinkId(3);

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Rules with this limit and burst.
fn rules(rate: u64, burst: u64) -> Option<Rules> {
    let mut options = IngressOptions::default();
    for (name, value) in [("FFIngressLimit", 1), ("PerConnBWRate", rate), ("PerConnBWBurst", burst)]
    {
        options.set(name, &value.to_string()).unwrap();
    }
    options.resolve(&BTreeMap::new()).rules
}

/// A consensus of noon with a relay that is Fast, of identity 2, and one that is not, of identity 3.
fn listings() -> Listings {
    let listing = |is_fast| Listing { is_fast, is_any_measured: true, ..Listing::default() };
    let relays = HashMap::from([([2; 20], listing(true)), ([3; 20], listing(false))]);
    Listings { valid_after_secs: NOON, relays }
}

/// An ingress with these rules, that consensus, and a link of each kind.
fn ingress(rules: Option<Rules>) -> Ingress {
    let mut ingress = Ingress::default();
    let now = MonoTime::default();
    assert_eq!(ingress.set_rules(rules, NOON, now), None, "it waits for a consensus");
    ingress.set_listings(listings(), NOON, now);
    for (link, shown) in [(CLIENT, None), (RELAY, Some([2; 20])), (SLOW, Some([3; 20]))] {
        assert_eq!(ingress.greet(link, shown, NOON, now), None);
    }
    ingress
}

/// Moves what a link may for this time in pieces of this length; returns the bytes and the number
/// of pieces.
fn moved(
    ingress: &mut Ingress,
    link: LinkId,
    wanted: u64,
    from: MonoTime,
    time: Duration,
) -> (u64, usize) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let (mut now, mut bytes, mut pieces, mut seen) = (from, 0, 0, 0);
    while now.since(from) < time {
        loop {
            let room = ingress.room(link, Direction::Sent, wanted, now, &waker);
            if room == 0 || bytes > 1_000_000_000 {
                break;
            }
            assert!(room <= wanted);
            ingress.moved(link, Direction::Sent, room);
            bytes += room;
            pieces += 1;
        }
        // Until it is woken.
        loop {
            now = now + TICK;
            ingress.tick(now);
            let count = woken.0.load(Ordering::Relaxed);
            if count > seen || now.since(from) >= time {
                seen = count;
                break;
            }
        }
    }
    (bytes, pieces)
}

#[test]
fn a_limited_link_gets_its_limit_in_few_pieces() {
    let minute = Duration::from_secs(60);
    for (rate, burst) in
        [(10_000, 2000), (100_000, 20_000), (100_000, 3_000_000), (4_000_000, 800_000)]
    {
        for wanted in [514, 16_384] {
            for link in [CLIENT, SLOW] {
                let mut ingress = ingress(rules(rate, burst));
                let (bytes, pieces) =
                    moved(&mut ingress, link, wanted, MonoTime::default(), minute);
                let expected = burst + 60 * rate;
                let named = format!("{rate} B/s, burst {burst}, {wanted}: {bytes} in {pieces}");
                assert!(bytes <= expected, "{named}");
                // Less what it gathers when the time is over.
                assert!(bytes + 6168 + rate / 50 >= expected, "{named}");
                if wanted > 514 {
                    // Twelve cells at a time, or 60 ms of the limit.
                    assert!(
                        pieces as u64 <= burst / wanted + expected / 600.min(rate * 6 / 100) + 2,
                        "{named}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_exempt_link_waits_for_nothing() {
    let mut ingress = ingress(rules(100_000, 20_000));
    for wanted in [1, 514, 1_000_000_000] {
        let waker = Waker::noop();
        let now = MonoTime::default();
        assert_eq!(ingress.room(RELAY, Direction::Sent, wanted, now, waker), wanted);
        ingress.moved(RELAY, Direction::Sent, wanted);
        // Nor does one that has shown nothing yet.
        assert_eq!(ingress.room(LinkId(9), Direction::Received, wanted, now, waker), wanted);
    }
}

#[test]
fn both_directions_have_a_bucket() {
    let mut ingress = ingress(rules(100_000, 20_000));
    let now = MonoTime::default();
    let mut all = |direction| ingress.room(CLIENT, direction, 1_000_000, now, Waker::noop());
    assert_eq!([all(Direction::Received), all(Direction::Sent)], [20_000; 2]);
    ingress.moved(CLIENT, Direction::Sent, 20_000);
    let mut all = |direction| ingress.room(CLIENT, direction, 1_000_000, now, Waker::noop());
    assert_eq!([all(Direction::Received), all(Direction::Sent)], [20_000, 0]);
}

#[test]
fn new_rules_and_relays_count_for_open_links() {
    let mut ingress = ingress(None);
    let now = MonoTime::default();
    let all = |ingress: &mut Ingress, link| {
        ingress.room(link, Direction::Sent, 1_000_000, now, Waker::noop())
    };
    let links = [CLIENT, RELAY, SLOW];
    assert_eq!(links.map(|link| all(&mut ingress, link)), [1_000_000; 3]);
    let on = rules(100_000, 20_000).unwrap();
    let notice = ingress.set_rules(Some(on.clone()), NOON, now);
    let Some(Notice::On(told, 2, reasons)) = notice else { panic!("{notice:?}") };
    assert_eq!((told, reasons.len()), (on.clone(), 2));
    assert_eq!(ingress.set_rules(Some(on), NOON, now), None, "the same rules");
    assert_eq!(links.map(|link| all(&mut ingress, link)), [20_000, 1_000_000, 20_000]);
    // The relay that was not Fast is now, and the other one is listed no more.
    let mut listings = listings();
    listings.relays.remove(&[2; 20]);
    listings.relays.get_mut(&[3; 20]).unwrap().is_fast = true;
    ingress.moved(CLIENT, Direction::Sent, 20_000);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert_eq!(ingress.room(CLIENT, Direction::Sent, 1, now, &waker), 0);
    assert_eq!(ingress.set_listings(listings, NOON, now), None);
    assert_eq!(links.map(|link| all(&mut ingress, link)), [0, 20_000, 1_000_000]);
    assert_eq!(ingress.set_rules(None, NOON, now), Some(Notice::Off));
    assert_eq!(links.map(|link| all(&mut ingress, link)), [1_000_000; 3]);
}

#[test]
fn a_link_that_waits_for_more_than_a_new_burst_is_woken() {
    let mut ingress = ingress(rules(1_000_000, 3_000_000));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let now = MonoTime::default();
    ingress.moved(CLIENT, Direction::Received, 3_000_000);
    assert_eq!(ingress.room(CLIENT, Direction::Received, 16_000, now, &waker), 0);
    let _ = ingress.set_rules(rules(20_000, 5000), NOON, now);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // It asks for what the new limit gives.
    assert_eq!(ingress.room(CLIENT, Direction::Received, 16_000, now, &waker), 0);
    ingress.tick(now + Duration::from_secs(1));
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_link_that_waits_when_its_limit_is_lifted_is_woken() {
    for lift in [
        |ingress: &mut Ingress| drop(ingress.set_rules(None, NOON, MonoTime::default())),
        |ingress: &mut Ingress| ingress.end(),
    ] {
        let mut ingress = ingress(rules(100_000, 20_000));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        ingress.moved(CLIENT, Direction::Sent, 20_000);
        let now = MonoTime::default();
        assert_eq!(ingress.room(CLIENT, Direction::Sent, 1, now, &waker), 0);
        lift(&mut ingress);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(ingress.room(CLIENT, Direction::Sent, 7, now, &waker), 7);
        ingress.tick(now);
        assert_eq!(ingress.waiting.len(), 0);
    }
}

#[test]
fn late_documents_limit_no_link() {
    let day = 24 * 60 * 60;
    let mut ingress = ingress(rules(100_000, 20_000));
    let now = MonoTime::default();
    let late = LinkId(4);
    assert_eq!(ingress.greet(late, None, NOON + day, now), Some(Notice::Stale));
    assert_eq!(ingress.greet(LinkId(5), None, NOON + day, now), None, "told once");
    let all = |ingress: &mut Ingress, link| {
        ingress.room(link, Direction::Sent, 1_000_000, now, Waker::noop())
    };
    assert_eq!([CLIENT, late].map(|link| all(&mut ingress, link)), [20_000, 1_000_000]);
    // Nor do new rules.
    ingress.set_rules(rules(200_000, 40_000), NOON + day, now);
    assert_eq!([CLIENT, late].map(|link| all(&mut ingress, link)), [20_000, 1_000_000]);
    let fresh = Listings { valid_after_secs: NOON + day, ..listings() };
    ingress.set_listings(fresh, NOON + day, now);
    assert_eq!([CLIENT, late].map(|link| all(&mut ingress, link)), [20_000, 40_000]);
}

#[test]
fn without_any_consensus_no_link_is_limited_and_after_a_while_that_is_told_once() {
    let mut ingress = Ingress::default();
    let start = MonoTime::default();
    assert_eq!(ingress.set_rules(rules(100_000, 20_000), NOON, start), None);
    assert_eq!(ingress.greet(CLIENT, None, NOON, start), None, "it may have just started");
    let later = start + START;
    assert_eq!(ingress.greet(LinkId(5), None, NOON, later), Some(Notice::Stale));
    assert_eq!(ingress.greet(LinkId(6), None, NOON, later), None, "told once");
    let all = |ingress: &mut Ingress| {
        ingress.room(CLIENT, Direction::Sent, 1_000_000, later, Waker::noop())
    };
    assert_eq!(all(&mut ingress), 1_000_000);
    // An old one changes nothing.
    let day = 24 * 60 * 60;
    ingress.set_listings(listings(), NOON + day, later);
    assert_eq!(ingress.greet(LinkId(7), None, NOON + day, later), None, "told already");
    assert_eq!(all(&mut ingress), 1_000_000);
    // Without rules the relays are forgotten.
    ingress.set_rules(None, NOON, later);
    assert!(ingress.listings.is_none());
    ingress.set_rules(rules(100_000, 20_000), NOON, later);
    ingress.set_listings(listings(), NOON, later);
    assert_eq!(all(&mut ingress), 20_000);
    assert_eq!(ingress.greet(LinkId(8), None, NOON + day, later), Some(Notice::Stale), "again");
}

#[test]
fn what_goes_out_beyond_the_limits_is_told_once_a_minute() {
    let mut ingress = Ingress::default();
    let told = [0, 1, 59, 60, 61, 300].map(|secs| {
        let now = MonoTime::default() + Duration::from_secs(secs);
        ingress.let_out(100, now)
    });
    let all = |bytes| Some(Notice::LetOut(bytes));
    assert_eq!(told, [all(100), None, None, all(300), None, all(200)]);
}

#[test]
fn closed_links_leave_nothing() {
    let mut ingress = ingress(rules(100_000, 20_000));
    let now = MonoTime::default();
    for link in [CLIENT, RELAY, SLOW] {
        ingress.moved(link, Direction::Sent, 20_000);
        ingress.room(link, Direction::Sent, 1, now, Waker::noop());
        ingress.close(link);
    }
    ingress.tick(now);
    assert_eq!((ingress.links.len(), ingress.waiting.len()), (0, 0));
}
