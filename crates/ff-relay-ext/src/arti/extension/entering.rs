//! The extension's part in the limit where clients enter: rules, relays, and what links show.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::{SystemTime, UNIX_EPOCH};

use ff_proto::session::target::LinkId;
use tracing::{info, warn};

use super::super::greeting::RelayId;
use super::super::held::Held;
use super::super::ingress::{Listings, Notice};
use super::super::limit::{Direction, Traffic};
use super::Extension;
use crate::ingress::{Reason, Rules};

impl Extension {
    /// Sets the rules by which links are limited; `None` lifts the limits.
    pub fn set_ingress(&self, rules: Option<Rules>) {
        let now = self.now();
        let notice = self.with(|state| {
            let notice = state.ingress.set_rules(rules, unix_secs(), now);
            // With the lock, so that the last rules have the last word.
            self.limits_links.store(state.ingress.has_rules(), Ordering::Relaxed);
            notice
        });
        tell(notice.flatten());
    }

    /// Whether there are such rules.
    pub(in super::super) fn limits_links(&self) -> bool {
        self.limits_links.load(Ordering::Relaxed)
    }

    /// The bytes that a link's own limit lets it move now, at most `wanted`. At 0 the task will be
    /// woken when it may move some.
    pub(in super::super) fn room(
        &self,
        link: LinkId,
        direction: Direction,
        wanted: usize,
        cx: &Context<'_>,
    ) -> usize {
        let now = self.now();
        let room =
            self.with(|state| state.ingress.room(link, direction, wanted as u64, now, cx.waker()));
        let room = usize::try_from(room.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        room.min(wanted)
    }

    /// Whether a link waits for its turn to send.
    #[cfg(test)]
    pub(in super::super) fn waits_to_send(&self, link: LinkId) -> bool {
        self.with(|state| state.limiter.waits(link, Direction::Sent)).unwrap_or(false)
    }

    /// Room for the cells that wait on a limited link.
    pub(in super::super) fn new_held(&self) -> Held {
        Held::new(Arc::clone(&self.held_bytes))
    }

    /// Counts bytes that a link sends beyond its limit, after a claim.
    pub(in super::super) fn let_out(&self, link: LinkId, traffic: Traffic, bytes: usize) {
        let now = self.now();
        let notice = self.with(|state| {
            let share = state.target.background_allowance();
            state.limiter.moved(link, Direction::Sent, traffic, bytes as u64, share.as_ref());
            state.on_background(Direction::Sent, bytes, now);
            state.ingress.let_out(bytes as u64, now)
        });
        tell(notice.flatten());
    }

    /// Sets the relays of a new consensus.
    pub(in super::super) fn set_listings(&self, listings: Listings) {
        let now = self.now();
        tell(self.with(|state| state.ingress.set_listings(listings, unix_secs(), now)).flatten());
    }

    /// Notes the identity that a link's other end has shown; `None` for a client.
    pub(in super::super) fn greet(&self, link: LinkId, shown: Option<RelayId>) {
        let now = self.now();
        tell(self.with(|state| state.ingress.greet(link, shown, unix_secs(), now)).flatten());
    }
}

/// The system's clock, in seconds since 1970.
fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Logs a notice.
fn tell(notice: Option<Notice>) {
    match notice {
        None => {}
        Some(Notice::Off) => info!("FlashFlow: the limit for links of clients is off"),
        Some(Notice::Stale) => warn!(
            "FlashFlow: there is no consensus, or it is more than a day old. Links keep their limits; new \
             ones have none. Check this relay's clock and its connection to directories."
        ),
        Some(Notice::LetOut(bytes)) => info!(
            bytes,
            "FlashFlow: links of clients had more to send than their limits and the relay's memory \
             allow; bytes that would have delayed others went out at once"
        ),
        Some(Notice::On(rules, relays, reasons)) => {
            let of = |reason| {
                reasons
                    .iter()
                    .find(|(counted, _)| *counted == reason)
                    .map_or(0, |(_, count)| *count)
            };
            info!(
                "FlashFlow: links of clients are limited: {rules}. Of {relays} relays in the \
                 consensus {} are exempt; not exempt are {} without Fast, {} without Stable, and {} \
                 because none is.",
                of(Reason::ExemptRelay),
                of(Reason::NotFast),
                of(Reason::NotStable),
                of(Reason::NoneExempt),
            );
        }
    }
}
