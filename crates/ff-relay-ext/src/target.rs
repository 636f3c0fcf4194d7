//! A relay's side of FlashFlow: the protocol's target and the rules around it.
//!
//! [`RelayTarget`] joins [`Target`] (the permission to measure, the sessions) with
//! [`BackgroundLimit`] (the limit of ordinary traffic meanwhile) and counts for the operator. It
//! has no clock, socket or thread; [`Target`] explains the order of calls.

use std::mem;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ff_proto::ids::{CryptoKind, MeasurerIndex};
use ff_proto::msg::ErrCode;
use ff_proto::session::target::{
    Arrival, GrantRecord, LinkId, LinkPart, Output, Policy, Target, TargetEvent,
};
use ff_proto::units::{Cells, MonoTime};

use crate::background::{Allowance, BackgroundLimit, Recent};
use crate::memory::{self, Dropped, MemoryError, Remembered};

/// A relay's totals, for its operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Measurements granted.
    pub granted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Measurements that ended as planned.
    pub completed: u64,
    /// Measurements that ended early.
    pub failed: u64,
    /// Bytes echoed.
    pub echoed_bytes: u64,
    /// Background bytes received while being measured.
    pub background_bytes: u64,
    /// How often background traffic had to wait for its share.
    pub background_waits: u64,
}

/// A relay's side of all measurements.
#[derive(Debug)]
pub struct RelayTarget {
    /// The protocol.
    target: Target,
    /// How long a grant counts.
    period: Duration,
    /// The stored grants in the same order, with the time since when they are known here.
    known: Vec<(GrantRecord, MonoTime)>,
    /// The clients' traffic in the last seconds.
    recent: Recent,
    /// The background limit of the running measurement. It applies while that has links, and stays
    /// the same when these close and others open.
    background: Option<BackgroundLimit>,
    /// Measurers' addresses, each with the number of links that the host's defences must still
    /// accept.
    exempt: Vec<(IpAddr, u16)>,
    totals: Totals,
    /// The file of grants; `None` to keep them in memory only.
    memory: Option<PathBuf>,
    /// The number of grants in the file.
    stored_grants: u64,
    /// Lines of the file that were dropped.
    dropped: Option<Dropped>,
}

impl RelayTarget {
    /// A relay's side with this policy, which stores grants in the file `memory`.
    ///
    /// # Errors
    /// [`MemoryError`] when the file exists and cannot be read.
    pub fn new(policy: Policy, memory: Option<PathBuf>) -> Result<Self, MemoryError> {
        let remembered = memory.as_deref().map_or(Ok(Remembered::default()), memory::load)?;
        Ok(Self { memory, ..Self::with_history(policy, remembered) })
    }

    /// A relay's side with this policy, for a host that stores the grants itself: `remembered` are
    /// the earlier ones, and [`take_unstored`](Self::take_unstored) returns the new ones.
    #[must_use]
    pub fn with_history(policy: Policy, remembered: Remembered) -> Self {
        let Remembered { grants, dropped } = remembered;
        Self {
            period: policy.period,
            target: Target::new(policy, grants),
            known: Vec::new(),
            recent: Recent::default(),
            background: None,
            exempt: Vec::new(),
            totals: Totals::default(),
            memory: None,
            stored_grants: 0,
            dropped,
        }
    }

    /// The lines of the file that were dropped, for the operator's log.
    #[must_use]
    pub fn dropped(&self) -> Option<Dropped> {
        self.dropped
    }

    /// The stored grants.
    #[must_use]
    pub fn history(&self) -> &[GrantRecord] {
        self.target.history()
    }

    /// Sets the policy; that may end the current measurement.
    pub fn set_policy(&mut self, policy: Policy, now: MonoTime) {
        self.note_history(now);
        self.period = policy.period;
        self.target.set_policy(policy, now);
        self.follow(now);
    }

    /// A link's part in a measurement.
    #[must_use]
    pub fn part_of(&self, link: LinkId) -> LinkPart {
        self.target.part_of(link)
    }

    /// Grants only these ciphers; see [`Target::support_only`].
    pub fn support_only(&mut self, crypto: &'static [CryptoKind]) {
        self.target.support_only(crypto);
    }

