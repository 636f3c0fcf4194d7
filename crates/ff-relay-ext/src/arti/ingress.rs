//! The limit where clients enter, for the links of an Arti relay.
//!
//! [`Ingress`] knows the rules, the relays of the consensus and the relay's links; sans-IO. Each
//! limited link has a token bucket in either direction. A link whose bucket is empty waits until it
//! has room for several cells ([`Limited::least`]): each time costs a TLS record and a system call.
//! What a link does with bytes for which there is no room is its own matter (`gate.rs`).

use std::collections::{HashMap, HashSet};
use std::task::Waker;
use std::time::Duration;

use ff_proto::cell::CELL_LEN;
use ff_proto::rate::TokenBucket;
use ff_proto::session::target::LinkId;
use ff_proto::units::{BytesPerSec, MonoTime};

use super::greeting::RelayId;
use super::limit::Direction;
use crate::ingress::{Bucket, Decision, Listing, Peer, Reason, Rules};

/// How long a link whose bucket is empty gathers room, as in C tor.
const GATHER: Duration = Duration::from_millis(40);
/// How long after its `valid-after` a consensus is used.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long rules may wait for a first consensus, before the operator is told that there is none.
const START: Duration = Duration::from_secs(10 * 60);
/// How often the operator is told that bytes went out beyond the limits.
const TELL: Duration = Duration::from_secs(60);

/// The relays of a consensus.
#[derive(Clone, Debug, Default)]
pub(super) struct Listings {
    /// When it became valid, in seconds since 1970.
    pub(super) valid_after_secs: u64,
    /// Its relays, by their RSA identities.
    pub(super) relays: HashMap<RelayId, Listing>,
}

impl Listings {
    /// What the rules say about a link whose other end has shown this identity.
    fn decide(&self, rules: &Rules, shown: Option<RelayId>) -> Decision {
        let listing = shown.and_then(|id| self.relays.get(&id).copied());
        rules.decide(&Peer {
            is_authenticated: shown.is_some(),
            is_known: listing.is_some(),
            listing,
            address: None,
        })
    }

    fn is_fresh(&self, unix_secs: u64) -> bool {
        unix_secs < self.valid_after_secs.saturating_add(MAX_AGE.as_secs())
    }
}

/// A link whose other end is known.
#[derive(Debug)]
struct Link {
    /// The identity that it has shown; `None` for a client.
    shown: Option<RelayId>,
    /// Its limit, if it has one.
    limited: Option<Box<Limited>>,
}

impl Link {
    /// Sets the limit. A link that gets one starts with a full burst; one that keeps a limit keeps
    /// its tokens.
    fn set(&mut self, bucket: Option<Bucket>, now: MonoTime) {
        match (bucket, &mut self.limited) {
            (Some(bucket), Some(limited)) => limited.change(bucket, now),
            (Some(bucket), none) => *none = Some(Box::new(Limited::new(bucket, now))),
            // Dropping it wakes those that wait.
            (None, limited) => *limited = None,
        }
    }
}

/// The limit of a link.
#[derive(Debug)]
struct Limited {
    /// Its rate and burst.
    bucket: Bucket,
    /// The bytes that it may receive and send.
    room: [TokenBucket; 2],
    /// What to wake in either direction, and the bytes for which there must be room.
    waiting: [Option<(Waker, u64)>; 2],
}

impl Limited {
    /// A limit with a full burst.
    fn new(bucket: Bucket, now: MonoTime) -> Self {
        let rate = BytesPerSec::new(bucket.rate_bytes_per_sec.into());
        let room = TokenBucket::new(rate, bucket.burst_bytes.into(), now);
        Self { bucket, room: [room; 2], waiting: [None, None] }
    }

