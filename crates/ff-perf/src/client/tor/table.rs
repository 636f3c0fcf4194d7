//! Waiters for tor's events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::client::Fault;

/// Events kept of circuits that are not registered yet: a new circuit's id is known only after its
/// first events.
const EARLY: usize = 256;

/// State of a circuit, by tor's events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CircuitState {
    /// Number of complete hops.
    Hops(usize),
    /// Ready for use.
    Built,
    Ended {
        reason: String,
        /// Whether a relay ended it, not tor.
        by_relay: bool,
    },
}

/// State of a stream, by tor's events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum StreamState {
    /// It waits for a circuit; with its id.
    New(String),
    /// The request was sent to the exit of this circuit.
    Sent(String),
    /// Its address has changed.
    Renamed {
        /// Circuit; `0` if it has none.
        circuit: String,
        /// New address.
        to: String,
    },
    /// The exit of this circuit reports it as connected.
    Connected(String),
    /// It has ended, or left its circuit.
    Ended {
        /// Circuit; `0` if it had none.
        circuit: String,
        reason: String,
        /// Whether the exit ended it, not tor.
        by_exit: bool,
    },
}

impl StreamState {
    /// Present or last circuit.
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

/// State of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    pub(super) is_open: bool,
    /// When it was opened, if after the circuit began.
    pub(super) opened: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Table(Mutex<Waiting>);

/// Content of the [`Table`].
#[derive(Debug, Default)]
struct Waiting {
    /// Circuits by id.
    circuits: HashMap<String, UnboundedSender<(Instant, CircuitState)>>,
    /// Events of unregistered circuits.
    early: VecDeque<(String, Instant, CircuitState)>,
    /// Streams without an id yet, by source address.
    sources: HashMap<SocketAddr, UnboundedSender<(Instant, StreamState)>>,
    /// Streams by id.
    streams: HashMap<String, UnboundedSender<(Instant, StreamState)>>,
    /// Open connections by relay, and when the last one was opened.
    links: HashMap<String, (HashSet<String>, Option<Instant>)>,
    /// Why no more events come.
    lost: Option<String>,
}

/// Receives events of one circuit or stream.
pub(super) struct Slot<T> {
    news: UnboundedReceiver<(Instant, T)>,
    /// Has the reason if no more events come.
    table: Arc<Table>,
    /// Source address, removed from the table with this.
    source: Option<SocketAddr>,
}

impl<T> Slot<T> {
    /// Next event, with its time.
    pub(super) async fn next(&mut self) -> Result<(Instant, T), Fault> {
        let lost = || {
            let lost = self.table.lock().lost.clone();
            Fault::client(
                lost.unwrap_or_else(|| "tor no longer reports events about it".to_owned()),
            )
        };
        self.news.recv().await.ok_or_else(lost)
    }

    /// Next event that has already arrived.
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
    /// Registers a waiter for this circuit.
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

    /// Registers a waiter for the stream from this source address.
    pub(super) fn expect_stream(self: &Arc<Self>, source: SocketAddr) -> Slot<StreamState> {
        let (sender, news) = unbounded_channel();
        let mut waiting = self.lock();
        if waiting.lost.is_none() {
            waiting.sources.insert(source, sender);
        }
        Slot { news, table: Arc::clone(self), source: Some(source) }
    }

    /// Removes the waiter for this circuit.
    pub(super) fn forget_circuit(&self, id: &str) {
        self.lock().circuits.remove(id);
    }

    /// Passes on a circuit's state.
    pub(super) fn circuit(&self, id: &str, at: Instant, state: CircuitState) {
        let mut waiting = self.lock();
        if let Some(sender) = waiting.circuits.get(id) {
            // A dropped receiver has given up.
            let _ = sender.send((at, state));
            return;
        }
        waiting.early.push_back((id.to_owned(), at, state));
        if waiting.early.len() > EARLY {
            waiting.early.pop_front();
        }
    }

    /// Registers a new stream's id.
    pub(super) fn new_stream(&self, id: &str, source: SocketAddr, at: Instant) {
        let mut waiting = self.lock();
        if let Some(sender) = waiting.sources.remove(&source) {
            let _ = sender.send((at, StreamState::New(id.to_owned())));
            waiting.streams.insert(id.to_owned(), sender);
        }
    }

    /// Passes on a stream's state.
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

    /// Records that a link to a relay is being opened.
    pub(super) fn link_begins(&self, id: &str) {
        self.lock().links.entry(id.to_owned()).or_default();
    }

    /// Records an opened connection to a relay.
    pub(super) fn link_opens(&self, id: &str, connection: &str, at: Instant) {
        let mut waiting = self.lock();
        let (open, opened) = waiting.links.entry(id.to_owned()).or_default();
        open.insert(connection.to_owned());
        *opened = Some(at);
    }

    /// Records a closed connection to a relay.
    pub(super) fn link_closes(&self, id: &str, connection: &str) {
        self.lock().links.entry(id.to_owned()).or_default().0.remove(connection);
    }

    /// State of a relay's link; without events it was open before.
    pub(super) fn link(&self, id: &str, began: Instant) -> Link {
        match self.lock().links.get(id) {
            Some((open, _)) if open.is_empty() => Link::default(),
            Some((_, at)) => Link { is_open: true, opened: at.filter(|at| *at >= began) },
            None => Link { is_open: true, opened: None },
        }
    }

    /// Ends all waits, for this reason.
    pub(super) fn lost(&self, reason: &str) {
        let mut waiting = self.lock();
        *waiting = Waiting { lost: Some(reason.to_owned()), ..Waiting::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
