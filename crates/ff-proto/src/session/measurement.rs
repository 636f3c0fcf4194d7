//! The measurement that a target has granted or runs: its links and counts.

use core::time::Duration;

use super::refusals::{BAD_KEY, BAD_SIGNATURE, Refusal, TOO_MANY_SOCKETS, UNKNOWN_MEASURER};
use crate::auth::Exporter;
use crate::circuit::{EchoCircuit, EphemeralKey, Exchange};
use crate::ids::{CryptoKind, Ed25519Id, MeasurementId, MeasurerIndex};
use crate::msg::{
    MeasBg, MeasCreate, MeasCreated, MeasParams, MeasParamsOk, MeasurerGrant, Signed, TeamCells,
};
use crate::units::{Cells, MonoTime, Ratio};

/// How long a grant waits for the first echo cell.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The host's id for a link; not reused while outputs for the link are pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u64);

/// A MEASUREMENT cell with its link and time.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The link.
    pub link: LinkId,
    /// The cell's circuit id.
    pub circ_id: u32,
    /// The cell's body.
    pub body: &'a [u8],
    /// Whether the link has, or has had, circuits other than ours.
    pub has_circuits: bool,
    /// The link's TLS exporter.
    pub exporter: &'a Exporter,
    /// 32 fresh random bytes.
    pub entropy: [u8; 32],
    /// Monotonic time.
    pub now: MonoTime,
    /// Wall-clock time, in seconds since 1970.
    pub unix_secs: u64,
}

/// The progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Progress {
    /// Waiting for the first echo cell.
    Granted {
        /// When the grant lapses.
        lapses: MonoTime,
    },
    /// The target echoes cells.
    Running {
        /// When the first echo cell arrived.
        started: MonoTime,
        /// The current second.
        second: u16,
    },
}

/// The granted or running measurement.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) id: MeasurementId,
    pub(super) coordinator: Ed25519Id,
    /// The link of its request.
    pub(super) coordinator_link: LinkId,
    /// Seconds granted.
    pub(super) duration_secs: u16,
    /// The background ratio granted.
    pub(super) ratio: Ratio,
    /// The cipher granted.
    crypto: CryptoKind,
    /// The measurers that may open links, and how many more links each may open.
    pub(super) team: Vec<MeasurerGrant>,
    /// The open measurement links; at most the team's sockets.
    pub(super) links: Vec<LinkId>,
    pub(super) progress: Progress,
    echoed: Cells,
    /// Of these, the cells of the current second, by measurer.
    echoed_in_second: TeamCells,
    /// Background bytes sent and received in the current second.
    background: (u64, u64),
    /// The number of refused messages on the coordinator's link.
    pub(super) refusals: u8,
}

impl Measurement {
    /// A measurement with this grant, which waits for its team.
    pub(super) fn new(
        arrival: &Arrival<'_>,
        coordinator: Ed25519Id,
        params: &MeasParams,
        grant: &MeasParamsOk,
    ) -> Self {
        Self {
            id: params.measurement,
            coordinator,
            coordinator_link: arrival.link,
            duration_secs: grant.duration_secs,
            ratio: grant.ratio,
            crypto: grant.crypto,
            team: params.measurers.clone(),
            links: Vec::new(),
            progress: Progress::Granted { lapses: arrival.now + START_TIMEOUT },
            echoed: Cells(0),
            echoed_in_second: TeamCells::none(params.measurers.len()),
            background: (0, 0),
            refusals: 0,
        }
    }

    /// Admits the link of a measurer's MEAS_CREATE.
    pub(super) fn admit(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasCreate>,
    ) -> Result<(MeasCreated, EchoCircuit), Refusal> {
        let claimed = request.claimed_signer();
        let (measurer, place) = (0..)
            .map(MeasurerIndex)
            .zip(&mut self.team)
            .find(|(_, measurer)| measurer.id == *claimed)
            .ok_or(UNKNOWN_MEASURER)?;
        let left = place.sockets.checked_sub(1).ok_or(TOO_MANY_SOCKETS)?;
        let (_, create) = request.verify(arrival.exporter).ok_or(BAD_SIGNATURE)?;

        let ours = EphemeralKey::new(arrival.entropy);
        let exchange = Exchange {
            measurement: &self.id,
            exporter: arrival.exporter,
            measurer_public: &create.public,
            target_public: &ours.public(),
            crypto: self.crypto,
        };
        let keys = exchange.derive(&ours).ok_or(BAD_KEY)?;
        place.sockets = left;
        self.links.push(arrival.link);
        let answer = MeasCreated { public: ours.public(), confirmation: keys.confirmation };
        Ok((answer, EchoCircuit::new(arrival.circ_id, &keys).of_measurer(measurer)))
    }

    /// Counts cells of a measurer. Returns whether they are the first, which start the measurement.
    pub(super) fn count_echoed(
        &mut self,
        measurer: MeasurerIndex,
        cells: Cells,
        now: MonoTime,
    ) -> bool {
        self.echoed.0 = self.echoed.0.saturating_add(cells.0);
        self.echoed_in_second.add(measurer, cells);
        let is_first = cells.0 > 0 && !self.is_running();
        if is_first {
            self.progress = Progress::Running { started: now, second: 0 };
        }
        is_first
    }

    /// Counts background bytes in the current second, if the measurement is running.
    pub(super) fn count_background(&mut self, sent_bytes: u64, received_bytes: u64) {
        if self.is_running() {
            let (sent, received) = &mut self.background;
            *sent = sent.saturating_add(sent_bytes);
            *received = received.saturating_add(received_bytes);
        }
    }

    /// The report of the current second; then the next one begins.
    ///
    /// It has only what the coordinator can use (§8.2): the forwarded traffic, up to the counted
    /// part, rounded so that single clients' bytes do not show.
    pub(super) fn report(&mut self, second: u16) -> MeasBg {
        let (sent, received) = core::mem::take(&mut self.background);
        let cells = self.echoed_in_second.take();
        let echoed = cells.sum().bytes();
        let forwarded = sent.min(received);
        let counts = self.ratio.background_for(echoed);
        // A power of two: a hundredth of the traffic itself would reveal the traffic.
        let percent = echoed.saturating_add(forwarded) / 100;
        let step = percent.checked_ilog2().map_or(1, |power| 1 << power);
        let rounded = forwarded.saturating_add(step / 2) / step * step;
        let bytes = if forwarded < counts { rounded.min(counts) } else { counts };
        MeasBg { second, sent: bytes, received: bytes, echoed: Some(cells) }
    }

    /// Whether the first cell has been echoed.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.progress, Progress::Running { .. })
    }

    /// The number of echoed bytes.
    pub(super) fn echoed_bytes(&self) -> u64 {
        self.echoed.bytes()
    }

    /// When the grant lapses, or the current second ends.
    pub(super) fn due(&self) -> MonoTime {
        match self.progress {
            Progress::Granted { lapses } => lapses,
            Progress::Running { started, second } => {
                started + Duration::from_secs(u64::from(second) + 1)
            }
        }
    }
}