    /// Another rate and burst; the tokens stay. Those that wait are woken, because they may wait
    /// for more than the new burst.
    fn change(&mut self, bucket: Bucket, now: MonoTime) {
        if bucket == self.bucket {
            return;
        }
        self.wake();
        self.bucket = bucket;
        let rate = BytesPerSec::new(bucket.rate_bytes_per_sec.into());
        for room in &mut self.room {
            room.set_rate(rate, bucket.burst_bytes.into(), now);
        }
    }

    /// The room for which a link waits, in bytes: at least a cell.
    fn least(&self) -> u64 {
        let rate = BytesPerSec::new(self.bucket.rate_bytes_per_sec.into());
        rate.bytes_in(GATHER).max(CELL_LEN as u64)
    }

    /// Wakes those that wait.
    fn wake(&mut self) {
        self.waiting.iter_mut().filter_map(Option::take).for_each(|(waker, _)| waker.wake());
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.wake();
    }
}

/// What the operator should know.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Links are limited by these rules; the number of relays, and of those with each reason.
    On(Rules, usize, Vec<(Reason, usize)>),
    /// No link is limited any more.
    Off,
    /// The rules are on, but the last consensus is more than a day old, or there is none.
    Stale,
    /// Bytes that were sent beyond the limits of their links since the last such notice.
    LetOut(u64),
}

/// The rules, and the links to which they apply.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    /// The rules; `None` while there is no limit.
    rules: Option<Rules>,
    /// The time since when.
    rules_since: MonoTime,
    /// The relays of the last consensus, while there are rules; `None` before the first.
    listings: Option<Listings>,
    links: HashMap<LinkId, Link>,
    /// Links that wait, some of them for nothing any more.
    waiting: HashSet<LinkId>,
    /// Whether the operator has been told that the consensus is too old.
    is_stale_told: bool,
    /// Bytes that went out beyond the limits of their links and have not been told, and the time of
    /// the last notice.
    let_out: (u64, Option<MonoTime>),
}

impl Ingress {
    /// Sets the rules. New ones wait for the relays of a consensus.
    pub(super) fn set_rules(
        &mut self,
        rules: Option<Rules>,
        unix_secs: u64,
        now: MonoTime,
    ) -> Option<Notice> {
        if self.rules == rules {
            return None;
        }
        if rules.is_none() {
            self.listings = None;
        }
        (self.rules, self.rules_since) = (rules, now);
        self.apply(unix_secs, now);
        self.rules_notice()
    }

    /// Whether there are rules, for which the relays of the consensus must be known.
    pub(super) const fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Sets the relays of a new consensus.
    pub(super) fn set_listings(
        &mut self,
        listings: Listings,
        unix_secs: u64,
        now: MonoTime,
    ) -> Option<Notice> {
        if listings.is_fresh(unix_secs) {
            self.is_stale_told = false;
        }
        let is_first = self.listings.replace(listings).is_none();
        self.apply(unix_secs, now);
        if is_first { self.rules_notice() } else { None }
    }

    /// A text about the rules; `None` while they wait for a consensus.
    fn rules_notice(&self) -> Option<Notice> {
        let Some(rules) = &self.rules else { return Some(Notice::Off) };
        let listings = self.listings.as_ref()?;
        let mut counts: Vec<(Reason, usize)> = Vec::new();
        for id in listings.relays.keys() {
            let reason = listings.decide(rules, Some(*id)).reason;
            match counts.iter_mut().find(|(counted, _)| *counted == reason) {
                Some((_, count)) => *count += 1,
                None => counts.push((reason, 1)),
            }
        }
        Some(Notice::On(rules.clone(), listings.relays.len(), counts))
    }

