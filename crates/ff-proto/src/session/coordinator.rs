//! The coordinator's end of its link to the target.
//!
//! [`CoordinatorLink::new`] gives the first two cells. Then call [`handle`] for every cell,
//! [`handle_timeout`] when the time of [`poll_timeout`] has come, [`start`] before the measurers
//! start, and send what [`end`] or [`abort`] gives when it is over.
//!
//! [`handle`]: CoordinatorLink::handle
//! [`handle_timeout`]: CoordinatorLink::handle_timeout
//! [`poll_timeout`]: CoordinatorLink::poll_timeout
//! [`start`]: CoordinatorLink::start
//! [`end`]: CoordinatorLink::end
//! [`abort`]: CoordinatorLink::abort

use core::time::Duration;

use ed25519_dalek::SigningKey;

use super::measurer::{control_cell, is_padding, read_control};
use super::{PeerViolation, SessionFailure};
use crate::auth::Exporter;
use crate::cell::{
    self, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_DESTROY, CMD_MEASUREMENT, Cell, CellRef,
};
use crate::codec::DecodeError;
use crate::ids::{CryptoKind, MeasurementId};
use crate::msg::{
    ErrCode, MeasBg, MeasEnd, MeasErr, MeasParams, MeasParamsOk, MeasStats, Msg, Role, Signed,
    TeamCells,
};
use crate::units::MonoTime;

/// The circuit id of the probe. Any initiator's id will do.
pub const PROBE_CIRC_ID: u32 = 0x8000_0002;
/// How long the target may take for its first answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The least value of FFMaxMeasurementDuration: no relay may grant fewer seconds, unless it was
/// asked for fewer.
const MIN_GRANT_SECS: u16 = 10;
/// How long after it is due a per-second report may come.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much earlier than its second can be over a report may come, for clocks that differ.
const REPORT_EARLY: Duration = Duration::from_millis(100);

/// A request with a number out of its bounds, or that does not fit into a cell: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be made")]
pub struct BadRequest(#[source] DecodeError);

/// The target's events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorEvent {
    /// It grants the measurement.
    Granted(MeasParamsOk),
    /// It reports a second's background traffic, and the cells echoed to each measurer if the relay
    /// counts them.
    Background(MeasBg),
    /// It reports how it fared.
    Stats(MeasStats),
    /// It ended the measurement as planned.
    Ended,
}

/// Where the session stands: `Asking -> Granted -> Running -> Over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request is on its way; the answer is due.
    Asking {
        /// When it must be there.
        deadline: MonoTime,
    },
    /// Granted; the measurers prepare.
    Granted,
    /// The measurers send.
    Running {
        /// When they started.
        started: MonoTime,
    },
    /// Nothing more is expected.
    Over,
}

/// The session of one measurement.
#[derive(Debug)]
pub struct CoordinatorLink {
    /// Its state.
    state: State,
    measurement: MeasurementId,
    /// The requested duration, then the granted one.
    duration_secs: u16,
    /// The ciphers that the target may choose from.
    crypto: Vec<CryptoKind>,
    /// Measurers of the team.
    measurers: usize,
    /// Whether the first report had echoed cells, as soon as it is there.
    counts_echoes: Option<bool>,
    /// The second whose report is due.
    next_second: u16,
    /// The first second of which the target may still say how it fared.
    next_stats: u16,
}

