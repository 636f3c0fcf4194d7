//! Opens the links and the circuits of an order, and makes both ends of each circuit.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ff_proto::cell::{CELL_LEN, CMD_DESTROY, CMD_PADDING, CMD_VPADDING, CellRef};
use ff_proto::circuit::{EphemeralKey, Passage};
use ff_proto::ids::Ed25519Id;
use ff_proto::onion::circuit::{Building, CircuitError, Step, Way};
use ff_proto::onion::extend::CMD_RELAY;
use ff_proto::onion::ntor::OnionKey;
use ff_proto::session::cells::{CellDrain, CellSource};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::sink::{Expected, Point, Sink, SinkLink};
use super::{TransitError, TransitOrder};
use crate::circuits::TransitLink;
use crate::link::control::{ControlLink, OwnedCell};
use crate::link::{self, Link};
use crate::measurer::CONCURRENT_HANDSHAKES;

/// Time limit for one circuit.
const CIRCUIT_TIME: Duration = Duration::from_secs(30);
/// Mean time limit for each of many circuits.
const MEAN_CIRCUIT_TIME: Duration = Duration::from_millis(500);
/// This bit is set in ids of circuits that we open (tor-spec 5.1.1).
const INITIATOR: u32 = 0x8000_0000;

struct OpenCircuit {
    /// Its id on our link.
    circ_id: u32,
    /// Identifies the circuit at the sink.
    point: Point,
    /// The relay's encryption of its cells, away from us and towards us.
    passages: [Passage; 2],
}

/// A link of ours and its circuits.
struct OurLink {
    link: ControlLink,
    circuits: Vec<OpenCircuit>,
}

/// Links in the form of the hot path.
pub(super) type Links = Vec<(Link, TransitLink)>;

/// The sinks of an order, before any link is open.
pub(super) struct Sinks {
    /// The sinks, one for each address of the order.
    sinks: Vec<Sink>,
    /// The circuits that they accept.
    expected: Expected,
    /// Tells the sinks to return their links.
    done: watch::Sender<()>,
}

impl Sinks {
    /// Starts the order's sinks.
    pub(super) async fn start(order: &TransitOrder) -> Result<Self, TransitError> {
        let (expected, (done, is_done)) = (Expected::default(), watch::channel(()));
        let (mut sinks, relay) = (Vec::new(), order.target.addr.ip());
        for &addr in &order.sinks {
            sinks.push(Sink::start(addr, relay, expected.clone(), is_done.clone()).await?);
        }
        Ok(Self { sinks, expected, done })
    }

    /// The sinks' addresses.
    pub(super) fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.sinks.iter().map(|sink| sink.next.addr)
    }

    /// Opens our links and all circuits; returns our links, and those of the sinks.
    pub(super) async fn open(self, order: &TransitOrder) -> Result<[Links; 2], TransitError> {
        let Self { sinks, expected, done } = self;
        let ours = open_all(order, &sinks, &expected).await?;
        done.send_replace(());
        let mut theirs = Vec::new();
        for sink in sinks {
            theirs.extend(sink.into_links().await);
        }
        join(order, ours, theirs)
    }
}

/// Opens our links, one after the other if there is a rate limit, and the circuits of each one
/// after the other, in turn with those of the other links.
async fn open_all(
    order: &TransitOrder,
    sinks: &[Sink],
    expected: &Expected,
) -> Result<Vec<OurLink>, TransitError> {
    let (mut tasks, places) = (JoinSet::new(), Arc::new(Semaphore::new(CONCURRENT_HANDSHAKES)));
    let (links, circuits) = (u32::from(order.links), order.circuits);
    for index in 0..links {
        let count = circuits / links + u32::from(index < circuits % links);
        let ways: Vec<_> = (0..count)
            .map(|circuit| way(order, &sinks[(index + circuit * links) as usize % sinks.len()]))
            .collect();
        let (begin, pause) = order.pace().map_or((Duration::ZERO, Duration::ZERO), |rate| {
            [index, links].map(|turns| Duration::from_secs(turns.into()) / rate).into()
        });
        let (target, options) = (order.target, order.link.clone());
        let (expected, places) = (expected.clone(), places.clone());
        let time = CIRCUIT_TIME + (MEAN_CIRCUIT_TIME + pause) * count;
        tasks.spawn(async move {
            sleep(begin).await;
            let place = places.acquire_owned().await;
            let link = link::open(&target, &options).await?;
            drop(place);
            let circuits = open_circuits(ControlLink::new(link)?, ways, pause, &expected);
            let link = timeout(time, circuits).await.map_err(|_| TransitError::Timeout(time))??;
            Ok::<_, TransitError>((index, link))
        });
    }
    let mut opened = Vec::new();
    while let Some(link) = tasks.join_next().await {
        opened.push(link.map_err(|_| TransitError::TaskGone)??);
    }
    // The first links have one circuit more than the others.
    opened.sort_by_key(|(index, _)| *index);
    Ok(opened.into_iter().map(|(_, link)| link).collect())
}

/// The path through the relay to this sink.
fn way(order: &TransitOrder, sink: &Sink) -> Way {
    let id = Ed25519Id(order.target.ed_identity.into());
    let relay = OnionKey { id, key: order.onion_key };
    Way { relay, crypto: order.crypto, next: sink.next, next_key: sink.key }
}