    /// Notes since when the grants of the history are known.
    fn note_history(&mut self, now: MonoTime) {
        // Grants leave the history in any order, but new ones are always at the end.
        let mut known = mem::take(&mut self.known).into_iter();
        let noted = self.target.history().iter().map(|&grant| {
            let since = known.find(|&(old, _)| old == grant).map_or(now, |(_, since)| since);
            (grant, since)
        });
        self.known = noted.collect();
    }

    /// Removes grants that have been known for a whole period, whatever the wall clock shows.
    ///
    /// [`Target`] counts grants with a time in the future, so setting the wall clock back frees
    /// nothing. But a grant that was given while the clock was far ahead would count until that
    /// date.
    fn forget_old_grants(&mut self, now: MonoTime) {
        self.note_history(now);
        let is_old = |&&(_, since): &&(GrantRecord, MonoTime)| now.since(since) >= self.period;
        let old = self.known.iter().take_while(is_old).count();
        self.target.forget_grants(old);
        self.known.drain(..old);
    }

    /// Handles a MEASUREMENT cell.
    pub fn handle_control(&mut self, arrival: &Arrival<'_>) {
        self.forget_old_grants(arrival.now);
        let was_idle = self.is_idle();
        self.target.handle_control(arrival);
        if was_idle {
            self.note_history(arrival.now);
            let places =
                self.target.team().iter().filter_map(|measurer| {
                    Some((measurer.address?.to_canonical(), measurer.sockets))
                });
            self.exempt = places.collect();
        }
        self.follow(arrival.now);
    }

    /// Notes that a link has closed.
    pub fn handle_link_closed(&mut self, link: LinkId, now: MonoTime) {
        self.target.handle_link_closed(link, now);
        self.follow(now);
    }

    /// Notes the time.
    pub fn handle_timeout(&mut self, now: MonoTime) {
        if self.known.len() != self.target.history().len() {
            self.note_history(now);
        }
        self.target.handle_timeout(now);
        self.follow(now);
        let Some(background) = &mut self.background else { return };
        background.on_time(now);
        if background.is_in_vain() {
            self.target.abort(ErrCode::TOO_LITTLE_TRAFFIC, now);
            self.follow(now);
        }
    }

    /// Withdraws a grant that has not been sent, because it cannot be stored.
    pub fn take_back(&mut self, now: MonoTime) {
        self.target.take_back(now);
        self.follow(now);
    }

    /// Ends the current measurement because of something inside the relay.
    pub fn abort(&mut self, now: MonoTime) {
        self.target.abort(ErrCode::INTERNAL, now);
        self.follow(now);
    }

    /// Counts a measurer's echoed cells, once for many. Returns whether a measurement is running;
    /// otherwise they must not be sent, see [`Target::on_echoed`].
    pub fn on_echoed(&mut self, measurer: MeasurerIndex, cells: Cells, now: MonoTime) -> bool {
        if !self.target.on_echoed(measurer, cells, now) {
            return false;
        }
        if self.background.is_none() {
            self.follow(now);
        }
        if let Some(background) = &mut self.background {
            background.on_echoed(cells.bytes(), now);
        }
        self.totals.echoed_bytes = self.totals.echoed_bytes.saturating_add(cells.bytes());
        true
    }

    /// Counts bytes that are not measurement traffic, once for many. Must be called also when
    /// nothing is measured, because a measurement leaves clients a part of their earlier traffic.
    pub fn on_background(&mut self, sent_bytes: u64, received_bytes: u64, now: MonoTime) {
        self.target.on_background(sent_bytes, received_bytes);
        let is_limited = self.target.limits_background();
        let Some(background) = &mut self.background else {
            self.recent.note(sent_bytes, received_bytes, now);
            return;
        };
        if is_limited {
            background.on_background(sent_bytes, received_bytes);
        }
        self.totals.background_bytes += received_bytes;
    }

    /// Makes or removes the background limit and the exemptions, by the protocol's state. Clients'
    /// traffic under a limit does not show their demand.
    fn follow(&mut self, now: MonoTime) {
        if self.is_idle() {
            self.exempt.clear();
        }
        match (&self.background, self.target.is_running()) {
            (None, true) => {
                let ratio = self.target.ratio();
                self.background = Some(BackgroundLimit::new(ratio, &mut self.recent, now));
            }
            (Some(_), false) => {
                self.background = None;
                self.recent.pass_over(now);
            }
            _ => {}
        }
    }