impl CoordinatorLink {
    /// Starts; the cells are to be sent in one go: the request and right after it the probe.
    ///
    /// `probe` is the CREATE_FAST key material: 20 random bytes, which nobody will use.
    ///
    /// # Errors
    /// [`BadRequest`] when no target could read the request: the team has no measurer, more
    /// than [`MAX_MEASURERS`](crate::msg::MAX_MEASURERS) or too many addresses, there is no crypto
    /// kind or more than [`MAX_CRYPTO_KINDS`](crate::msg::MAX_CRYPTO_KINDS), or a number is out of
    /// its bounds.
    pub fn new(
        params: MeasParams,
        key: &SigningKey,
        exporter: &Exporter,
        probe: &[u8; 20],
        now: MonoTime,
    ) -> Result<(Self, [Cell; 2]), BadRequest> {
        let state = State::Asking { deadline: now + ANSWER_TIMEOUT };
        let (measurement, duration_secs) = (params.measurement, params.duration_secs);
        let (crypto, measurers) = (params.crypto.clone(), params.measurers.len());
        let request = Signed::new(params, key, exporter).map_err(BadRequest)?;
        let body = Msg::Params(request).encode().map_err(BadRequest)?;
        let cell = |circ_id, command, body: &[u8]| {
            cell::fixed_cell(circ_id, command, body).map_err(BadRequest)
        };
        let request = cell(0, CMD_MEASUREMENT, &body)?;
        let probe = cell(PROBE_CIRC_ID, CMD_CREATE_FAST, probe)?;
        let link = Self {
            state,
            measurement,
            duration_secs,
            crypto,
            measurers,
            counts_echoes: None,
            next_second: 0,
            next_stats: 0,
        };
        Ok((link, [request, probe]))
    }

    /// Takes the next cell.
    ///
    /// # Errors
    /// [`SessionFailure`]: the measurement has failed.
    pub fn handle(
        &mut self,
        cell: CellRef<'_>,
        now: MonoTime,
    ) -> Result<Option<CoordinatorEvent>, SessionFailure> {
        let asking = matches!(self.state, State::Asking { .. });
        match cell.command {
            command if is_padding(command) => Ok(None),
            // What was on its way when the session ended changes nothing.
            _ if self.state == State::Over => Ok(None),
            // Cells keep their order, so an answer to the probe in front of one to the request
            // means that there will be none.
            CMD_CREATED_FAST | CMD_DESTROY if cell.circ_id == PROBE_CIRC_ID => {
                if asking {
                    Err(SessionFailure::NotSupported)
                } else {
                    Ok(None)
                }
            }
            _ => self.handle_message(read_control(Role::Coordinator, cell)?, now),
        }
    }

    /// Takes a control message (PROTOCOL.md §7.5).
    fn handle_message(
        &mut self,
        message: Msg,
        now: MonoTime,
    ) -> Result<Option<CoordinatorEvent>, SessionFailure> {
        match (message, self.state) {
            (Msg::Err(error), State::Asking { .. }) => Err(SessionFailure::Refused(error)),
            (Msg::Err(error), _) => Err(SessionFailure::Aborted(error)),
            (Msg::ParamsOk(grant), State::Asking { .. }) => {
                self.check_grant(&grant)?;
                self.duration_secs = grant.duration_secs;
                self.state = State::Granted;
                Ok(Some(CoordinatorEvent::Granted(grant)))
            }
            (Msg::Bg(report), State::Running { started }) => {
                let expected = self.next_second;
                if report.second != expected || expected == self.duration_secs {
                    let got = report.second;
                    return Err(PeerViolation::ReportOutOfOrder { got, expected }.into());
                }
                check_time(report.second, started, now)?;
                self.check_echoed(report.echoed.as_ref())?;
                self.next_second += 1;
                Ok(Some(CoordinatorEvent::Background(report)))
            }
            (Msg::Stats(report), State::Running { started }) => {
                let (got, expected) = (report.second, self.next_stats);
                if !(expected..self.duration_secs).contains(&got) {
                    return Err(PeerViolation::ReportOutOfOrder { got, expected }.into());
                }
                check_time(got, started, now)?;
                self.next_stats = got + 1;
                Ok(Some(CoordinatorEvent::Stats(report)))
            }
            (Msg::End(end), State::Granted | State::Running { .. })
                if end.measurement == self.measurement =>
            {
                // The target must not choose by itself how many seconds count.
                if !self.is_reported() {
                    return Err(SessionFailure::EndedEarly);
                }
                self.state = State::Over;
                Ok(Some(CoordinatorEvent::Ended))
            }
            _ => {
                Err(PeerViolation::UnexpectedMessage("a message on the coordinator's link").into())
            }
        }
    }

