//! The coordinator's end of its link to the target.
//!
//! [`CoordinatorLink::new`] returns the first two cells. Then call [`handle`] for every cell,
//! [`handle_timeout`] at the time of [`poll_timeout`], [`start`] before the measurers start, and
//! finally send the cell of [`end`] or [`abort`].
//!
//! [`handle`]: CoordinatorLink::handle
//! [`handle_timeout`]: CoordinatorLink::handle_timeout
//! [`poll_timeout`]: CoordinatorLink::poll_timeout
//! [`start`]: CoordinatorLink::start
//! [`end`]: CoordinatorLink::end
//! [`abort`]: CoordinatorLink::abort

use core::time::Duration;

use ed25519_dalek::SigningKey;

use super::measurer::{control_cell, read_control};
use super::{Padding, PeerViolation, SessionFailure};
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

/// The circuit id of the probe: any id with the initiator's bit.
pub const PROBE_CIRC_ID: u32 = 0x8000_0002;
/// Time limit of the target's first answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The least value of FFMaxMeasurementDuration: no relay may grant fewer seconds, unless fewer were
/// requested.
const MIN_GRANT_SECS: u16 = 10;
/// How late a second's report may arrive.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much earlier than the end of its second a report may arrive, because clocks differ.
const REPORT_EARLY: Duration = Duration::from_millis(100);

/// A request with a number out of its bounds, or that does not fit into a cell: a bug of the
/// caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be made")]
pub struct BadRequest(#[source] DecodeError);

/// Events of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorEvent {
    /// It grants the measurement.
    Granted(MeasParamsOk),
    /// It reports a second's background traffic, and the cells echoed to each measurer if it counts
    /// them.
    Background(MeasBg),
    /// It reports its load.
    Stats(MeasStats),
    /// It ended the measurement as planned.
    Ended,
}

/// The most cells of the probe's circuit: its answer and its end.
const MAX_OF_PROBE: u8 = 2;

/// The state of the session: `Asking -> Granted -> Running -> Over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request has been sent and not answered.
    Asking {
        /// The time limit of the answer.
        deadline: MonoTime,
    },
    /// The measurement is granted; the measurers prepare.
    Granted,
    /// The measurers send.
    Running {
        /// When they started.
        started: MonoTime,
    },
    /// The session has ended.
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
    /// The number of measurers of the team.
    measurers: usize,
    /// Whether the first report had echoed cells; `None` before it.
    counts_echoes: Option<bool>,
    /// The second of the next report.
    next_second: u16,
    /// The first second for which the target may still report its load.
    next_stats: u16,
    padding: Padding,
    /// The cells of the probe's circuit that came after the grant.
    of_probe: u8,
}

impl CoordinatorLink {
    /// Starts the session; the cells must be sent together: the request, followed by the probe.
    ///
    /// `probe` is the CREATE_FAST key material: 20 random bytes, which are not used further.
    ///
    /// # Errors
    /// [`BadRequest`] if no target could read the request: the team has no measurer, more than
    /// [`MAX_MEASURERS`](crate::msg::MAX_MEASURERS) or too many addresses, there is no crypto kind
    /// or more than [`MAX_CRYPTO_KINDS`](crate::msg::MAX_CRYPTO_KINDS), or a number is out of its
    /// bounds.
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
            padding: Padding::default(),
            of_probe: 0,
        };
        Ok((link, [request, probe]))
    }

    /// Handles the next cell.
    ///
    /// # Errors
    /// [`SessionFailure`] if the measurement has failed.
    pub fn handle(
        &mut self,
        cell: CellRef<'_>,
        now: MonoTime,
    ) -> Result<Option<CoordinatorEvent>, SessionFailure> {
        if self.padding.take(&cell)? {
            return Ok(None);
        }
        match cell.command {
            // Cells that were in flight when the session ended are ignored.
            _ if self.state == State::Over => Ok(None),
            // Cells keep their order, so an answer to the probe before one to the request means
            // that there will be none.
            CMD_CREATED_FAST | CMD_DESTROY if cell.circ_id == PROBE_CIRC_ID => {
                self.handle_probes(cell.command)
            }
            _ => self.handle_message(read_control(Role::Coordinator, cell)?, now),
        }
    }

    /// Handles a cell of the probe's circuit: its answer, or its end.
    fn handle_probes(&mut self, command: u8) -> Result<Option<CoordinatorEvent>, SessionFailure> {
        if matches!(self.state, State::Asking { .. }) {
            return Err(SessionFailure::NotSupported);
        }
        if self.of_probe >= MAX_OF_PROBE {
            return Err(PeerViolation::UnexpectedCommand(command).into());
        }
        self.of_probe += 1;
        Ok(None)
    }

    /// Handles a control message (PROTOCOL.md §7.5).
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
                // The target must not choose the number of counted seconds.
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

    /// Checks that the grant fits the request.
    fn check_grant(&self, grant: &MeasParamsOk) -> Result<(), PeerViolation> {
        if grant.measurement != self.measurement {
            return Err(PeerViolation::BadGrant("another measurement"));
        }
        if grant.duration_secs > self.duration_secs {
            return Err(PeerViolation::BadGrant("a longer duration"));
        }
        // The relay must not choose the number of counted seconds: a burst is not its capacity.
        if grant.duration_secs < self.duration_secs.min(MIN_GRANT_SECS) {
            return Err(PeerViolation::BadGrant("a shorter duration than any relay may insist on"));
        }
        // The relay must not choose a cipher that the coordinator does not accept.
        if !self.crypto.contains(&grant.crypto) {
            return Err(PeerViolation::BadGrant("a crypto kind that was not asked for"));
        }
        if !CryptoKind::SUPPORTED.contains(&grant.crypto) {
            return Err(PeerViolation::BadGrant("an unknown crypto kind"));
        }
        Ok(())
    }

    /// Checks that a report's echoed cells are for our team, and in all reports or in none: a relay
    /// must not choose the seconds for which it reports echoes.
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

    /// Notes when the measurers start; must be called before they do.
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

    /// When the next message must have arrived.
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
    /// [`SessionFailure::Timeout`] when an expected message has not arrived.
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

    /// Ends the session as planned; the returned cell must be sent.
    pub fn end(&mut self) -> Cell {
        self.state = State::Over;
        control_cell(0, &Msg::End(MeasEnd { measurement: self.measurement }))
    }

    /// Aborts the measurement; the returned cell must be sent.
    pub fn abort(&mut self, why: &str) -> Cell {
        self.state = State::Over;
        control_cell(0, &Msg::Err(MeasErr::new(ErrCode::ABORTED, why)))
    }
}

/// Checks that a second can be over: the target's first one begins with the first echo cell, which
/// is not sent before the start (PROTOCOL.md §7.5).
fn check_time(second: u16, started: MonoTime, now: MonoTime) -> Result<(), PeerViolation> {
    let over = started + Duration::from_secs(u64::from(second) + 1);
    let early = over.since(now + REPORT_EARLY);
    if early.is_zero() { Ok(()) } else { Err(PeerViolation::ReportTooEarly { second, early }) }
}
