//! A relay with a target, links to it with latency, and a simulated clock.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ff_proto::auth::Exporter;
use ff_proto::cell::{
    self, BODY_LEN, Body, CELL_LEN, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_MEAS_ECHO,
    CMD_MEASUREMENT, Cell, HEADER_LEN,
};
use ff_proto::circuit::EchoCircuit;
use ff_proto::ids::{CryptoKind, Ed25519Id, MeasurementId};
use ff_proto::msg::{MeasCreate, MeasParams, MeasurerGrant, Msg, Signed};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::{CoordinatorEvent, CoordinatorLink};
use ff_proto::session::measurer::{EchoEvent, EchoLink, LinkSecrets, Opening, OpeningLink};
use ff_proto::session::target::{
    Arrival, GrantRecord, LinkId, Output, Policy, Target, TargetEvent,
};
use ff_proto::units::{Cells, MonoTime, Ratio};

/// The one-way delay of a cell.
pub(crate) const LATENCY: Duration = Duration::from_millis(20);
/// The measurement in these tests.
pub(crate) const MEASUREMENT: MeasurementId = MeasurementId([7; 16]);
/// A circuit id as an initiator chooses it.
pub(crate) const CIRC: u32 = 0x8000_0001;
/// The length of a period of [`policy`], in seconds.
pub(crate) const PERIOD_SECS: u64 = 86_400;

/// The coordinator's key.
pub(crate) fn coordinator_key() -> SigningKey {
    SigningKey::from_bytes(&[1; 32])
}

/// The key of one of the measurers.
pub(crate) fn measurer_key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[100 + number; 32])
}

/// The id of a key.
pub(crate) fn id_of(key: &SigningKey) -> Ed25519Id {
    Ed25519Id(key.verifying_key().to_bytes())
}

/// A policy that allows the coordinator all that the defaults allow.
pub(crate) fn policy() -> Policy {
    Policy {
        enabled: true,
        coordinators: vec![id_of(&coordinator_key())],
        period: Duration::from_secs(PERIOD_SECS),
        ratio: Ratio::from_percent(25).expect("a ratio"),
        max_duration_secs: NonZero::new(45).expect("not 0"),
        max_sockets: 512,
    }
}

/// A request for three seconds with two sockets of measurer 0 and one of measurer 1.
pub(crate) fn params() -> MeasParams {
    let grant = |number, sockets| MeasurerGrant {
        id: id_of(&measurer_key(number)),
        sockets,
        address: None,
    };
    MeasParams {
        measurement: MEASUREMENT,
        duration_secs: 3,
        measurers: vec![grant(0, 2), grant(1, 1)],
        crypto: CryptoKind::SUPPORTED.to_vec(),
    }
}

/// The random numbers of a link.
fn secrets(seed: u8) -> LinkSecrets {
    LinkSecrets { ephemeral: [seed; 32], content: [seed; 16], sampling: [seed; 16] }
}

/// One link to the relay.
struct Wire {
    /// The output of its TLS exporter.
    exporter: Exporter,
    /// Set while it is a measurement link.
    circuit: Option<Box<EchoCircuit>>,
    /// Whether the relay has kept it open.
    is_open: bool,
    /// Whether its measurement is over.
    is_over: bool,
    /// Whether it has circuits of its own.
    has_circuits: bool,
    /// Cells in flight to the relay, with their arrival times.
    to_target: VecDeque<(MonoTime, Cell)>,
    /// Cells in flight to the peer, with their arrival times.
    to_peer: VecDeque<(MonoTime, Cell)>,
}

/// The relay, its links and the time.
pub(crate) struct Net {
    /// Monotonic time.
    pub(crate) now: MonoTime,
    /// Wall-clock time when `now` was zero.
    pub(crate) unix_zero: u64,
    /// The state machine under test.
    pub(crate) target: Target,
    /// The events reported to the relay's operator.
    pub(crate) told: Vec<TargetEvent>,
    /// Whether the relay fails to store grants.
    pub(crate) forgets: bool,
    /// All links, including closed ones.
    wires: BTreeMap<u64, Wire>,
}