    /// Whether the grant answers what was asked.
    fn check_grant(&self, grant: &MeasParamsOk) -> Result<(), PeerViolation> {
        if grant.measurement != self.measurement {
            return Err(PeerViolation::BadGrant("another measurement"));
        }
        if grant.duration_secs > self.duration_secs {
            return Err(PeerViolation::BadGrant("a longer duration"));
        }
        // The relay must not choose how many seconds count: a burst is not its capacity.
        if grant.duration_secs < self.duration_secs.min(MIN_GRANT_SECS) {
            return Err(PeerViolation::BadGrant("a shorter duration than any relay may insist on"));
        }
        // The relay must not choose a cheaper cipher than any that the coordinator takes.
        if !self.crypto.contains(&grant.crypto) {
            return Err(PeerViolation::BadGrant("a crypto kind that was not asked for"));
        }
        if !CryptoKind::SUPPORTED.contains(&grant.crypto) {
            return Err(PeerViolation::BadGrant("an unknown crypto kind"));
        }
        Ok(())
    }

    /// Whether a report's echoed cells are those of our team, and in all reports or in none: a
    /// relay must not choose for which seconds it says what it has echoed.
    fn check_echoed(&mut self, echoed: Option<&TeamCells>) -> Result<(), PeerViolation> {
        if *self.counts_echoes.get_or_insert(echoed.is_some()) != echoed.is_some() {
            return Err(PeerViolation::UnexpectedMessage("a list of echoed cells in some reports"));
        }
        let team = self.measurers as u64;
        match echoed.map(|cells| cells.as_slice().len() as u64) {
            Some(value) if value != team => {
                Err(PeerViolation::Malformed(DecodeError::OutOfRange {
                    field: "measurers with echoed cells",
                    value,
                    min: team,
                    max: team,
                }))
            }
            _ => Ok(()),
        }
    }

    /// Notes when the measurers start; to be called before they do.
    pub fn start(&mut self, at: MonoTime) {
        if self.state == State::Granted {
            self.state = State::Running { started: at };
        }
    }

    /// Whether every second has been reported.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.next_second == self.duration_secs
    }

    /// When something must have come.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        match self.state {
            State::Asking { deadline } => Some(deadline),
            State::Running { started } if !self.is_reported() => {
                let due = Duration::from_secs(u64::from(self.next_second) + 1);
                Some(started + due + REPORT_TIMEOUT)
            }
            _ => None,
        }
    }

    /// Notes the time.
    ///
    /// # Errors
    /// [`SessionFailure::Timeout`] when something due has not come.
    pub fn handle_timeout(&mut self, now: MonoTime) -> Result<(), SessionFailure> {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        let what = match self.state {
            State::Asking { .. } => "an answer to the request",
            _ => "its per-second report",
        };
        self.state = State::Over;
        Err(SessionFailure::Timeout(what))
    }

    /// Ends the session as planned; the cell is to be sent.
    pub fn end(&mut self) -> Cell {
        self.state = State::Over;
        control_cell(0, &Msg::End(MeasEnd { measurement: self.measurement }))
    }

    /// Gives the measurement up; the cell is to be sent.
    pub fn abort(&mut self, why: &str) -> Cell {
        self.state = State::Over;
        control_cell(0, &Msg::Err(MeasErr::new(ErrCode::ABORTED, why)))
    }
}

/// Whether a second can be over: the target's first one begins with the first echo cell, which
/// nobody has sent before the start (PROTOCOL.md §7.5).
fn check_time(second: u16, started: MonoTime, now: MonoTime) -> Result<(), PeerViolation> {
    let over = started + Duration::from_secs(u64::from(second) + 1);
    let early = over.since(now + REPORT_EARLY);
    if early.is_zero() { Ok(()) } else { Err(PeerViolation::ReportTooEarly { second, early }) }
}
