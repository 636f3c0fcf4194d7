//! The target's end of all its measurement links: who may measure, when, and for how long.
//!
//! ```text
//!            MEAS_PARAMS, allowed                first MEAS_ECHO
//!   Idle ───────────────────────▶ Granted ───────────────────────▶ Running
//!    ▲                               │                                │ MEAS_BG every second
//!    └───────────────────────────────┴────────────────────────────────┘
//!      coordinator's link closed · MEAS_END or MEAS_ERR from it · time is up · the host's abort
//! ```
//!
//! The host calls [`handle_control`] for every MEASUREMENT cell, [`handle_link_closed`],
//! [`handle_timeout`] when the time of [`poll_timeout`] has come, and after each of them takes
//! everything out of [`poll_output`]. A link's [`EchoCircuit`] belongs to the host, which calls
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

use super::measurer::control_cell;
use crate::auth::Exporter;
use crate::cell::Cell;
use crate::circuit::{EchoCircuit, EphemeralKey, Exchange};
use crate::codec::DecodeError;
use crate::msg::{
    CryptoKind, Ed25519Id, ErrCode, MeasBg, MeasCreate, MeasCreated, MeasEnd, MeasErr, MeasParams,
    MeasParamsOk, MeasurementId, MeasurerGrant, Msg, Signed,
};
use crate::units::{Cells, MonoTime, Ratio};

/// How long a grant waits for the first echo cell.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Grants to one coordinator within a period: one, and a retry (prop316).
const GRANTS_PER_PERIOD: usize = 2;

/// The host's name for a link; never reused while the link's output is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u64);

/// What the relay's operator and the consensus allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether the relay takes part at all.
    pub enabled: bool,
    /// Who may measure it.
    pub coordinators: Vec<Ed25519Id>,
    /// Within which time a coordinator may measure once, and retry once.
    pub period: Duration,
    /// The background ratio it keeps to.
    pub ratio: Ratio,
    /// The longest measurement, in seconds.
    pub max_duration_secs: u16,
}

/// A MEASUREMENT cell, and where and when it came.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The link.
    pub link: LinkId,
    /// The cell's circuit id.
    pub circ_id: u32,
    /// The cell's body.
    pub body: &'a [u8],
    /// The link's TLS exporter.
    pub exporter: &'a Exporter,
    /// 32 fresh random bytes.
    pub entropy: [u8; 32],
    /// Monotonic time.
    pub now: MonoTime,
    /// Wall-clock time, in seconds since 1970.
    pub unix_secs: u64,
}

/// What the host must do, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send this cell on this link.
    Send(LinkId, Box<Cell>),
    /// This link is a measurement link from here on; MEAS_ECHO cells go through the circuit.
    Open(LinkId, Box<EchoCircuit>),
    /// Send what is pending and close this link.
    Close(LinkId),
    /// Tell the operator.
    Tell(TargetEvent),
}

/// What the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetEvent {
    /// A request was refused.
    Refused(MeasErr),
    /// A measurement was granted.
    Granted {
        /// To whom.
        coordinator: Ed25519Id,
        /// Its name.
        measurement: MeasurementId,
        /// Its length in seconds.
        duration_secs: u16,
        /// Sockets over all measurers.
        sockets: u32,
    },
    /// The first echo cell came.
    Started(MeasurementId),
    /// It is over, and normal service is back.
    Ended {
        /// Its name.
        measurement: MeasurementId,
        /// Whose it was.
        coordinator: Ed25519Id,
        /// `None` when it ended as planned.
        failure: Option<ErrCode>,
        /// Bytes echoed.
        echoed_bytes: u64,
    },
}

/// A grant to a coordinator, kept across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// To whom.
    pub coordinator: Ed25519Id,
    /// When, in seconds since 1970.
    pub unix_secs: u64,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// Waiting for the first echo cell.
    Granted {
        /// When the grant lapses.
        lapses: MonoTime,
    },
    /// Echoing.
    Running {
        /// When the first echo cell came.
        started: MonoTime,
        /// The second that is being counted.
        second: u16,
    },
}

/// The measurement that is granted or running.
#[derive(Debug)]
struct Measurement {
    /// Its name.
    id: MeasurementId,
    /// Whose it is.
    coordinator: Ed25519Id,
    /// The link it was asked for on.
    coordinator_link: LinkId,
    /// Seconds granted.
    duration_secs: u16,
    /// The background ratio granted.
    ratio: Ratio,
    /// The cipher granted.
    crypto: CryptoKind,
    /// Who may open links, and how many more.
    team: Vec<MeasurerGrant>,
    /// The open measurement links; at most the team's sockets.
    links: Vec<LinkId>,
    /// How far it is.
    progress: Progress,
    /// Cells echoed.
    echoed: Cells,
    /// Background bytes sent and received in the second being counted.
    background: (u64, u64),
}

