//! The sink while circuits are opened: accepts links and answers CREATE2 cells of expected
//! circuits.
//!
//! Circuits of others are refused; their other cells are not answered.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ff_proto::cell::{CMD_DESTROY, Cell, fixed_cell};
use ff_proto::circuit::EphemeralKey;
use ff_proto::ids::Ed25519Id;
use ff_proto::onion::circuit::CircuitError;
use ff_proto::onion::extend::{
    CMD_CREATE2, CMD_CREATED2, NextRelay, created, is_extensions, read_create,
};
use ff_proto::onion::ntor::{self, HANDSHAKE_TYPE, NtorServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::TransitError;
use crate::link::control::{ControlLink, OwnedCell};
use crate::link::{LinkIdentity, accept};

/// Time limit of a peer's handshakes, and then for its first circuit.
const HANDSHAKE_TIME: Duration = Duration::from_secs(20);
/// The largest number of links from the relay's address: the relay needs one, and may open another
/// if that breaks.
const MAX_LINKS: usize = 4;
/// The largest number of links from other addresses, which the relay may also have.
const MAX_OTHER_LINKS: usize = 4;
/// Time limit for sending an answer on a link.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The reason in DESTROY for unexpected circuits: none.
const NO_REASON: u8 = 0;

/// The client's public key in a circuit's handshake, which identifies the circuit.
pub(super) type Point = [u8; 32];

/// The circuits that the sinks accept.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected(Arc<Mutex<HashSet<Point>>>);

impl Expected {
    pub(super) fn add(&self, point: Point) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(point);
    }

    /// Removes one; returns whether it was there.
    fn take(&self, point: &Point) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(point)
    }
}

/// A link that a sink has accepted, with its circuits.
pub(super) struct SinkLink {
    pub(super) link: ControlLink,
    /// The ids of its circuits, with what identifies each.
    pub(super) circuits: Vec<(u32, Point)>,
}

/// A relay of our own at which circuits end.
pub(super) struct Sink {
    /// The sink's address and keys, for EXTEND2.
    pub(super) next: NextRelay,
    /// The sink's key for circuits.
    pub(super) key: [u8; 32],
    /// The task that accepts links; returns them when told to.
    task: tokio::task::JoinHandle<Vec<SinkLink>>,
}

impl Sink {
    /// Makes an identity and accepts links, until `done` changes, of a relay that usually connects
    /// from this address.
    pub(super) async fn start(
        addr: SocketAddr,
        relay: IpAddr,
        expected: Expected,
        done: watch::Receiver<()>,
    ) -> Result<Self, TransitError> {
        let failed = |source| TransitError::Listen { addr, source };
        let identity = tokio::task::spawn_blocking(LinkIdentity::generate).await;
        let identity = identity.map_err(|e| failed(std::io::Error::other(e)))??;
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let ed_id = Ed25519Id(identity.ed_identity().into());
        let server = NtorServer { id: ed_id, key: EphemeralKey::new(rand::random()) };
        let rsa_id = <[u8; 20]>::try_from(identity.rsa_identity().as_bytes());
        let rsa_id = rsa_id.map_err(|e| failed(std::io::Error::other(e)))?;
        let next = NextRelay { addr: listener.local_addr().map_err(failed)?, rsa_id, ed_id };
        let key = server.public().key;
        let host = Host { relay, identity, server, expected };
        let task = tokio::spawn(serve(listener, Arc::new(host), done));
        Ok(Self { next, key, task })
    }

    /// The sink's links; waits until `done` has changed.
    pub(super) async fn into_links(self) -> Vec<SinkLink> {
        // The panic message has been printed; its circuits will be missing later.
        self.task.await.unwrap_or_default()
    }
}

/// The state shared by all links of a sink.
struct Host {
    /// The address from which the relay usually connects.
    relay: IpAddr,
    identity: LinkIdentity,
    /// Its key for circuits.
    server: NtorServer,
    /// The circuits that it accepts.
    expected: Expected,
}

/// Accepts links.
async fn serve(
    listener: TcpListener,
    host: Arc<Host>,
    mut done: watch::Receiver<()>,
) -> Vec<SinkLink> {
    let [own, other] = [MAX_LINKS, MAX_OTHER_LINKS].map(|count| Arc::new(Semaphore::new(count)));
    let mut links = JoinSet::new();
    loop {
        tokio::select! {
            // First, because finished links must be kept.
            biased;
            _ = done.changed() => break,
            Some(_) = links.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, peer)) => {
                    let is_relay = peer.ip().to_canonical() == host.relay.to_canonical();
                    let places = if is_relay { &own } else { &other };
                    // A link without a permit must not wait before the relay's.
                    if let Ok(place) = places.clone().try_acquire_owned() {
                        let link = serve_link(tcp, host.clone(), done.clone());
                        links.spawn(async move {
                            let _place = place;
                            link.await.filter(|link| !link.circuits.is_empty())
                        });
                    }
                }
                // Usually all file descriptors are in use.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    links.join_all().await.into_iter().flatten().collect()
}

/// Handles one link and answers its cells; returns nothing if the link breaks, or does what the
/// relay would not do.
async fn serve_link(
    tcp: TcpStream,
    host: Arc<Host>,
    mut done: watch::Receiver<()>,
) -> Option<SinkLink> {
    let link = tokio::select! {
        link = accept(tcp, &host.identity, HANDSHAKE_TIME) => link.ok()?,
        _ = done.changed() => return None,
    };
    let mut link = ControlLink::new(link).ok()?;
    let (mut circuits, idle_until) = (Vec::new(), Instant::now() + HANDSHAKE_TIME);
    loop {
        let cell = tokio::select! {
            // Cells of open circuits do not arrive before all circuits are open.
            cell = link.recv_cell() => cell.ok()?,
            _ = done.changed() => return Some(SinkLink { link, circuits }),
            // The relay has a reason to connect; a host without one must not take its permit.
            () = sleep_until(idle_until), if circuits.is_empty() => return None,
        };
        let answer = match cell.command {
            CMD_CREATE2 => match host.answer(&cell) {
                Ok((point, answer)) => {
                    circuits.push((cell.circ_id, point));
                    answer
                }
                Err(_) => fixed_cell(cell.circ_id, CMD_DESTROY, &[NO_REASON]).ok()?,
            },
            // The relay closes a circuit that is being measured: the measurement is over.
            CMD_DESTROY if circuits.iter().any(|(id, _)| *id == cell.circ_id) => return None,
            _ => continue,
        };
        timeout(ANSWER_TIME, link.send_cells(&answer)).await.ok()?.ok()?;
        if circuits.is_empty() {
            return None;
        }
    }
}

impl Host {
    /// Answers CREATE2 with CREATED2; returns what identifies the circuit, and the answer.
    fn answer(&self, cell: &OwnedCell) -> Result<(Point, Cell), CircuitError> {
        let (kind, handshake) = read_create(&cell.body)?;
        let point = ntor::client_point(handshake)?;
        if kind != HANDSHAKE_TYPE || !self.expected.take(&point) {
            return Err(CircuitError::Unexpected(cell.command));
        }
        let ephemeral = EphemeralKey::new(rand::random());
        let respond = |message: &[u8]| is_extensions(message).then(|| vec![0]);
        let (reply, _) = self.server.answer(handshake, &ephemeral, respond)?;
        Ok((point, fixed_cell(cell.circ_id, CMD_CREATED2, &created(&reply)?)?))
    }
}