    /// Notes what the other end of a new link has shown. Without a consensus of the last day a new
    /// link has no limit.
    pub(super) fn greet(
        &mut self,
        id: LinkId,
        shown: Option<RelayId>,
        unix_secs: u64,
        now: MonoTime,
    ) -> Option<Notice> {
        let mut link = Link { shown, limited: None };
        let fresh = self.listings.as_ref().filter(|listings| listings.is_fresh(unix_secs));
        let mut is_stale = false;
        match (&self.rules, fresh) {
            (Some(rules), Some(listings)) => link.set(listings.decide(rules, shown).bucket, now),
            (Some(_), None) => {
                is_stale = self.listings.is_some() || now.since(self.rules_since) >= START;
            }
            (None, _) => {}
        }
        self.links.insert(id, link);
        (is_stale && !std::mem::replace(&mut self.is_stale_told, true)).then_some(Notice::Stale)
    }

    /// Decides about all links again. With an old consensus they keep what they have.
    fn apply(&mut self, unix_secs: u64, now: MonoTime) {
        let fresh = self.listings.as_ref().filter(|listings| listings.is_fresh(unix_secs));
        for link in self.links.values_mut() {
            match (&self.rules, fresh) {
                (None, _) => link.set(None, now),
                (Some(rules), Some(listings)) => {
                    link.set(listings.decide(rules, link.shown).bucket, now);
                }
                (Some(_), None) => {}
            }
        }
    }

    /// The limit of a link, if it has one.
    fn limited(&mut self, id: LinkId) -> Option<&mut Limited> {
        self.links.get_mut(&id)?.limited.as_deref_mut()
    }

    /// The bytes that a link may move, at most `wanted`. At 0 it waits, and `waker` will be woken.
    pub(super) fn room(
        &mut self,
        id: LinkId,
        direction: Direction,
        wanted: u64,
        now: MonoTime,
        waker: &Waker,
    ) -> u64 {
        let Some(limited) = self.limited(id) else { return wanted };
        let needed = limited.least().min(wanted);
        let tokens = &mut limited.room[direction as usize];
        tokens.fill(now);
        let room = u64::try_from(tokens.available_bytes()).unwrap_or(0);
        if room >= needed {
            return room.min(wanted);
        }
        limited.waiting[direction as usize] = Some((waker.clone(), needed));
        self.waiting.insert(id);
        0
    }

    /// Takes the tokens of bytes that have moved.
    pub(super) fn moved(&mut self, id: LinkId, direction: Direction, bytes: u64) {
        if self.rules.is_none() {
            return;
        }
        if let Some(limited) = self.limited(id) {
            limited.room[direction as usize].take(bytes);
        }
    }

    /// Notes bytes that went out beyond the limit of their link; they take no tokens, or the link
    /// would wait for a long time afterwards.
    pub(super) fn let_out(&mut self, bytes: u64, now: MonoTime) -> Option<Notice> {
        let (untold, told_at) = &mut self.let_out;
        *untold += bytes;
        if told_at.is_some_and(|at| now.since(at) < TELL) {
            return None;
        }
        *told_at = Some(now);
        Some(Notice::LetOut(std::mem::take(untold)))
    }

    /// Refills the buckets of waiting links, and wakes those that have room; must be called every
    /// few milliseconds.
    pub(super) fn tick(&mut self, now: MonoTime) {
        let links = &mut self.links;
        self.waiting.retain(|id| {
            let limited = links.get_mut(id).and_then(|link| link.limited.as_deref_mut());
            let Some(Limited { room, waiting, .. }) = limited else { return false };
            for (room, waiting) in room.iter_mut().zip(waiting.iter_mut()) {
                room.fill(now);
                let bytes = u64::try_from(room.available_bytes()).unwrap_or(0);
                if let Some((waker, _)) = waiting.take_if(|(_, needed)| bytes >= *needed) {
                    waker.wake();
                }
            }
            waiting.iter().any(Option::is_some)
        });
    }

    /// Removes a link that has closed.
    pub(super) fn close(&mut self, id: LinkId) {
        self.links.remove(&id);
        self.waiting.remove(&id);
    }

    /// Lifts all limits, because nothing will refill the buckets. Those that wait are woken.
    pub(super) fn end(&mut self) {
        self.rules = None;
        self.links.clear();
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;
