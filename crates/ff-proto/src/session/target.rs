//! The target's end of all its measurement links: permission, start and end of measurements.
//!
//! A target is idle, granted or running, with one measurement at a time. STATES.md draws the
//! transitions; `Target::end` is the only way back to idle.
//!
//! Measurement links stay open for two seconds after their measurement: a link that is closed with
//! unread input is reset, and its last message is lost. Until their peer closes them or the time is
//! over they are [`LinkPart::Ending`], and the host drops their cells.
//!
//! The host calls [`handle_control`] for every MEASUREMENT cell, [`handle_link_closed`],
//! [`handle_timeout`] at the time of [`poll_timeout`], and after each of them takes all outputs
//! from [`poll_output`]. A link's [`EchoCircuit`] belongs to the host, which calls
//! [`EchoCircuit::echo`] per cell and [`on_echoed`] and [`on_background`] once for many cells.
//!
//! [`handle_control`]: Target::handle_control
//! [`handle_link_closed`]: Target::handle_link_closed
//! [`handle_timeout`]: Target::handle_timeout
//! [`poll_timeout`]: Target::poll_timeout
//! [`poll_output`]: Target::poll_output
//! [`on_echoed`]: Target::on_echoed
//! [`on_background`]: Target::on_background

use core::time::Duration;
use std::collections::VecDeque;

use super::grants::{GrantHistory, choose_crypto, sockets};
pub use super::grants::{GrantRecord, Policy};
pub use super::measurement::{Arrival, LinkId};
use super::measurement::{Measurement, Progress};
use super::measurer::control_cell;
use super::refusals::{
    BAD_CIRCUIT_ID, BAD_SIGNATURE, BUSY, LINK_IS_USED, NOT_FOR_TARGETS, NOT_STORED, NOT_YOURS,
    Refusal, RefusalLog, SECOND_CIRCUIT, UNKNOWN_MEASUREMENT, unreadable,
};
use crate::cell::Cell;
use crate::circuit::EchoCircuit;
use crate::ids::{CryptoKind, Ed25519Id, MeasurementId, MeasurerIndex};
use crate::msg::{
    ErrCode, MeasCreate, MeasEnd, MeasErr, MeasParams, MeasParamsOk, MeasurerGrant, Msg, Role,
    Signed,
};
use crate::units::{Cells, MonoTime, Ratio};

/// How long measurement links stay open after the last message of their measurement.
const LINGER: Duration = Duration::from_secs(2);
/// The largest number of refused messages on a coordinator's link; one more ends the measurement.
const MAX_REFUSALS: u8 = 8;

/// An action that the host must take, in the order of the outputs.
#[derive(Debug)]
pub enum Output {
    /// Send this cell on this link.
    Send(LinkId, Box<Cell>),
    /// This link is a measurement link from now on; MEAS_ECHO cells go through the circuit.
    Open(LinkId, Box<EchoCircuit>),
    /// The measurement of this link has ended: drop its circuit and its MEAS_ECHO cells.
    Over(LinkId),
    /// Send pending bytes and close this link.
    Close(LinkId),
    /// Report this to the operator.
    Tell(TargetEvent),
}

/// A link's part in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPart {
    /// None: its traffic is background.
    None,
    /// The granted or running measurement was requested on it.
    Coordinator,
    /// It has a measurement circuit.
    Measurement,
    /// It had one. Its cells are dropped until it closes.
    Ending,
}

/// Events for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetEvent {
    /// A request was refused.
    Refused {
        /// The error sent to the peer.
        error: MeasErr,
        /// The number of earlier refusals that were not reported to the operator, because there
        /// were too many.
        untold: u64,
    },
    /// A measurement was granted.
    Granted {
        /// The coordinator.
        coordinator: Ed25519Id,
        /// The measurement's id.
        measurement: MeasurementId,
        /// Its length in seconds.
        duration_secs: u16,
        /// The number of sockets of all measurers.
        sockets: u32,
    },
    /// The first echo cell arrived.
    Started(MeasurementId),
    /// A measurement has ended, and the relay is back in normal service.
    Ended {
        /// The measurement's id.
        measurement: MeasurementId,
        /// The coordinator.
        coordinator: Ed25519Id,
        /// The code of its failure; `None` when it ended as planned.
        failure: Option<ErrCode>,
        /// Bytes echoed.
        echoed_bytes: u64,
    },
}