/// Opens the circuits of one link.
async fn open_circuits(
    mut link: ControlLink,
    ways: Vec<Way>,
    pause: Duration,
    expected: &Expected,
) -> Result<OurLink, TransitError> {
    let wanted = u32::try_from(ways.len()).unwrap_or(u32::MAX);
    let mut circuits = Vec::with_capacity(ways.len());
    for (way, number) in ways.into_iter().zip(1..) {
        let entropy = [rand::random(), rand::random()];
        let point = EphemeralKey::new(entropy[1]).public();
        expected.add(point);
        let circ_id = INITIATOR | number;
        let opening = open_circuit(&mut link, circ_id, way, entropy);
        let opened = timeout(CIRCUIT_TIME, opening).await;
        let opened = opened.map_err(|_| TransitError::Timeout(CIRCUIT_TIME))??;
        let failed = |source| TransitError::Circuit { number, wanted, source };
        circuits.push(OpenCircuit { circ_id, point, passages: opened.map_err(failed)? });
        sleep(pause).await;
    }
    Ok(OurLink { link, circuits })
}

async fn open_circuit(
    link: &mut ControlLink,
    circ_id: u32,
    way: Way,
    entropy: [[u8; 32]; 2],
) -> Result<Result<[Passage; 2], CircuitError>, TransitError> {
    let (mut building, create) = match Building::new(circ_id, way, entropy) {
        Ok(begun) => begun,
        Err(error) => return Ok(Err(error)),
    };
    link.send_cells(&create).await?;
    loop {
        let OwnedCell { circ_id: id, command, body } = link.recv_cell().await?;
        if [CMD_PADDING, CMD_VPADDING].contains(&command) {
            continue;
        }
        if id != circ_id {
            // One of our other circuits has ended; no other cells arrive on open circuits.
            let reason = body.first().copied().filter(|_| command == CMD_DESTROY).unwrap_or(0);
            return Ok(Err(CircuitError::Destroyed(reason)));
        }
        let cell = CellRef { circ_id, command, body: &body, wire_len: CELL_LEN };
        match building.handle(cell) {
            Ok(Step::Send(next, cell)) => {
                building = *next;
                link.send_cells(&*cell).await?;
            }
            Ok(Step::Open(passages)) => return Ok(Ok(*passages)),
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// One direction of a circuit, from one link to another.
struct Lane<'a> {
    /// The link and circuit id on which cells are sent.
    from: (&'a mut TransitLink, u32),
    /// The link and circuit id on which they arrive.
    to: (&'a mut TransitLink, u32),
    /// The relay's encryption of them.
    passage: &'a Passage,
}

impl Lane<'_> {
    /// Makes the circuit send in this direction: always, or one cell in a number.
    fn open(self, is_busy: bool, check_probability: f64) {
        let (content, sampling): ([u8; 16], [u8; 16]) = (rand::random(), rand::random());
        let ((sender, circ_id), (receiver, far_id)) = (self.from, self.to);
        let source = CellSource::new(circ_id, CMD_RELAY, &content);
        let arrived = if is_busy { sender.send(source) } else { sender.send_quietly(source) };
        let drain = CellDrain::new(&content, self.passage, &sampling, check_probability);
        receiver.receive(far_id, drain, arrived);
    }
}

/// Sets up both ends of each circuit.
fn join(
    order: &TransitOrder,
    ours: Vec<OurLink>,
    theirs: Vec<SinkLink>,
) -> Result<[Links; 2], TransitError> {
    let quiet_one_in = order.quiet_one_in.unwrap_or(0);
    let mut places = HashMap::new();
    let mut sinks = Vec::new();
    for (index, SinkLink { link, circuits }) in theirs.into_iter().enumerate() {
        places.extend(circuits.into_iter().map(|(circ_id, point)| (point, (index, circ_id))));
        sinks.push((link.into_link()?, TransitLink::new(quiet_one_in)));
    }
    let (mut measurers, mut missing) = (Vec::new(), 0);
    let links = u32::from(order.links);
    for (link_number, OurLink { link, circuits }) in (0_u32..).zip(ours) {
        let mut transit = TransitLink::new(quiet_one_in);
        for (number, circuit) in (0_u32..).zip(circuits) {
            let OpenCircuit { circ_id, point, passages: [forward, backward] } = circuit;
            let is_busy = number * links + link_number < order.busy_circuits;
            let Some((index, sink_id)) = places.remove(&point) else {
                missing += 1;
                continue;
            };
            let sink = &mut sinks[index].1;
            transit.add(circ_id);
            sink.add(sink_id);
            if !is_busy && quiet_one_in == 0 {
                continue;
            }
            if order.direction.is_forward() {
                let (from, to) = ((&mut transit, circ_id), (&mut *sink, sink_id));
                Lane { from, to, passage: &forward }.open(is_busy, order.check_probability);
            }
            if order.direction.is_backward() {
                let (from, to) = ((&mut *sink, sink_id), (&mut transit, circ_id));
                Lane { from, to, passage: &backward }.open(is_busy, order.check_probability);
            }
        }
        measurers.push((link.into_link()?, transit));
    }
    if missing > 0 {
        return Err(TransitError::Elsewhere { missing });
    }
    Ok([measurers, sinks])
}
