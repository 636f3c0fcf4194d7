//! The target's end of all its measurement links: who may measure, when, and for how long.
//!
//! ```text
//!            MEAS_PARAMS, allowed                first MEAS_ECHO
//!   Idle ───────────────────────▶ Granted ───────────────────────▶ Running
//!    ▲                               │                                │ MEAS_BG every second
//!    └───────────────────────────────┴────────────────────────────────┘
//!      coordinator's link closed · MEAS_END or MEAS_ERR from it · too many of its messages refused
//!      · time is up · the operator takes the permission away · the host's abort
//! ```
//!
//! Measurement links outlive their measurement for two seconds: a link that is closed over input
//! that nobody has read is reset, and then its last message is lost. Until their peer closes them
//! or the time is over they are [`Part::Ending`], and the host drops what they bring.
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
use crate::ids::{CryptoKind, Ed25519Id, MeasurementId, MeasurerIndex};
use crate::msg::{
    ErrCode, MeasBg, MeasCreate, MeasCreated, MeasEnd, MeasErr, MeasParams, MeasParamsOk,
    MeasurerGrant, Msg, Role, Signed, TeamCells,
};
use crate::units::{Cells, MonoTime, Ratio};

/// How long a grant waits for the first echo cell.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Grants to one coordinator within a period: one, and a retry (prop316).
const GRANTS_PER_PERIOD: usize = 2;
/// How long measurement links stay open behind the last message of their measurement.
const LINGER: Duration = Duration::from_secs(2);
/// So many messages on a coordinator's link are refused; one more ends the measurement.
const MAX_REFUSALS: u8 = 8;
/// Of the refusals within [`REFUSALS_TOLD_IN`], so many are told one by one.
const MAX_REFUSALS_TOLD: u8 = 10;
/// See [`MAX_REFUSALS_TOLD`].
const REFUSALS_TOLD_IN: Duration = Duration::from_secs(60);

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
    /// The most sockets that a team may announce.
    pub max_sockets: u32,
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
    /// Whether the link has, or has had, circuits that are not ours.
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

/// What the host must do, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send this cell on this link.
    Send(LinkId, Box<Cell>),
    /// This link is a measurement link from here on; MEAS_ECHO cells go through the circuit.
    Open(LinkId, Box<EchoCircuit>),
    /// The measurement of this link is over: forget its circuit, and drop its MEAS_ECHO cells.
    Over(LinkId),
    /// Send what is pending and close this link.
    Close(LinkId),
    /// Tell the operator.
    Tell(TargetEvent),
}

/// A link's part in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It has none: what it carries is background.
    None,
    /// The measurement that is granted or running was asked for on it.
    Coordinator,
    /// It has a measurement circuit.
    Measurement,
    /// It had one. What it brings is dropped until it closes.
    Ending,
}

/// What the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetEvent {
    /// A request was refused.
    Refused {
        /// What the peer was told.
        error: MeasErr,
        /// Refusals in front of this one of which the operator was not told, because they were
        /// too many.
        untold: u64,
    },
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
    /// Of these, the cells of the second being counted, by measurer.
    echoed_in_second: TeamCells,
    /// Background bytes sent and received in the second being counted.
    background: (u64, u64),
    /// Messages on the coordinator's link that were refused.
    refusals: u8,
}

impl Measurement {
    /// The report of the second being counted, which is the next one's from here on.
    ///
    /// It says what the coordinator can use and no more (§8.2): what was forwarded, as far as it
    /// may count, rounded so that the bytes of single clients do not show.
    fn report(&mut self, second: u16) -> MeasBg {
        let (sent, received) = core::mem::take(&mut self.background);
        let cells = self.echoed_in_second.take();
        let echoed = cells.sum().bytes();
        let forwarded = sent.min(received);
        let counts = self.ratio.background_for(echoed);
        // A power of two: a hundredth of the traffic itself would tell what the traffic was.
        let percent = echoed.saturating_add(forwarded) / 100;
        let step = percent.checked_ilog2().map_or(1, |power| 1 << power);
        let rounded = forwarded.saturating_add(step / 2) / step * step;
        let bytes = if forwarded < counts { rounded.min(counts) } else { counts };
        MeasBg { second, sent: bytes, received: bytes, echoed: Some(cells) }
    }
}

