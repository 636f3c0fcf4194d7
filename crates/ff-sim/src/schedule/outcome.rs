//! The results of a period: the relays that were measured, those that were not and why, and how
//! much of the teams it took.

use ff_base::identity::Fingerprint;
use ff_plan::period::timetable::NoRetry;
use ff_proto::aggregate::{Circumstances, Verdict, judge};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::stats::{percentile, sorted};
use serde::Serialize;

/// Whether an estimate says what a relay can do, or only what it was measured with (paper §4.2).
pub(super) fn is_conclusive(z: BytesPerSec, allocated: BytesPerSec, params: &Params) -> bool {
    let how = Circumstances {
        allocated: Some(allocated),
        is_local: false,
        measurer_limited: false,
        path_limited: false,
        unsettled: false,
        asked_secs: params.duration_secs,
        granted_secs: params.duration_secs,
    };
    judge(z, &how, params) == Verdict::Conclusive
}

/// A period as it went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeriodOutcome {
    /// Slots of the period.
    pub period_slots: u32,
    /// Seconds of a slot.
    pub slot_secs: u32,
    /// z0 of new relays.
    pub new_guess_bytes_per_sec: u64,
    /// By coordinator, in the order of their identities.
    pub coordinators: Vec<Used>,
    /// Estimates that were conclusive, by coordinator and relay.
    #[serde(skip)]
    pub estimates: Vec<RelayEstimate>,
    /// Relays that a coordinator did not measure conclusively.
    pub unmeasured: Vec<Unmeasured>,
    /// Relays that came during the period, by coordinator.
    #[serde(skip)]
    pub newcomers: Vec<Newcomer>,
}

/// The use of a coordinator's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Slots in which it measured.
    pub busy_slots: u32,
    /// How many slots passed until the last of these was over.
    pub last_slot_end: u32,
    /// Slots that would be left over if all others were full.
    pub spare_slots: u32,
    /// Relays that it measured conclusively.
    pub measured: usize,
    /// Measurements.
    pub measurements: u64,
    /// Relays that it measured more than once.
    pub retried: usize,
    /// Bytes that its team sent to relays, and got back.
    pub measured_bytes: u128,
}

/// A relay's estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayEstimate {
    /// The relay.
    pub relay: Fingerprint,
    /// By whom.
    pub coordinator: usize,
    /// z.
    pub rate: BytesPerSec,
    /// Its true capacity.
    pub truth: BytesPerSec,
    /// In how many measurements.
    pub measurements: u32,
    /// In which slot the last was.
    pub slot: u32,
}

impl RelayEstimate {
    /// The estimate over the truth; nothing where that is 0.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.truth.get() > 0).then(|| self.rate.mbit() / self.truth.mbit())
    }
}

/// Why a relay was not measured conclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It needs more than the team has, by itself or with all on its host.
    TooFast,
    /// No slot that was left had room, or none for its network.
    NoRoom,
    /// It had been measured as often as a relay lets a coordinator.
    NoGrant,
    /// Its slot was full because of another relay on its host: it waits for the next period.
    Waiting,
    /// It was never measured by this team.
    NotMeasured,
}

impl Reason {
    /// The same as the coordinator's, and what would be needed, if it says so.
    pub(super) const fn of(error: &NoRetry) -> (Self, Option<BytesPerSec>) {
        match error {
            NoRetry::NotMeasured => (Self::NotMeasured, None),
            NoRetry::NoGrant => (Self::NoGrant, None),
            NoRetry::TooFast { needs } => (Self::TooFast, Some(*needs)),
            NoRetry::NoRoom { needs } => (Self::NoRoom, Some(*needs)),
            NoRetry::NoShare { .. } => (Self::NoRoom, None),
        }
    }
}

/// A relay that was not measured conclusively.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmeasured {
    /// The relay, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// By whom.
    pub coordinator: usize,
    /// Why.
    pub reason: Reason,
    /// What the team would need in a slot, for it and what is measured with it.
    pub needs_bytes_per_sec: u64,
    /// By how much that is more than the whole team has; 0 if it is only a slot with room that is
    /// missing.
    pub lacks_bytes_per_sec: u64,
    /// What it came to when it was measured last: it can do that at least. 0 if it was not.
    pub at_least_bytes_per_sec: u64,
}

/// A relay that came during the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// The relay.
    pub relay: Fingerprint,
    /// The coordinator that measured it.
    pub coordinator: usize,
    /// The hour in which it came.
    pub hour: u32,
    /// Seconds until its first measurement was over, if there was one.
    pub first_secs: Option<u64>,
    /// Seconds until it had been measured conclusively, if it was.
    pub measured_secs: Option<u64>,
    /// Measurements.
    pub measurements: u32,
}

/// How long relays waited that came during the period, those of all coordinators together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// How many came, as often as there are coordinators.
    pub relays: usize,
    /// How many of them needed one measurement.
    pub measured_at_once: usize,
    /// How many were measured conclusively.
    pub measured: usize,
    /// The median time until the first measurement was over.
    pub first_median_secs: f64,
    /// The 95th percentile of it.
    pub first_p95_secs: f64,
    /// The longest.
    pub first_max_secs: f64,
    /// The median time until one was conclusive; the second one's slot is secret, and anywhere in
    /// the period.
    pub measured_median_secs: f64,
    /// The 95th percentile of it.
    pub measured_p95_secs: f64,
    /// The longest.
    pub measured_max_secs: f64,
}

impl PeriodOutcome {
    /// How long new relays waited; times are 0 if there were none.
    #[must_use]
    pub fn waits(&self) -> Waits {
        let secs = |of: fn(&Newcomer) -> Option<u64>| {
            sorted(self.newcomers.iter().filter_map(of).map(as_float).collect())
        };
        let (first, measured) = (secs(|one| one.first_secs), secs(|one| one.measured_secs));
        let at = |secs: &[f64], p| percentile(secs, p).unwrap_or(0.0);
        let at_once = |one: &&Newcomer| one.measurements == 1 && one.measured_secs.is_some();
        Waits {
            relays: self.newcomers.len(),
            measured_at_once: self.newcomers.iter().filter(at_once).count(),
            measured: measured.len(),
            first_median_secs: at(&first, 50.0),
            first_p95_secs: at(&first, 95.0),
            first_max_secs: at(&first, 100.0),
            measured_median_secs: at(&measured, 50.0),
            measured_p95_secs: at(&measured, 95.0),
            measured_max_secs: at(&measured, 100.0),
        }
    }

    /// The period's length, or what of it was used, in seconds: until the last measurement of all
    /// was over.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let last = self.coordinators.iter().map(|used| used.last_slot_end).max().unwrap_or(0);
        u64::from(last) * u64::from(self.slot_secs)
    }

    /// Relays that one coordinator or another did not measure for this reason.
    pub fn because(&self, reason: Reason) -> impl Iterator<Item = &Unmeasured> {
        self.unmeasured.iter().filter(move |one| one.reason == reason)
    }

    /// How many these are.
    #[must_use]
    pub fn count(&self, reason: Reason) -> usize {
        self.because(reason).count()
    }
}

/// Seconds as a float.
#[expect(clippy::cast_precision_loss, reason = "for display; exact below 2^53")]
const fn as_float(secs: u64) -> f64 {
    secs as f64
}