/// All measurement links of one relay.
#[derive(Debug)]
pub struct Target {
    policy: Policy,
    /// The ciphers that the host supports.
    supported: &'static [CryptoKind],
    /// The grants that still count.
    history: GrantHistory,
    /// The granted or running measurement.
    measurement: Option<Measurement>,
    /// Links of ended measurements, with the time until which they may stay open.
    ending: Vec<(LinkId, MonoTime)>,
    /// The number of refused requests since the start.
    refused: u64,
    /// Limits the refusals that are reported.
    log: RefusalLog,
    /// Limits the grants that cannot be stored: each costs a write to the disk and lines in logs.
    unstored: RefusalLog,
    /// Outputs that the host has not taken.
    output: VecDeque<Output>,
}

impl Target {
    /// An idle target with these earlier grants.
    #[must_use]
    pub fn new(policy: Policy, history: Vec<GrantRecord>) -> Self {
        Self {
            policy,
            supported: CryptoKind::SUPPORTED,
            history: GrantHistory::new(history),
            measurement: None,
            ending: Vec::new(),
            refused: 0,
            log: RefusalLog::default(),
            unstored: RefusalLog::default(),
            output: VecDeque::new(),
        }
    }

    /// Grants only these ciphers, for a host that decrypts with its own code and does not support
    /// all of [`CryptoKind::SUPPORTED`]. Unknown ones are never granted.
    pub fn support_only(&mut self, supported: &'static [CryptoKind]) {
        self.supported = supported;
    }

    /// Sets the policy. A measurement keeps what it was granted, and ends if this policy does not
    /// allow it.
    pub fn set_policy(&mut self, policy: Policy, now: MonoTime) {
        self.policy = policy;
        let Some(measurement) = &self.measurement else { return };
        if let Err((code, _)) = self.policy.check_coordinator(&measurement.coordinator) {
            self.end(Some(code), now);
        }
    }

    /// A link's part in the granted or running measurement, or in one that has just ended.
    #[must_use]
    pub fn part_of(&self, link: LinkId) -> LinkPart {
        match &self.measurement {
            Some(measurement) if measurement.coordinator_link == link => LinkPart::Coordinator,
            Some(measurement) if measurement.links.contains(&link) => LinkPart::Measurement,
            _ if self.is_ending(link) => LinkPart::Ending,
            _ => LinkPart::None,
        }
    }

    /// Whether the link's measurement has ended, and the link has not.
    fn is_ending(&self, link: LinkId) -> bool {
        self.ending.iter().any(|&(ending, _)| ending == link)
    }

    /// Handles a MEASUREMENT cell.
    pub fn handle_control(&mut self, arrival: &Arrival<'_>) {
        let result = match Msg::decode_for(Role::Target, arrival.body) {
            Ok(Msg::Params(request)) => self.handle_params(arrival, &request),
            Ok(Msg::Create(request)) => self.handle_create(arrival, &request),
            Ok(Msg::End(end)) => self.handle_end(arrival, end.measurement),
            Ok(Msg::Err(error)) => self.handle_err(arrival, error.code),
            Ok(_) => Err(NOT_FOR_TARGETS),
            Err(error) => Err(unreadable(&error)),
        };
        if let Err((code, text)) = result {
            self.refuse(arrival, code, text);
        }
    }

    /// Answers with MEAS_ERR. The link closes unless it is needed for a measurement, which ends
    /// after too many refusals.
    fn refuse(&mut self, arrival: &Arrival<'_>, code: ErrCode, text: &str) {
        let error = MeasErr::new(code, text);
        self.send(arrival.link, arrival.circ_id, &Msg::Err(error.clone()));
        self.refused += 1;
        if let Some(untold) = self.log.note(arrival.now) {
            self.output.push_back(Output::Tell(TargetEvent::Refused { error, untold }));
        }
        match &mut self.measurement {
            Some(measurement) if measurement.coordinator_link == arrival.link => {
                measurement.refusals += 1;
                if measurement.refusals > MAX_REFUSALS {
                    self.end(Some(ErrCode::TOO_MANY_ERRORS), arrival.now);
                }
            }
            _ => self.close(arrival.link, arrival.now),
        }
    }

    /// Closes a link that no measurement needs.
    fn close(&mut self, link: LinkId, now: MonoTime) {
        self.output.push_back(Output::Close(link));
        self.handle_link_closed(link, now);
    }

    /// Handles MEAS_PARAMS.
    fn handle_params(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasParams>,
    ) -> Result<(), Refusal> {
        // The list is checked before the signature: no signature is verified for an unlisted peer.
        self.policy.check_coordinator(request.claimed_signer())?;
        let (&coordinator, params) = request.verify(arrival.exporter).ok_or(BAD_SIGNATURE)?;
        if self.measurement.is_some() {
            return Err(BUSY);
        }
        if arrival.has_circuits || self.is_ending(arrival.link) {
            return Err(LINK_IS_USED);
        }
        self.policy.check_team(params)?;
        let crypto = choose_crypto(params, self.supported)?;
        if self.unstored.is_full(arrival.now) {
            return Err(NOT_STORED);
        }
        let record = GrantRecord { coordinator, unix_secs: arrival.unix_secs };
        self.history.use_up(record, self.policy.period)?;
        self.grant(arrival, coordinator, params, crypto);
        Ok(())
    }