impl Net {
    /// A relay that was never measured.
    pub(crate) fn new(policy: Policy) -> Self {
        Self::with_history(policy, Vec::new())
    }

    /// A relay that has stored these grants.
    pub(crate) fn with_history(policy: Policy, history: Vec<GrantRecord>) -> Self {
        Self {
            now: MonoTime::from_micros(5_000_000),
            unix_zero: 1_700_000_000,
            target: Target::new(policy, history),
            told: Vec::new(),
            forgets: false,
            wires: BTreeMap::new(),
        }
    }

    /// Opens a link with its own exporter.
    pub(crate) fn link(&mut self) -> LinkId {
        let id = self.wires.len() as u64;
        let wire = Wire {
            exporter: [u8::try_from(id).expect("few links"); 32],
            circuit: None,
            is_open: true,
            is_over: false,
            has_circuits: false,
            to_target: VecDeque::new(),
            to_peer: VecDeque::new(),
        };
        self.wires.insert(id, wire);
        LinkId(id)
    }

    /// The output of a link's TLS exporter.
    pub(crate) fn exporter(&self, link: LinkId) -> Exporter {
        self.wires[&link.0].exporter
    }

    /// Whether the relay has kept the link open, and its measurement has not ended.
    pub(crate) fn is_open(&self, link: LinkId) -> bool {
        self.wires[&link.0].is_open && !self.wires[&link.0].is_over
    }

    /// Whether the relay has kept the link open although its measurement has ended.
    pub(crate) fn is_lingering(&self, link: LinkId) -> bool {
        self.wires[&link.0].is_open && self.wires[&link.0].is_over
    }

    /// Gives the link a circuit that is not part of a measurement.
    pub(crate) fn has_circuits(&mut self, link: LinkId) {
        self.wire(link).has_circuits = true;
    }

    /// A request by the coordinator, valid on this link.
    pub(crate) fn request(&self, link: LinkId, params: MeasParams) -> Msg {
        let request = Signed::new(params, &coordinator_key(), &self.exporter(link));
        Msg::Params(request.expect("within its bounds"))
    }

    /// A measurer's MEAS_CREATE, valid on this link.
    pub(crate) fn create(&self, link: LinkId, measurer: u8) -> Msg {
        let create = MeasCreate { measurement: MEASUREMENT, public: [9; 32] };
        let create = Signed::new(create, &measurer_key(measurer), &self.exporter(link));
        Msg::Create(create.expect("within its bounds"))
    }

    /// Passes a message to the relay at once, and returns its immediate answers on that link.
    pub(crate) fn tell(&mut self, link: LinkId, circ_id: u32, message: &Msg) -> Vec<Msg> {
        self.tell_body(link, circ_id, &message.encode().expect("it fits"))
    }

    /// As [`tell`](Self::tell), with any body.
    pub(crate) fn tell_body(&mut self, link: LinkId, circ_id: u32, body: &Body) -> Vec<Msg> {
        self.arrive(link, cell::fixed_cell(circ_id, CMD_MEASUREMENT, body).expect("it fits"));
        self.answers(link)
    }

    /// Passes `count` echo cells to the relay at once, and returns the number of those that come
    /// back.
    pub(crate) fn echo(&mut self, link: LinkId, count: u64) -> usize {
        for _ in 0..count {
            let echo = cell::fixed_cell(CIRC, CMD_MEAS_ECHO, &[0; BODY_LEN]);
            self.arrive(link, echo.expect("it fits"));
        }
        let cells = std::mem::take(&mut self.wire(link).to_peer);
        cells.iter().filter(|(_, cell)| cell[4] == CMD_MEAS_ECHO).count()
    }

    /// Takes the control messages that are in flight to a peer.
    pub(crate) fn answers(&mut self, link: LinkId) -> Vec<Msg> {
        let cells = std::mem::take(&mut self.wire(link).to_peer);
        let messages = cells.iter().filter(|(_, cell)| cell[4] == CMD_MEASUREMENT);
        messages.map(|(_, cell)| Msg::decode(&cell[HEADER_LEN..]).expect("it decodes")).collect()
    }

