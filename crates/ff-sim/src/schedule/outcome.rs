//! The results of a period: measured relays, unmeasured ones with reasons, and the use of teams.

use ff_base::identity::Fingerprint;
use ff_plan::period::timetable::NoRetry;
use ff_proto::aggregate::{Circumstances, Verdict, judge};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;
use ff_report::stats::{percentile, sorted};
use serde::Serialize;

/// Whether an estimate is a relay's capacity, and not just limited by the allocation (paper §4.2).
pub(super) fn is_conclusive(z: BytesPerSec, allocated: BytesPerSec, params: &Params) -> bool {
    let how = Circumstances::undisturbed(allocated, params.duration_secs);
    judge(z, &how, params) == Verdict::Conclusive
}

/// The results of a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeriodOutcome {
    /// The number of slots in the period.
    pub period_slots: u32,
    /// The length of a slot, in seconds.
    pub slot_secs: u32,
    /// z0 of new relays.
    pub new_guess_bytes_per_sec: u64,
    /// The use of slots by coordinator, in the order of identities.
    pub coordinators: Vec<Used>,
    /// Conclusive estimates, by coordinator and relay.
    #[serde(skip)]
    pub estimates: Vec<RelayEstimate>,
    /// Relays that a coordinator did not measure conclusively.
    pub unmeasured: Vec<Unmeasured>,
    /// Relays that arrived during the period, by coordinator.
    #[serde(skip)]
    pub newcomers: Vec<Newcomer>,
}

/// The use of a coordinator's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// The number of slots with measurements.
    pub busy_slots: u32,
    /// The number of slots until the end of the last measurement.
    pub last_slot_end: u32,
    /// The number of slots that would be unused if all others were full.
    pub spare_slots: u32,
    /// The number of relays measured conclusively.
    pub measured: usize,
    /// The number of measurements.
    pub measurements: u64,
    /// The number of relays measured more than once.
    pub retried: usize,
    /// Bytes that its team sent to relays and received back.
    pub measured_bytes: u128,
}

/// An estimate of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayEstimate {
    /// The relay's fingerprint.
    pub relay: Fingerprint,
    /// The index of the coordinator.
    pub coordinator: usize,
    /// The estimate z.
    pub rate: BytesPerSec,
    /// The true capacity.
    pub truth: BytesPerSec,
    /// The number of measurements.
    pub measurements: u32,
    /// The slot of the last measurement.
    pub slot: u32,
}

impl RelayEstimate {
    /// The estimate over the true capacity; `None` if that is 0.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.truth.get() > 0).then(|| self.rate.mbit() / self.truth.mbit())
    }
}

/// Why a relay was not measured conclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It needs more capacity than the team has, alone or with all relays on its host.
    TooFast,
    /// No remaining slot had room, or none for its network.
    NoRoom,
    /// The relay accepts no more measurements by the coordinator.
    NoGrant,
    /// Its slot was used for another relay on its host: it waits for the next period.
    Waiting,
    /// This team never measured it.
    NotMeasured,
}

impl Reason {
    /// The reason for a coordinator's error, and the capacity that would be needed, if known.
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
    /// The fingerprint, in 40 hexadecimal digits.
    pub fingerprint: String,
    /// The index of the coordinator.
    pub coordinator: usize,
    /// The reason.
    pub reason: Reason,
    /// The capacity needed in a slot, for it and the relays measured with it.
    pub needs_bytes_per_sec: u64,
    /// The part of that which exceeds the team's capacity; 0 if only a slot with room is missing.
    pub lacks_bytes_per_sec: u64,
    /// The rate in its last measurement, a lower bound of its capacity; 0 if it was not measured.
    pub at_least_bytes_per_sec: u64,
}

/// A relay that arrived during the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// The relay's fingerprint.
    pub relay: Fingerprint,
    /// The index of the coordinator that measured it.
    pub coordinator: usize,
    /// The hour in which it arrived.
    pub hour: u32,
    /// Seconds until the end of its first measurement, if there was one.
    pub first_secs: Option<u64>,
    /// Seconds until it was measured conclusively, if it was.
    pub measured_secs: Option<u64>,
    /// The number of measurements.
    pub measurements: u32,
}

/// Waits of the relays that arrived during the period, over all coordinators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// The number of new relays, each counted once per coordinator.
    pub relays: usize,
    /// The number of these that needed one measurement.
    pub measured_at_once: usize,
    /// The number of these that were measured conclusively.
    pub measured: usize,
    /// The median time until the end of the first measurement.
    pub first_median_secs: f64,
    /// The 95th percentile of that time.
    pub first_p95_secs: f64,
    /// The greatest such time.
    pub first_max_secs: f64,
    /// The median time until a conclusive measurement; the slot of a second measurement is secret,
    /// and anywhere in the period.
    pub measured_median_secs: f64,
    /// The 95th percentile of that time.
    pub measured_p95_secs: f64,
    /// The greatest such time.
    pub measured_max_secs: f64,
}

impl PeriodOutcome {
    /// The waits of new relays; times are 0 if there are none.
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

    /// The used part of the period, in seconds: until the end of the last measurement.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let last = self.coordinators.iter().map(|used| used.last_slot_end).max().unwrap_or(0);
        u64::from(last) * u64::from(self.slot_secs)
    }

    /// Relays that any coordinator did not measure for this reason.
    pub fn because(&self, reason: Reason) -> impl Iterator<Item = &Unmeasured> {
        self.unmeasured.iter().filter(move |one| one.reason == reason)
    }

    /// The number of relays that were not measured for this reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> usize {
        self.because(reason).count()
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display; exact below 2^53")]
const fn as_float(secs: u64) -> f64 {
    secs as f64
}