    /// The background bytes that may move now; `None` without a limit.
    #[must_use]
    pub fn background_allowance(&self) -> Option<Allowance> {
        let background = self.background.as_ref().filter(|_| self.target.limits_background());
        background.map(BackgroundLimit::allowance)
    }

    /// Counts that background traffic had to wait.
    pub fn on_background_wait(&mut self) {
        self.totals.background_waits += 1;
        if let Some(background) = &mut self.background {
            background.on_wait();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called: at the end of a second, and
    /// while background traffic is limited also at the end of each of its windows.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        let window = self.background.as_ref().map(BackgroundLimit::end_of_window);
        [self.target.poll_timeout(), window].into_iter().flatten().min()
    }

    /// Whether the host's defences must accept a link from this address: it is a measurer's address
    /// in the granted or running measurement, and fewer links have come from it than were
    /// announced.
    #[must_use]
    pub fn exempts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.exempt.iter().any(|&(place, left)| place == address && left > 0)
    }

    /// Notes a link from this address; returns whether the host's defences had to accept it.
    pub fn use_exemption(&mut self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mut places = self.exempt.iter_mut();
        let Some((_, left)) = places.find(|(place, left)| *place == address && *left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.target.poll_output()?;
        if let Output::Tell(event) = &output {
            match event {
                TargetEvent::Granted { .. } => self.totals.granted += 1,
                TargetEvent::Ended { failure: None, .. } => self.totals.completed += 1,
                TargetEvent::Ended { .. } => self.totals.failed += 1,
                _ => {}
            }
        }
        Some(output)
    }

    /// Writes the file of grants if there is a new grant. Must be called between
    /// [`handle_control`](Self::handle_control) and [`poll_output`](Self::poll_output), so that a
    /// grant is on the disk before it is sent.
    ///
    /// # Errors
    /// [`MemoryError`]: the host must then withdraw the grant ([`take_back`](Self::take_back)),
    /// because the relay could be measured again after a restart.
    pub fn store_memory(&mut self) -> Result<(), MemoryError> {
        let grants = self.target.grants_given();
        if grants == self.stored_grants {
            return Ok(());
        }
        // A failure is not repeated for every cell: the grant is withdrawn in any case.
        self.stored_grants = grants;
        match &self.memory {
            Some(path) => memory::store(path, self.target.history()),
            None => Ok(()),
        }
    }

    /// All grants to store, if there is one that this has not returned yet; for a host that stores
    /// them itself, to be called like [`store_memory`](Self::store_memory).
    pub fn take_unstored(&mut self) -> Option<&[GrantRecord]> {
        let grants = self.target.grants_given();
        if grants == self.stored_grants {
            return None;
        }
        self.stored_grants = grants;
        Some(self.target.history())
    }

    /// The relay's totals.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals { refused: self.target.refused(), ..self.totals }
    }

    /// Whether no measurement is granted or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.target.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ed25519_dalek::SigningKey;
    use ff_proto::ids::{Ed25519Id, MeasurementId};
    use ff_proto::msg::{MeasParams, MeasurerGrant};
    use ff_proto::session::coordinator::CoordinatorLink;

    use super::*;
    use crate::options::TargetOptions;