    /// Closes a link from the peer's side.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.wire(link).is_open = false;
        self.target.handle_link_closed(link, self.now);
        self.take_output();
    }

    /// Advances the relay's clock by `time`.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.target.handle_timeout(self.now);
        self.take_output();
    }

    /// Sends a cell to the relay; it arrives after [`LATENCY`].
    pub(crate) fn send(&mut self, link: LinkId, cell: Cell) {
        let arrival = self.now + LATENCY;
        self.wire(link).to_target.push_back((arrival, cell));
    }

    /// The next cell that has arrived at the peer of a link by now.
    pub(crate) fn received(&mut self, link: LinkId) -> Option<Cell> {
        let now = self.now;
        arrived(&mut self.wire(link).to_peer, now)
    }

    /// When the next cell arrives anywhere or the target wants to be called.
    pub(crate) fn next_event(&self) -> Option<MonoTime> {
        let cells = self.wires.values().flat_map(|wire| {
            [wire.to_target.front(), wire.to_peer.front()].into_iter().flatten().map(|(at, _)| *at)
        });
        cells.chain(self.target.poll_timeout()).min()
    }

    /// Advances the clock to a time and lets the relay handle all that is due.
    pub(crate) fn advance(&mut self, to: MonoTime) {
        self.now = self.now.max(to);
        let now = self.now;
        let links: Vec<_> = self.wires.keys().copied().map(LinkId).collect();
        for link in links {
            while let Some(cell) = arrived(&mut self.wire(link).to_target, now) {
                self.arrive(link, cell);
            }
        }
        self.target.handle_timeout(now);
        self.take_output();
    }

    /// The relay's handling of a cell.
    fn arrive(&mut self, link: LinkId, mut cell: Cell) {
        let (now, unix_secs) = (self.now, self.unix_zero + self.now.micros() / 1_000_000);
        let wire = self.wires.get_mut(&link.0).expect("the link exists");
        if !wire.is_open {
            return;
        }
        let [a, b, c, d, command, ..] = cell;
        let circ_id = u32::from_be_bytes([a, b, c, d]);
        match command {
            CMD_MEASUREMENT => {
                let (exporter, grants) = (wire.exporter, self.target.grants_given());
                self.target.handle_control(&Arrival {
                    link,
                    circ_id,
                    has_circuits: wire.has_circuits,
                    body: &cell[HEADER_LEN..],
                    exporter: &exporter,
                    entropy: [200; 32],
                    now,
                    unix_secs,
                });
                if self.forgets && self.target.grants_given() > grants {
                    self.target.take_back(now);
                }
            }
            CMD_MEAS_ECHO => {
                let Some(circuit) = &mut wire.circuit else { return };
                if circuit.circ_id() != circ_id {
                    return;
                }
                let body = cell.last_chunk_mut::<BODY_LEN>().expect("a cell has a body");
                circuit.echo(body);
                wire.to_peer.push_back((now + LATENCY, cell));
                assert!(self.target.on_echoed(circuit.measurer(), Cells(1), now));
            }
            CMD_CREATE_FAST => {
                wire.has_circuits = true;
                cell[4] = CMD_CREATED_FAST;
                wire.to_peer.push_back((now + LATENCY, cell));
            }
            _ => {}
        }
        self.take_output();
    }

    /// Carries out the target's outputs.
    fn take_output(&mut self) {
        let arrival = self.now + LATENCY;
        while let Some(output) = self.target.poll_output() {
            match output {
                Output::Send(link, cell) => self.wire(link).to_peer.push_back((arrival, *cell)),
                Output::Open(link, circuit) => self.wire(link).circuit = Some(circuit),
                Output::Over(link) => {
                    self.wire(link).is_over = true;
                    self.wire(link).circuit = None;
                }
                Output::Close(link) => {
                    self.wire(link).is_open = false;
                    self.wire(link).circuit = None;
                }
                Output::Tell(event) => self.told.push(event),
            }
        }
    }

    fn wire(&mut self, link: LinkId) -> &mut Wire {
        self.wires.get_mut(&link.0).expect("the link exists")
    }
}