    /// Answers MEAS_PARAMS_OK and waits for the team.
    fn grant(
        &mut self,
        arrival: &Arrival<'_>,
        coordinator: Ed25519Id,
        params: &MeasParams,
        crypto: CryptoKind,
    ) {
        let duration_secs = params.duration_secs.min(self.policy.max_duration_secs.get());
        let measurement = params.measurement;
        let ratio = self.policy.ratio;
        let answer = MeasParamsOk { measurement, duration_secs, ratio, crypto };
        self.measurement = Some(Measurement::new(arrival, coordinator, params, &answer));
        self.send(arrival.link, arrival.circ_id, &Msg::ParamsOk(answer));
        let sockets = sockets(params);
        self.output.push_back(Output::Tell(TargetEvent::Granted {
            coordinator,
            measurement,
            duration_secs,
            sockets,
        }));
    }

    /// Handles MEAS_CREATE.
    fn handle_create(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasCreate>,
    ) -> Result<(), Refusal> {
        let is_ending = self.is_ending(arrival.link);
        let measurement = self.measurement.as_mut().ok_or(UNKNOWN_MEASUREMENT)?;
        if request.unverified().measurement != measurement.id {
            return Err(UNKNOWN_MEASUREMENT);
        }
        if arrival.circ_id & 0x8000_0000 == 0 {
            return Err(BAD_CIRCUIT_ID);
        }
        let is_used = measurement.links.contains(&arrival.link) || is_ending;
        if is_used || measurement.coordinator_link == arrival.link {
            return Err(SECOND_CIRCUIT);
        }
        if arrival.has_circuits {
            return Err(LINK_IS_USED);
        }
        let (answer, circuit) = measurement.admit(arrival, request)?;
        self.send(arrival.link, arrival.circ_id, &Msg::Created(answer));
        self.output.push_back(Output::Open(arrival.link, Box::new(circuit)));
        Ok(())
    }

    /// Handles MEAS_END, which is allowed on the coordinator's link only.
    fn handle_end(&mut self, arrival: &Arrival<'_>, id: MeasurementId) -> Result<(), Refusal> {
        match &self.measurement {
            Some(measurement)
                if measurement.id == id && measurement.coordinator_link == arrival.link =>
            {
                self.end(None, arrival.now);
                Ok(())
            }
            _ => Err(NOT_YOURS),
        }
    }

    /// Handles MEAS_ERR: the coordinator gives up, or a measurer's link has failed. It is never
    /// answered.
    fn handle_err(&mut self, arrival: &Arrival<'_>, code: ErrCode) -> Result<(), Refusal> {
        if self.measurement.as_ref().is_some_and(|m| m.coordinator_link == arrival.link) {
            self.end(Some(code), arrival.now);
        } else {
            self.close(arrival.link, arrival.now);
        }
        Ok(())
    }

    /// Notes that a link has closed.
    pub fn handle_link_closed(&mut self, link: LinkId, now: MonoTime) {
        self.ending.retain(|&(ending, _)| ending != link);
        let Some(measurement) = &mut self.measurement else { return };
        if measurement.coordinator_link == link {
            self.end(Some(ErrCode::COORDINATOR_GONE), now);
        } else {
            measurement.links.retain(|&open| open != link);
        }
    }

    /// Counts cells that circuits of a measurer ([`EchoCircuit::measurer`]) have echoed; the first
    /// of them start the measurement.
    ///
    /// Returns whether there is a measurement. Otherwise the cells must not be sent: the
    /// coordinator would blame a measurer for cells that were not counted.
    pub fn on_echoed(&mut self, measurer: MeasurerIndex, cells: Cells, now: MonoTime) -> bool {
        let Some(measurement) = &mut self.measurement else { return false };
        if measurement.count_echoed(measurer, cells, now) {
            let event = TargetEvent::Started(measurement.id);
            self.output.push_back(Output::Tell(event));
        }
        true
    }