/// How many refusals the operator is told of.
#[derive(Clone, Copy, Debug, Default)]
struct RefusalLog {
    /// When the first of these came.
    since: MonoTime,
    /// Refusals told since.
    told: u8,
    /// Refusals not told since the last one that was.
    untold: u64,
}

impl RefusalLog {
    /// Notes a refusal. Returns how many before it were not told, if this one is.
    fn note(&mut self, now: MonoTime) -> Option<u64> {
        if now.since(self.since) >= REFUSALS_TOLD_IN {
            (self.since, self.told) = (now, 0);
        }
        if self.told == MAX_REFUSALS_TOLD {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(core::mem::take(&mut self.untold))
    }
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
    /// Links of measurements that are over, and until when they may stay open.
    ending: Vec<(LinkId, MonoTime)>,
    /// Requests refused since the start.
    refused: u64,
    /// Which of them the operator is told of.
    log: RefusalLog,
    /// What the host has not taken yet.
    output: VecDeque<Output>,
}

/// A request that is refused, and what the peer is told.
type Refusal = (ErrCode, &'static str);

/// Why a link with ordinary circuits is not taken: what they carry could not be told apart.
const LINK_IS_USED: &str = "the link has circuits of its own";
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
            ending: Vec::new(),
            refused: 0,
            log: RefusalLog::default(),
            output: VecDeque::new(),
        }
    }

    /// Grants only these ciphers, for a host that decrypts by itself and does not have all of
    /// [`CryptoKind::SUPPORTED`]. Unknown ones are never granted.
    pub fn support_only(&mut self, supported: &'static [CryptoKind]) {
        self.supported = supported;
    }

    /// Takes new options. A measurement that is going on keeps what it was granted, and ends if it
    /// would not be allowed any more.
    pub fn set_policy(&mut self, policy: Policy, now: MonoTime) {
        self.policy = policy;
        let Some(measurement) = &self.measurement else { return };
        if let Err((code, _)) = self.check_permission(&measurement.coordinator) {
            self.end(Some(code), now);
        }
    }

    /// A link's part in the measurement that is granted or running, or in one that has just ended.
    #[must_use]
    pub fn part_of(&self, link: LinkId) -> Part {
        match &self.measurement {
            Some(measurement) if measurement.coordinator_link == link => Part::Coordinator,
            Some(measurement) if measurement.links.contains(&link) => Part::Measurement,
            _ if self.ending.iter().any(|&(ending, _)| ending == link) => Part::Ending,
            _ => Part::None,
        }
    }

    /// Takes a MEASUREMENT cell.
    pub fn handle_control(&mut self, arrival: &Arrival<'_>) {
        let result = match Msg::decode_for(Role::Target, arrival.body) {
            Ok(Msg::Params(request)) => self.handle_params(arrival, &request),
            Ok(Msg::Create(request)) => self.handle_create(arrival, &request),
            Ok(Msg::End(end)) => self.handle_end(arrival, end.measurement),
            Ok(Msg::Err(error)) => self.handle_err(arrival, error.code),
            Ok(_) | Err(DecodeError::NotForRole(_)) => {
                Err((ErrCode::UNEXPECTED_MESSAGE, "targets send this message"))
            }
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

    /// Answers with MEAS_ERR. The link closes unless a measurement hangs on it; and that ends when
    /// there are too many.
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

    /// Has a link closed that no measurement hangs on.
    fn close(&mut self, link: LinkId, now: MonoTime) {
        self.output.push_back(Output::Close(link));
        self.handle_link_closed(link, now);
    }

    /// Whether this coordinator may measure at all.
    fn check_permission(&self, coordinator: &Ed25519Id) -> Result<(), Refusal> {
        if !self.policy.enabled {
            return Err((ErrCode::DISABLED, "this relay does not take part in measurements"));
        }
        if !self.policy.coordinators.contains(coordinator) {
            return Err((ErrCode::COORDINATOR_NOT_ALLOWED, "not in FFAllowedCoordinators"));
        }
        Ok(())
    }

    /// MEAS_PARAMS.
    fn handle_params(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasParams>,
    ) -> Result<(), Refusal> {
        // The list comes before the signature: an unlisted peer gets no signature check from us.
        self.check_permission(request.claimed_signer())?;
        let bad_signature = (ErrCode::BAD_SIGNATURE, "the signature is not good on this link");
        let (&coordinator, params) = request.verify(arrival.exporter).ok_or(bad_signature)?;
        if self.measurement.is_some() {
            return Err((ErrCode::BUSY, "another measurement is going on"));
        }
        if arrival.has_circuits {
            return Err((ErrCode::UNEXPECTED_MESSAGE, LINK_IS_USED));
        }
        if sockets(params) > self.policy.max_sockets {
            return Err((ErrCode::TOO_MANY_SOCKETS, "more sockets than FFMaxMeasurementSockets"));
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
        let sockets = sockets(params);
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
            echoed_in_second: TeamCells::none(params.measurers.len()),
            background: (0, 0),
            refusals: 0,
        });
    }

    /// MEAS_CREATE.
    fn handle_create(
        &mut self,
        arrival: &Arrival<'_>,
        request: &Signed<MeasCreate>,
    ) -> Result<(), Refusal> {
        let unknown = (ErrCode::UNKNOWN_MEASUREMENT, "there is no such measurement");
        let is_ending = self.ending.iter().any(|&(ending, _)| ending == arrival.link);
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
        let is_used = measurement.links.contains(&arrival.link) || is_ending;
        if is_used || measurement.coordinator_link == arrival.link {
            return Err((ErrCode::UNEXPECTED_MESSAGE, "one circuit a link"));
        }
        if arrival.has_circuits {
            return Err((ErrCode::UNEXPECTED_MESSAGE, LINK_IS_USED));
        }
        let claimed = request.claimed_signer();
        let (measurer, place) = (0..)
            .map(MeasurerIndex)
            .zip(&mut measurement.team)
            .find(|(_, measurer)| measurer.id == *claimed)
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
        let circuit = Box::new(EchoCircuit::new(arrival.circ_id, &keys).of_measurer(measurer));
        self.output.push_back(Output::Open(arrival.link, circuit));
        Ok(())
    }

    /// MEAS_END, which only the coordinator's link may bring.
    fn handle_end(&mut self, arrival: &Arrival<'_>, id: MeasurementId) -> Result<(), Refusal> {
        match &self.measurement {
            Some(measurement)
                if measurement.id == id && measurement.coordinator_link == arrival.link =>
            {
                self.end(None, arrival.now);
                Ok(())
            }
            _ => Err((ErrCode::UNKNOWN_MEASUREMENT, "there is no such measurement of yours")),
        }
    }

    /// MEAS_ERR: the coordinator gives up, or a measurer's link is done for. Never answered.
    fn handle_err(&mut self, arrival: &Arrival<'_>, code: ErrCode) -> Result<(), Refusal> {
        if self.measurement.as_ref().is_some_and(|m| m.coordinator_link == arrival.link) {
            self.end(Some(code), arrival.now);
        } else {
            self.close(arrival.link, arrival.now);
        }
        Ok(())
    }

    /// Notes that a link is gone.
    pub fn handle_link_closed(&mut self, link: LinkId, now: MonoTime) {
        self.ending.retain(|&(ending, _)| ending != link);
        let Some(measurement) = &mut self.measurement else { return };
        if measurement.coordinator_link == link {
            self.end(Some(ErrCode::COORDINATOR_GONE), now);
        } else {
            measurement.links.retain(|&open| open != link);
        }
    }

    /// Counts cells that circuits of a measurer ([`EchoCircuit::measurer`]) have echoed; the first of
    /// them start the measurement.
    ///
    /// Returns whether there is a measurement. Without one the cells must not be sent: the
    /// coordinator holds against a measurer what it has got and we have not counted.
    pub fn on_echoed(&mut self, measurer: MeasurerIndex, cells: Cells, now: MonoTime) -> bool {
        let Some(measurement) = &mut self.measurement else { return false };
        measurement.echoed.0 = measurement.echoed.0.saturating_add(cells.0);
        measurement.echoed_in_second.add(measurer, cells);
        if cells.0 > 0 && matches!(measurement.progress, Progress::Granted { .. }) {
            measurement.progress = Progress::Running { started: now, second: 0 };
            let event = TargetEvent::Started(measurement.id);
            self.output.push_back(Output::Tell(event));
        }
        true
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
        let measurement = self.measurement.as_ref().map(|measurement| match measurement.progress {
            Progress::Granted { lapses } => lapses,
            Progress::Running { started, second } => end_of_second(started, second),
        });
        // Links are put behind those that have been ending for longer.
        let ending = self.ending.first().map(|&(_, until)| until);
        [measurement, ending].into_iter().flatten().min()
    }

    /// Reports the seconds that are full, and ends what is over.
    pub fn handle_timeout(&mut self, now: MonoTime) {
        let over = self.ending.partition_point(|&(_, until)| until <= now);
        let closing = self.ending.drain(..over).map(|(link, _)| Output::Close(link));
        self.output.extend(closing);
        while let Some(measurement) = &mut self.measurement {
            match &mut measurement.progress {
                Progress::Granted { lapses } if *lapses <= now => {
                    self.end(Some(ErrCode::NOT_STARTED), now);
                }
                &mut Progress::Running { started, second }
                    if end_of_second(started, second) <= now =>
                {
                    measurement.progress = Progress::Running { started, second: second + 1 };
                    let report = measurement.report(second);
                    let is_last = second + 1 >= measurement.duration_secs;
                    let link = measurement.coordinator_link;
                    self.send(link, 0, &Msg::Bg(report));
                    if is_last {
                        self.end(None, now);
                    }
                }
                _ => return,
            }
        }
    }

    /// Ends whatever goes on with this code, because of something inside the relay.
    pub fn abort(&mut self, code: ErrCode, now: MonoTime) {
        self.end(Some(code), now);
    }

    /// Takes back the grant of the last request, whose answer has not gone out: it cannot be
    /// remembered, and so counts as none.
    pub fn take_back(&mut self, now: MonoTime) {
        let link = self.measurement.as_ref().map(|measurement| measurement.coordinator_link);
        self.output.retain(|output| match output {
            Output::Send(to, _) => Some(*to) != link,
            Output::Tell(TargetEvent::Granted { .. }) => false,
            _ => true,
        });
        self.history.pop();
        self.end(Some(ErrCode::INTERNAL), now);
    }

    /// Ends the measurement: tells everybody, lets its links end, forgets it.
    fn end(&mut self, failure: Option<ErrCode>, now: MonoTime) {
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
            self.output.push_back(Output::Over(link));
            self.ending.push((link, now + LINGER));
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

    /// Takes the next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Whether a measurement is running: its first cell has been echoed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let progress = self.measurement.as_ref().map(|measurement| &measurement.progress);
        matches!(progress, Some(Progress::Running { .. }))
    }

    /// Whether background traffic is to be limited now: while measurement links are open in a
    /// running measurement, and not a moment longer.
    #[must_use]
    pub fn limits_background(&self) -> bool {
        let has_links =
            self.measurement.as_ref().is_some_and(|measurement| !measurement.links.is_empty());
        has_links && self.is_running()
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

    /// Requests refused since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The grants to remember across a restart.
    #[must_use]
    pub fn history(&self) -> &[GrantRecord] {
        &self.history
    }

    /// Forgets the oldest grants of the history, of which the host knows that they are too old to count.
    pub fn forget_grants(&mut self, count: usize) {
        self.history.drain(..count.min(self.history.len()));
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

/// Sockets that the whole team may open.
fn sockets(params: &MeasParams) -> u32 {
    params.measurers.iter().map(|measurer| u32::from(measurer.sockets)).sum()
}

/// When a second of a measurement is full.
fn end_of_second(started: MonoTime, second: u16) -> MonoTime {
    started + Duration::from_secs(u64::from(second) + 1)
}