    #[test]
    fn without_a_measurement_nothing_is_exempt_and_nothing_is_due() {
        let policy = TargetOptions::default().resolve(&BTreeMap::new());
        let mut target = RelayTarget::with_history(policy, Remembered::default());
        assert!(!target.exempts(Ipv4Addr::LOCALHOST.into()));
        assert!(!target.exempts(Ipv6Addr::LOCALHOST.into()));
        assert!(!target.use_exemption(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(target.poll_timeout(), None);
        assert!(target.take_unstored().is_none());
    }

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    /// Whether a relay with this file of grants grants requests of one coordinator, each of which
    /// is given up at once. They come at these seconds since its start, at which its wall clock
    /// shows these times.
    fn grants(memory: &str, coordinator: &SigningKey, at: &[(u64, u64)]) -> Vec<bool> {
        let id = Ed25519Id(coordinator.verifying_key().to_bytes());
        let policy = TargetOptions::allowing(vec![id]).resolve(&BTreeMap::new());
        let mut target = RelayTarget::with_history(policy, memory::from_text(memory.as_bytes()));
        let exporter = [7; 32];
        target.handle_timeout(MonoTime::default());
        let mut granted = Vec::new();
        for &(uptime_secs, unix_secs) in at {
            let now = MonoTime::default() + Duration::from_secs(uptime_secs);
            let measurers = vec![MeasurerGrant { id, sockets: 1, address: None }];
            let (measurement, crypto) = (MeasurementId([1; 16]), CryptoKind::SUPPORTED.to_vec());
            let params = MeasParams { measurement, duration_secs: 10, measurers, crypto };
            let asked = CoordinatorLink::new(params, coordinator, &exporter, &[0; 20], now);
            let (_, [request, _]) = asked.expect("a request");
            target.handle_control(&Arrival {
                link: LinkId(1),
                circ_id: 0,
                has_circuits: false,
                body: &request[5..],
                exporter: &exporter,
                entropy: [3; 32],
                now,
                unix_secs,
            });
            granted.push(target.take_unstored().is_some());
            target.abort(now);
            while target.poll_output().is_some() {}
        }
        let refused = granted.iter().filter(|is_granted| !**is_granted).count() as u64;
        assert_eq!(target.totals().refused, refused);
        granted
    }

    #[test]
    fn grants_from_the_future_count_for_a_period_and_old_ones_are_forgotten() {
        let coordinator = SigningKey::from_bytes(&[1; 32]);
        let id = Ed25519Id(coordinator.verifying_key().to_bytes());
        let twice = |at: u64| format!("{id} {at}\n").repeat(2);
        for ahead in [1, DAY, 2 * DAY, 10 * 365 * DAY, u64::MAX - NOW] {
            let at = [0, DAY - 1, DAY, DAY, DAY].map(|uptime| (uptime, NOW + uptime));
            let granted = grants(&twice(NOW + ahead), &coordinator, &at);
            assert_eq!(granted, [false, false, true, true, false], "{ahead}");
        }
        // No request is needed for the period to begin.
        assert_eq!(grants(&twice(u64::MAX), &coordinator, &[(DAY, NOW + DAY)]), [true]);
        assert_eq!(grants(&twice(NOW - DAY + 1), &coordinator, &[(0, NOW)]), [false]);
        assert_eq!(grants(&twice(NOW - DAY), &coordinator, &[(0, NOW)]), [true]);
    }

    #[test]
    fn a_clock_that_is_put_right_again_costs_a_period_and_no_more() {
        let coordinator = SigningKey::from_bytes(&[1; 32]);
        let ahead = NOW + 3650 * DAY;
        let wrong = [(0, ahead), (1, ahead + 1), (2, ahead + 2)];
        let right = [3, DAY - 1, DAY, DAY, DAY + 1].map(|uptime| (uptime, NOW + uptime));
        assert_eq!(
            grants("", &coordinator, &[&wrong[..], &right].concat()),
            // The two grants lapse when they are a day old, one after the other.
            [true, true, false, false, false, true, false, true]
        );
    }

    #[test]
    fn a_clock_that_goes_back_for_a_moment_frees_nothing() {
        let coordinator = SigningKey::from_bytes(&[1; 32]);
        let id = Ed25519Id(coordinator.verifying_key().to_bytes());
        for back in [1, DAY, 2 * DAY, NOW - 1, NOW] {
            let at = [NOW, NOW, NOW - back, NOW, NOW, NOW].map(|unix_secs| (0, unix_secs));
            let granted = grants("", &coordinator, &at);
            assert_eq!(granted, [true, true, false, false, false, false], "{back}");

            // Also several times, and for grants from before a restart.
            let memory = format!("{id} {NOW}\n").repeat(2);
            let at: Vec<_> = (1..24)
                .flat_map(|hour| {
                    let uptime = hour * 3600;
                    [(uptime, NOW + uptime - back), (uptime, NOW + uptime)]
                })
                .collect();
            assert!(!grants(&memory, &coordinator, &at).contains(&true), "{back}");
        }
    }

    #[test]
    fn damaged_lines_and_many_cost_nobody_a_measurement() {
        let coordinator = SigningKey::from_bytes(&[1; 32]);
        let junk = "nonsense\n".repeat(200_000);
        assert_eq!(grants(&junk, &coordinator, &[(0, NOW); 3]), [true, true, false]);
    }
}
