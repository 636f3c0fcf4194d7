//! The waiters for tor's events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::Fault;

/// How many events of circuits are kept that nobody knows yet: a new circuit's number comes after
/// its first events.
const EARLY: usize = 256;

/// The state of a circuit, by tor's events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CircuitState {
    /// This number of hops is complete.
    Hops(usize),
    /// It can be used.
    Built,
    Ended {
        /// Why.
        reason: String,
        /// Whether a relay has said so, and not tor itself.
        by_relay: bool,
    },
}

/// The state of a stream, by tor's events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum StreamState {
    /// It wants a circuit; its number.
    New(String),
    /// The exit of this circuit has been asked for it.
    Sent(String),
    /// It is to another address than it was.
    Renamed {
        /// The circuit; `0` if it has none.
        circuit: String,
        /// The address.
        to: String,
    },
    /// The exit of this circuit says that it is connected.
    Connected(String),
    /// It has ended, or left its circuit.
    Ended {
        /// The circuit; `0` if it had none.
        circuit: String,
        /// Why.
        reason: String,
        /// Whether the exit has said so, and not tor itself.
        by_exit: bool,
    },
}

impl StreamState {
    /// The circuit that the stream is on, or was.
    pub(super) fn circuit(&self) -> Option<&str> {
        match self {
            Self::New(_) => None,
            Self::Sent(circuit)
            | Self::Renamed { circuit, .. }
            | Self::Connected(circuit)
            | Self::Ended { circuit, .. } => (circuit != "0").then_some(circuit),
        }
    }
}

/// The known state of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    pub(super) is_open: bool,
    /// When it was opened, if that was since the circuit began.
    pub(super) opened: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Table(Mutex<Waiting>);

/// As above.
#[derive(Debug, Default)]
struct Waiting {
    /// Circuits by number.
    circuits: HashMap<String, UnboundedSender<(Instant, CircuitState)>>,
    /// Events of circuits that are not known yet.
    early: VecDeque<(String, Instant, CircuitState)>,
    /// Streams that have no number yet, by where they come from.
    sources: HashMap<SocketAddr, UnboundedSender<(Instant, StreamState)>>,
    /// Streams by number.
    streams: HashMap<String, UnboundedSender<(Instant, StreamState)>>,
    /// Connections by relay that are open, and when the last one was opened.
    links: HashMap<String, (HashSet<String>, Option<Instant>)>,
    /// Why nothing more is told.
    lost: Option<String>,
}

/// Where news come.
pub(super) struct Slot<T> {
    news: UnboundedReceiver<(Instant, T)>,
    /// Where this is known, to tell of the reason if there are no more.
    table: Arc<Table>,
    /// The source address, to be forgotten with it.
    source: Option<SocketAddr>,
}

impl<T> Slot<T> {
    /// The next one, and when it came.
    pub(super) async fn next(&mut self) -> Result<(Instant, T), Fault> {
        let lost = || {
            let lost = self.table.lock().lost.clone();
            Fault::client(
                lost.unwrap_or_else(|| "tor no longer reports events about it".to_owned()),
            )
        };
        self.news.recv().await.ok_or_else(lost)
    }

    /// The next one that has come already.
    pub(super) fn next_now(&mut self) -> Option<T> {
        self.news.try_recv().ok().map(|(_, news)| news)
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if let Some(source) = self.source {
            self.table.lock().sources.remove(&source);
        }
    }
}

impl Table {
    /// From now on, what is told of this circuit comes to a slot.
    pub(super) fn expect_circuit(self: &Arc<Self>, id: &str) -> Slot<CircuitState> {
        let (sender, news) = unbounded_channel();
        let mut waiting = self.lock();
        waiting.early.retain(|(other, at, state)| {
            if other == id {
                let _ = sender.send((*at, state.clone()));
            }
            other != id
        });
        if waiting.lost.is_none() {
            waiting.circuits.insert(id.to_owned(), sender);
        }
        Slot { news, table: Arc::clone(self), source: None }
    }

    /// From now on, what is told of the stream from this address comes to a slot.
    pub(super) fn expect_stream(self: &Arc<Self>, source: SocketAddr) -> Slot<StreamState> {
        let (sender, news) = unbounded_channel();
        let mut waiting = self.lock();
        if waiting.lost.is_none() {
            waiting.sources.insert(source, sender);
        }
        Slot { news, table: Arc::clone(self), source: Some(source) }
    }

    /// This circuit has no waiters from now on.
    pub(super) fn forget_circuit(&self, id: &str) {
        self.lock().circuits.remove(id);
    }

    /// Something is told of a circuit.
    pub(super) fn circuit(&self, id: &str, at: Instant, state: CircuitState) {
        let mut waiting = self.lock();
        if let Some(sender) = waiting.circuits.get(id) {
            // A receiver that is gone has given up.
            let _ = sender.send((at, state));
            return;
        }
        waiting.early.push_back((id.to_owned(), at, state));
        if waiting.early.len() > EARLY {
            waiting.early.pop_front();
        }
    }

    /// There is a new stream.
    pub(super) fn new_stream(&self, id: &str, source: SocketAddr, at: Instant) {
        let mut waiting = self.lock();
        if let Some(sender) = waiting.sources.remove(&source) {
            let _ = sender.send((at, StreamState::New(id.to_owned())));
            waiting.streams.insert(id.to_owned(), sender);
        }
    }

    /// Something is told of a stream.
    pub(super) fn stream(&self, id: &str, at: Instant, state: StreamState) {
        let mut waiting = self.lock();
        let has_ended = matches!(state, StreamState::Ended { .. });
        if let Some(sender) = waiting.streams.get(id) {
            let _ = sender.send((at, state));
        }
        if has_ended {
            waiting.streams.remove(id);
        }
    }

    /// A link to a relay is asked for.
    pub(super) fn link_begins(&self, id: &str) {
        self.lock().links.entry(id.to_owned()).or_default();
    }

    /// A connection to a relay is open now.
    pub(super) fn link_opens(&self, id: &str, connection: &str, at: Instant) {
        let mut waiting = self.lock();
        let (open, opened) = waiting.links.entry(id.to_owned()).or_default();
        open.insert(connection.to_owned());
        *opened = Some(at);
    }

    /// It is not any more.
    pub(super) fn link_closes(&self, id: &str, connection: &str) {
        self.lock().links.entry(id.to_owned()).or_default().0.remove(connection);
    }

    /// What is known of a relay's link; one of which nothing was told was open before.
    pub(super) fn link(&self, id: &str, began: Instant) -> Link {
        match self.lock().links.get(id) {
            Some((open, _)) if open.is_empty() => Link::default(),
            Some((_, at)) => Link { is_open: true, opened: at.filter(|at| *at >= began) },
            None => Link { is_open: true, opened: None },
        }
    }

    /// Nothing more is told, for this reason.
    pub(super) fn lost(&self, reason: &str) {
        let mut waiting = self.lock();
        *waiting = Waiting { lost: Some(reason.to_owned()), ..Waiting::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