/// Takes the cell at the front of a queue, if it has arrived.
fn arrived(queue: &mut VecDeque<(MonoTime, Cell)>, now: MonoTime) -> Option<Cell> {
    if queue.front()?.0 > now {
        return None;
    }
    queue.pop_front().map(|(_, cell)| cell)
}

/// The coordinator on its link.
pub(crate) struct Coordinator {
    pub(crate) link: LinkId,
    /// The state machine under test.
    pub(crate) session: CoordinatorLink,
    /// Its events, with their times.
    pub(crate) events: Vec<(MonoTime, CoordinatorEvent)>,
}

impl Coordinator {
    /// Opens a link and asks for a measurement.
    pub(crate) fn ask(net: &mut Net, params: MeasParams) -> Self {
        let link = net.link();
        let exporter = net.exporter(link);
        let (session, cells) =
            CoordinatorLink::new(params, &coordinator_key(), &exporter, &[3; 20], net.now)
                .expect("the team fits");
        cells.into_iter().for_each(|cell| net.send(link, cell));
        Self { link, session, events: Vec::new() }
    }
}

/// A measurer on one of its links.
pub(crate) struct Measurer {
    pub(crate) link: LinkId,
    /// The state machine under test, until the circuit is open.
    opening: Option<OpeningLink>,
    /// The state machine under test, from then on.
    pub(crate) echo: Option<Box<EchoLink>>,
    /// Cells that were checked.
    pub(crate) checked: u64,
    /// Whether the target ended the measurement.
    pub(crate) has_ended: bool,
}

impl Measurer {
    /// Opens a link and its circuit with the granted cipher; every cell will be checked.
    pub(crate) fn open(net: &mut Net, measurer: u8, crypto: CryptoKind) -> Self {
        let link = net.link();
        let seed = u8::try_from(link.0).expect("few links");
        let key = measurer_key(measurer);
        let (opening, create) =
            OpeningLink::new(MEASUREMENT, &key, net.exporter(link), secrets(seed), crypto, 1.0);
        net.send(link, create);
        Self { link, opening: Some(opening), echo: None, checked: 0, has_ended: false }
    }

    /// Sends `count` echo cells.
    pub(crate) fn write(&mut self, net: &mut Net, count: usize) {
        let echo = self.echo.as_mut().expect("the circuit is open");
        for _ in 0..count {
            let mut cell = [0; CELL_LEN];
            echo.write(&mut cell);
            net.send(self.link, cell);
        }
    }

    /// Handles a cell.
    fn handle(&mut self, cell: &Cell) -> Result<(), SessionFailure> {
        let cell = cell::peek_cell(cell).expect("a whole cell");
        if let Some(opening) = self.opening.take() {
            match opening.handle(cell)? {
                Opening::Waiting(opening) => self.opening = Some(opening),
                Opening::Open(echo) => self.echo = Some(echo),
            }
            return Ok(());
        }
        match self.echo.as_mut().expect("the circuit is open").handle(cell)? {
            EchoEvent::Checked => self.checked += 1,
            EchoEvent::Ended => self.has_ended = true,
            EchoEvent::Echo | EchoEvent::Ignored => {}
        }
        Ok(())
    }
}

/// Runs all parties until a time, from event to event.
pub(crate) fn drive(
    net: &mut Net,
    coordinator: &mut Coordinator,
    measurers: &mut [Measurer],
    until: MonoTime,
) -> Result<(), SessionFailure> {
    loop {
        while let Some(cell) = net.received(coordinator.link) {
            let cell = cell::peek_cell(&cell).expect("a whole cell");
            let event = coordinator.session.handle(cell, net.now)?;
            coordinator.events.extend(event.map(|event| (net.now, event)));
        }
        for measurer in measurers.iter_mut() {
            while let Some(cell) = net.received(measurer.link) {
                measurer.handle(&cell)?;
            }
        }
        coordinator.session.handle_timeout(net.now)?;
        let next = net.next_event().into_iter().chain(coordinator.session.poll_timeout()).min();
        match next {
            Some(next) if next <= until => net.advance(next),
            _ => {
                net.advance(until);
                return Ok(());
            }
        }
    }
}