    /// Counts bytes that are not measurement traffic.
    pub fn on_background(&mut self, sent_bytes: u64, received_bytes: u64) {
        if let Some(measurement) = &mut self.measurement {
            measurement.count_background(sent_bytes, received_bytes);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        let measurement = self.measurement.as_ref().map(Measurement::due);
        // Links are added after those that have been ending for longer.
        let ending = self.ending.first().map(|&(_, until)| until);
        [measurement, ending].into_iter().flatten().min()
    }

    /// Reports the seconds that are over, and ends what is due.
    pub fn handle_timeout(&mut self, now: MonoTime) {
        let over = self.ending.partition_point(|&(_, until)| until <= now);
        let closing = self.ending.drain(..over).map(|(link, _)| Output::Close(link));
        self.output.extend(closing);
        while let Some(measurement) = &mut self.measurement {
            if measurement.due() > now {
                return;
            }
            match measurement.progress {
                Progress::Granted { .. } => self.end(Some(ErrCode::NOT_STARTED), now),
                Progress::Running { started, second } => {
                    measurement.progress = Progress::Running { started, second: second + 1 };
                    let report = measurement.report(second);
                    let is_last = second + 1 >= measurement.duration_secs;
                    let link = measurement.coordinator_link;
                    self.send(link, 0, &Msg::Bg(report));
                    if is_last {
                        self.end(None, now);
                    }
                }
            }
        }
    }

    /// Ends the current measurement with this code, because of something inside the relay.
    pub fn abort(&mut self, code: ErrCode, now: MonoTime) {
        self.end(Some(code), now);
    }

    /// Withdraws the grant of the last request, whose answer has not been sent, because it cannot
    /// be stored; it then does not count. After ten of these in a minute, requests are refused until
    /// it is over.
    pub fn take_back(&mut self, now: MonoTime) {
        let link = self.measurement.as_ref().map(|measurement| measurement.coordinator_link);
        self.output.retain(|output| match output {
            Output::Send(to, _) => Some(*to) != link,
            Output::Tell(TargetEvent::Granted { .. }) => false,
            _ => true,
        });
        self.history.forget_last();
        let _ = self.unstored.note(now);
        self.end(Some(ErrCode::INTERNAL), now);
    }

    /// Ends the measurement: notifies all links, lets its links end, and removes it.
    fn end(&mut self, failure: Option<ErrCode>, now: MonoTime) {
        let Some(measurement) = self.measurement.take() else { return };
        let echoed_bytes = measurement.echoed_bytes();
        let Measurement { id, coordinator, coordinator_link, links, .. } = measurement;
        let message = match failure {
            None => Msg::End(MeasEnd { measurement: id }),
            Some(code) => Msg::Err(MeasErr::new(code, "the measurement has ended")),
        };
        self.send(coordinator_link, 0, &message);
        if failure.is_some() {
            self.output.push_back(Output::Close(coordinator_link));
        }
        for link in links {
            self.send(link, 0, &message);
            self.output.push_back(Output::Over(link));
            self.ending.push((link, now + LINGER));
        }
        self.output.push_back(Output::Tell(TargetEvent::Ended {
            measurement: id,
            coordinator,
            failure,
            echoed_bytes,
        }));
    }

    /// Queues a control message.
    fn send(&mut self, link: LinkId, circ_id: u32, message: &Msg) {
        self.output.push_back(Output::Send(link, Box::new(control_cell(circ_id, message))));
    }

    /// Takes the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Whether a measurement is running: its first cell has been echoed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.measurement.as_ref().is_some_and(Measurement::is_running)
    }

    /// Whether background traffic must be limited now: while measurement links are open in a
    /// running measurement.
    #[must_use]
    pub fn limits_background(&self) -> bool {
        let has_links =
            self.measurement.as_ref().is_some_and(|measurement| !measurement.links.is_empty());
        has_links && self.is_running()
    }

    /// The granted background ratio; without a measurement, the policy's.
    #[must_use]
    pub fn ratio(&self) -> Ratio {
        self.measurement.as_ref().map_or(self.policy.ratio, |measurement| measurement.ratio)
    }

    /// Whether no measurement is granted or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.measurement.is_none()
    }

    /// The number of refused requests since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The grants to keep across a restart.
    #[must_use]
    pub fn history(&self) -> &[GrantRecord] {
        self.history.records()
    }

    /// Removes the oldest grants of the history, which the host knows to be too old to count.
    pub fn forget_grants(&mut self, count: usize) {
        self.history.forget_oldest(count);
    }

    /// The number of grants since the start: when it grows, the history must be stored.
    #[must_use]
    pub fn grants_given(&self) -> u64 {
        self.history.given()
    }

    /// The team of the granted or running measurement, for the host's exemptions.
    #[must_use]
    pub fn team(&self) -> &[MeasurerGrant] {
        self.measurement.as_ref().map_or(&[], |measurement| &measurement.team)
    }
}