/// All measurement links of one relay.
#[derive(Debug)]
pub struct Target {
    /// What is allowed.
    policy: Policy,
    /// The ciphers that the host has.
    supported: &'static [CryptoKind],
    /// Grants of the last period.
    history: Vec<GrantRecord>,
    /// Grants since the start.
    grants_given: u64,
    /// At most one at a time.
    measurement: Option<Measurement>,
    /// What the host has not taken yet.
    output: VecDeque<Output>,
}

/// A request that is refused, and what the peer is told.
type Refusal = (ErrCode, &'static str);

/// The refusal of a request that lists no cipher which is spoken here.
const NO_COMMON_CRYPTO: Refusal =
    (ErrCode::NO_COMMON_CRYPTO, "none of the request's crypto kinds is spoken here");

impl Target {
    /// An idle target that remembers earlier grants.
    #[must_use]
    pub fn new(policy: Policy, history: Vec<GrantRecord>) -> Self {
        Self {
            policy,
            supported: CryptoKind::SUPPORTED,
            history,
            grants_given: 0,
            measurement: None,
            output: VecDeque::new(),
        }
    }

    /// Grants only these ciphers, for a host that decrypts by itself and does not have all of
    /// [`CryptoKind::SUPPORTED`]. Unknown ones are never granted.
    pub fn support_only(&mut self, supported: &'static [CryptoKind]) {
        self.supported = supported;
    }

    /// Takes new options; a measurement that is going on keeps what it was granted.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Takes a MEASUREMENT cell.
    pub fn handle_control(&mut self, arrival: &Arrival<'_>) {
        let result = match Msg::decode(arrival.body) {
            Ok(Msg::Params(request)) => self.handle_params(arrival, &request),
            Ok(Msg::Create(request)) => self.handle_create(arrival, &request),
            Ok(Msg::End(end)) => self.handle_end(arrival, end.measurement),
            Ok(Msg::Err(error)) => self.handle_err(arrival, error.code),
            Ok(_) => Err((ErrCode::UNEXPECTED_MESSAGE, "targets send this message")),
            Err(DecodeError::UnknownVersion(_)) => {
                Err((ErrCode::UNKNOWN_VERSION, "only version 1 is spoken here"))
            }
            Err(DecodeError::UnknownCommand(_)) => {
                Err((ErrCode::UNKNOWN_COMMAND, "this command is not known here"))
            }
            Err(_) => Err((ErrCode::MALFORMED, "the message does not decode")),
        };
        if let Err((code, text)) = result {
            self.refuse(arrival, code, text);
        }
    }

    /// Answers with MEAS_ERR. The link closes unless a measurement hangs on it.
    fn refuse(&mut self, arrival: &Arrival<'_>, code: ErrCode, text: &str) {
        let error = MeasErr::new(code, text);
        self.send(arrival.link, arrival.circ_id, &Msg::Err(error.clone()));
        self.output.push_back(Output::Tell(TargetEvent::Refused(error)));
        let is_coordinators =
            self.measurement.as_ref().is_some_and(|m| m.coordinator_link == arrival.link);
        if !is_coordinators {
            self.output.push_back(Output::Close(arrival.link));
            self.handle_link_closed(arrival.link);
        }
    }

    /// MEAS_PARAMS.
    fn handle_params(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasParams>,
    ) -> Result<(), Refusal> {
        if !self.policy.enabled {
            return Err((ErrCode::DISABLED, "this relay does not take part in measurements"));
        }
        // The list comes before the signature: an unlisted peer gets no signature check from us.
        let claimed = request.claimed_signer();
        if !self.policy.coordinators.contains(claimed) {
            return Err((ErrCode::COORDINATOR_NOT_ALLOWED, "not in FFAllowedCoordinators"));
        }
        let bad_signature = (ErrCode::BAD_SIGNATURE, "the signature is not good on this link");
        let (&coordinator, params) = request.verify(arrival.exporter).ok_or(bad_signature)?;
        if self.measurement.is_some() {
            return Err((ErrCode::BUSY, "another measurement is going on"));
        }
        let crypto = self.choose_crypto(params).ok_or(NO_COMMON_CRYPTO)?;
        self.note_grant(coordinator, arrival.unix_secs)?;
        self.grant(arrival, coordinator, params, crypto);
        Ok(())
    }

    /// The first cipher of the coordinator's that is known and supported here.
    fn choose_crypto(&self, params: &MeasParams) -> Option<CryptoKind> {
        let is_spoken = |kind: &CryptoKind| {
            self.supported.contains(kind) && CryptoKind::SUPPORTED.contains(kind)
        };
        params.crypto.iter().copied().find(is_spoken)
    }

    /// Uses up one of the coordinator's grants of this period.
    fn note_grant(&mut self, coordinator: Ed25519Id, unix_secs: u64) -> Result<(), Refusal> {
        let period = self.policy.period.as_secs();
        // Records from the future count: a clock that goes back frees nothing.
        self.history.retain(|grant| unix_secs.saturating_sub(grant.unix_secs) < period);
        let used = self.history.iter().filter(|grant| grant.coordinator == coordinator).count();
        if used >= GRANTS_PER_PERIOD {
            return Err((ErrCode::TOO_SOON, "this coordinator has measured in this period"));
        }
        self.history.push(GrantRecord { coordinator, unix_secs });
        self.grants_given += 1;
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
        let duration_secs = params.duration_secs.min(self.policy.max_duration_secs);
        let measurement = params.measurement;
        let ratio = self.policy.ratio;
        let answer = MeasParamsOk { measurement, duration_secs, ratio, crypto };
        self.send(arrival.link, arrival.circ_id, &Msg::ParamsOk(answer));
        let sockets = params.measurers.iter().map(|measurer| u32::from(measurer.sockets)).sum();
        self.output.push_back(Output::Tell(TargetEvent::Granted {
            coordinator,
            measurement,
            duration_secs,
            sockets,
        }));
        self.measurement = Some(Measurement {
            id: measurement,
            coordinator,
            coordinator_link: arrival.link,
            duration_secs,
            ratio,
            crypto,
            team: params.measurers.clone(),
            links: Vec::new(),
            progress: Progress::Granted { lapses: arrival.now + START_TIMEOUT },
            echoed: Cells(0),
            background: (0, 0),
        });
    }

    /// MEAS_CREATE.
    fn handle_create(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasCreate>,
    ) -> Result<(), Refusal> {
        let unknown = (ErrCode::UNKNOWN_MEASUREMENT, "there is no such measurement");
        let measurement = self.measurement.as_mut().ok_or(unknown)?;
        if request.unverified().measurement != measurement.id {
            return Err(unknown);
        }
        if arrival.circ_id & 0x8000_0000 == 0 {
            return Err((
                ErrCode::BAD_CIRCUIT_ID,
                "an initiator's circuit id has the high bit set",
            ));
        }
        if measurement.links.contains(&arrival.link) || measurement.coordinator_link == arrival.link
        {
            return Err((ErrCode::UNEXPECTED_MESSAGE, "one circuit a link"));
        }
        let claimed = request.claimed_signer();
        let place = measurement
            .team
            .iter_mut()
            .find(|measurer| measurer.id == *claimed)
            .ok_or((ErrCode::UNKNOWN_MEASURER, "this measurer was not announced"))?;
        let left = place.sockets.checked_sub(1);
        let left = left.ok_or((ErrCode::TOO_MANY_SOCKETS, "more sockets than were announced"))?;
        let bad_signature = (ErrCode::BAD_SIGNATURE, "the signature is not good on this link");
        let (_, create) = request.verify(arrival.exporter).ok_or(bad_signature)?;

        let ours = EphemeralKey::new(arrival.entropy);
        let exchange = Exchange {
            measurement: &measurement.id,
            exporter: arrival.exporter,
            measurer_public: &create.public,
            target_public: &ours.public(),
            crypto: measurement.crypto,
        };
        let keys =
            exchange.derive(&ours).ok_or((ErrCode::KEY_EXCHANGE, "the public key is a bad one"))?;
        place.sockets = left;
        measurement.links.push(arrival.link);
        let answer = MeasCreated { public: ours.public(), confirmation: keys.confirmation };
        self.send(arrival.link, arrival.circ_id, &Msg::Created(answer));
        let circuit = Box::new(EchoCircuit::new(arrival.circ_id, &keys));
        self.output.push_back(Output::Open(arrival.link, circuit));
        Ok(())
    }

    /// MEAS_END, which only the coordinator's link may bring.
    fn handle_end(&mut self, arrival: &Arrival<'_>, id: MeasurementId) -> Result<(), Refusal> {
        match &self.measurement {
            Some(measurement)
                if measurement.id == id && measurement.coordinator_link == arrival.link =>
            {
                self.end(None);
                Ok(())
            }
            _ => Err((ErrCode::UNKNOWN_MEASUREMENT, "there is no such measurement of yours")),
        }
    }

    /// MEAS_ERR: the coordinator gives up, or a measurer's link is done for. Never answered.
    fn handle_err(&mut self, arrival: &Arrival<'_>, code: ErrCode) -> Result<(), Refusal> {
        if self.measurement.as_ref().is_some_and(|m| m.coordinator_link == arrival.link) {
            self.end(Some(code));
        } else {
            self.output.push_back(Output::Close(arrival.link));
            self.handle_link_closed(arrival.link);
        }
        Ok(())
    }

    /// Notes that a link is gone.
    pub fn handle_link_closed(&mut self, link: LinkId) {
        let Some(measurement) = &mut self.measurement else { return };
        if measurement.coordinator_link == link {
            self.end(Some(ErrCode::COORDINATOR_GONE));
        } else {
            measurement.links.retain(|&open| open != link);
        }
    }

    /// Counts cells that this link's circuit has echoed; the first of them start the measurement.
    pub fn on_echoed(&mut self, cells: Cells, now: MonoTime) {
        let Some(measurement) = self.measurement.as_mut().filter(|_| cells.0 > 0) else { return };
        measurement.echoed.0 = measurement.echoed.0.saturating_add(cells.0);
        if matches!(measurement.progress, Progress::Granted { .. }) {
            measurement.progress = Progress::Running { started: now, second: 0 };
            let event = TargetEvent::Started(measurement.id);
            self.output.push_back(Output::Tell(event));
        }
    }

    /// Counts bytes that are not measurement traffic.
    pub fn on_background(&mut self, sent_bytes: u64, received_bytes: u64) {
        if let Some(measurement) = &mut self.measurement
            && matches!(measurement.progress, Progress::Running { .. })
        {
            let (sent, received) = &mut measurement.background;
            *sent = sent.saturating_add(sent_bytes);
            *received = received.saturating_add(received_bytes);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        self.measurement.as_ref().map(|measurement| match measurement.progress {
            Progress::Granted { lapses } => lapses,
            Progress::Running { started, second } => end_of_second(started, second),
        })
    }

    /// Reports the seconds that are full, and ends what is over.
    pub fn handle_timeout(&mut self, now: MonoTime) {
        while let Some(measurement) = &mut self.measurement {
            match &mut measurement.progress {
                Progress::Granted { lapses } if *lapses <= now => {
                    self.end(Some(ErrCode::NOT_STARTED));
                }
                Progress::Running { started, second }
                    if end_of_second(*started, *second) <= now =>
                {
                    let (sent, received) = core::mem::take(&mut measurement.background);
                    let report = MeasBg { second: *second, sent, received };
                    *second += 1;
                    let is_last = *second >= measurement.duration_secs;
                    let link = measurement.coordinator_link;
                    self.send(link, 0, &Msg::Bg(report));
                    if is_last {
                        self.end(None);
                    }
                }
                _ => return,
            }
        }
    }

    /// Ends whatever goes on because of something inside the relay.
    pub fn abort(&mut self) {
        self.end(Some(ErrCode::INTERNAL));
    }

    /// Ends the measurement: tells everybody, closes its links, forgets it.
    fn end(&mut self, failure: Option<ErrCode>) {
        let Some(measurement) = self.measurement.take() else { return };
        let Measurement { id, coordinator, coordinator_link, links, echoed, .. } = measurement;
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
            self.output.push_back(Output::Close(link));
        }
        self.output.push_back(Output::Tell(TargetEvent::Ended {
            measurement: id,
            coordinator,
            failure,
            echoed_bytes: echoed.bytes(),
        }));
    }

    /// Queues a control message.
    fn send(&mut self, link: LinkId, circ_id: u32, message: &Msg) {
        self.output.push_back(Output::Send(link, Box::new(control_cell(circ_id, message))));
    }

    /// Forgets what has not been taken, as if the last message had not been answered yet.
    pub fn discard_output(&mut self) {
        self.output.clear();
    }

    /// Takes the next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Whether background traffic is to be limited now: while measurement links are open in a
    /// running measurement, and not a moment longer.
    #[must_use]
    pub fn limits_background(&self) -> bool {
        self.measurement.as_ref().is_some_and(|measurement| {
            matches!(measurement.progress, Progress::Running { .. })
                && !measurement.links.is_empty()
        })
    }

    /// The background ratio that was granted; without a measurement, what would be.
    #[must_use]
    pub fn ratio(&self) -> Ratio {
        self.measurement.as_ref().map_or(self.policy.ratio, |measurement| measurement.ratio)
    }

    /// Whether nothing is granted or running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.measurement.is_none()
    }

    /// The grants to remember across a restart.
    #[must_use]
    pub fn history(&self) -> &[GrantRecord] {
        &self.history
    }

    /// How many grants were given since the start: when it grows, the history is to be stored.
    #[must_use]
    pub fn grants_given(&self) -> u64 {
        self.grants_given
    }

    /// The team of the measurement that is granted or running, for the host's exemptions.
    #[must_use]
    pub fn team(&self) -> &[MeasurerGrant] {
        self.measurement.as_ref().map_or(&[], |measurement| &measurement.team)
    }
}

/// When a second of a measurement is full.
fn end_of_second(started: MonoTime, second: u16) -> MonoTime {
    started + Duration::from_secs(u64::from(second) + 1)
}
