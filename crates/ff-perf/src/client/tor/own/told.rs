//! Events of streams that tor attaches itself: each stream's circuit, relays and end.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ff_circuits::record::PathRelay;
use ff_lab::{Control, Event};
use tokio::sync::watch;

use crate::client::OwnPath;
use crate::client::tor::events::reason;

/// Interval of checks whether the watcher is still used while no event comes.
const LOOK: Duration = Duration::from_millis(500);

/// State of a stream, by tor's events.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Told {
    /// Present or last circuit.
    circuit: Option<String>,
    /// Relays of that circuit.
    pub(super) path: Option<OwnPath>,
    /// Last end: tor tries other circuits before it gives a stream up.
    pub(super) end: Option<End>,
}

/// End of a stream, or of its time on a circuit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct End {
    pub(super) reason: String,
    /// Whether the exit ended it, not tor.
    pub(super) by_exit: bool,
}

#[derive(Debug, Default)]
pub(super) struct Watcher(Mutex<Streams>);

/// Watched streams.
#[derive(Debug, Default)]
struct Streams {
    /// By source address, until their id is known.
    sources: HashMap<SocketAddr, watch::Sender<Told>>,
    /// By tor's id.
    numbers: HashMap<String, watch::Sender<Told>>,
    /// Whether no more events come.
    is_lost: bool,
}

/// A stream that is watched until this is dropped, or until tor reports its end if its id is known.
#[derive(Debug)]
pub(super) struct Watched {
    told: watch::Receiver<Told>,
    /// Source address.
    source: SocketAddr,
    watcher: Arc<Watcher>,
}

impl Watched {
    pub(super) fn told(&self) -> watch::Receiver<Told> {
        self.told.clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watcher.lock().sources.remove(&self.source);
    }
}

impl Watcher {
    /// Starts the thread that reads events of streams; it ends when the watcher is dropped, or with
    /// tor.
    pub(super) fn start(mut control: Control) -> io::Result<Arc<Self>> {
        let watcher = Arc::new(Self::default());
        let weak: Weak<Self> = Arc::downgrade(&watcher);
        let run = move || {
            loop {
                let event = control.next_event(LOOK);
                let Some(watcher) = weak.upgrade() else { return };
                let noted = match event {
                    Ok(Some(event)) => watcher.note(&event, |circuit| path(&mut control, circuit)),
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                };
                if noted.is_err() {
                    // Dropped senders tell waiting downloads that no more events come.
                    *watcher.lock() = Streams { is_lost: true, ..Streams::default() };
                    return;
                }
            }
        };
        thread::Builder::new().name("tor streams".to_owned()).spawn(run)?;
        Ok(watcher)
    }

    /// Whether no more events come: tor has ended or closed the control connection.
    pub(super) fn is_lost(&self) -> bool {
        self.lock().is_lost
    }

    /// Watches the stream from this source address.
    pub(super) fn watch(self: &Arc<Self>, source: SocketAddr) -> Watched {
        let (sender, told) = watch::channel(Told::default());
        let mut streams = self.lock();
        if !streams.is_lost {
            streams.sources.insert(source, sender);
        }
        Watched { told, source, watcher: Arc::clone(self) }
    }

    /// Records an event of a watched stream; `path` looks up a circuit's relays.
    fn note<E>(
        &self,
        event: &Event,
        path: impl FnOnce(&str) -> Result<OwnPath, E>,
    ) -> Result<(), E> {
        let words: Vec<&str> = event.words().take(3).collect();
        let [number, status, circuit] = words[..] else { return Ok(()) };
        match status {
            "NEW" => {
                let source = event.get("SOURCE_ADDR").and_then(|text| text.parse().ok());
                let mut streams = self.lock();
                if let Some(sender) = source.and_then(|source| streams.sources.remove(&source)) {
                    streams.numbers.insert(number.to_owned(), sender);
                }
            }
            "SENTCONNECT" | "SUCCEEDED" => {
                let Some(sender) = self.lock().numbers.get(number).cloned() else { return Ok(()) };
                let before = sender.borrow().circuit.clone();
                let is_new = circuit != "0" && before.as_deref() != Some(circuit);
                let path = is_new.then(|| path(circuit)).transpose()?;
                sender.send_modify(|told| {
                    told.end = None;
                    if path.is_some() {
                        (told.circuit, told.path) = (Some(circuit.to_owned()), path);
                    }
                });
            }
            "DETACHED" | "FAILED" | "CLOSED" => {
                let mut streams = self.lock();
                let sender = match status {
                    "DETACHED" => streams.numbers.get(number).cloned(),
                    _ => streams.numbers.remove(number),
                };
                let by_exit = event.get("REMOTE_REASON").is_some();
                let end = End { reason: reason(event), by_exit };
                // After an exit's refusal, tor's own event at the stream's end says less.
                if let Some(sender) = sender.filter(|sender| by_exit || !is_refused(sender)) {
                    sender.send_modify(|told| told.end = Some(end));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the exit has ended the stream.
fn is_refused(sender: &watch::Sender<Told>) -> bool {
    sender.borrow().end.as_ref().is_some_and(|end| end.by_exit)
}

/// Relays of a circuit, or of all circuits of its conflux set.
fn path(control: &mut Control, circuit: &str) -> ff_lab::Result<OwnPath> {
    Ok(legs(&control.getinfo("circuit-status")?, circuit))
}

/// The same, from the status of all circuits (control-spec 3.9).
fn legs(status: &str, circuit: &str) -> OwnPath {
    let events: Vec<Event> = status
        .lines()
        .map(|line| Event { kind: "CIRC".to_owned(), text: line.to_owned() })
        .collect();
    let Some(own) = events.iter().find(|event| event.words().next() == Some(circuit)) else {
        return OwnPath::Unknown(format!("tor has closed circuit {circuit}"));
    };
    let Some(set) = own.get("CONFLUX_ID") else {
        return OwnPath::of_legs(vec![relays(own)]);
    };
    let legs = events.iter().filter(|event| event.get("CONFLUX_ID") == Some(set));
    OwnPath::of_legs(legs.map(relays).collect())
}

fn relays(circuit: &Event) -> Vec<PathRelay> {
    let path = circuit.words().nth(2).filter(|word| word.starts_with('$')).unwrap_or_default();
    let relay = |name: &str| {
        let name = name.trim_start_matches('$');
        let (id, nick) = name.split_once(['~', '=']).unwrap_or((name, ""));
        PathRelay { id: id.to_owned(), nick: nick.to_owned() }
    };
    path.split(',').filter(|name| !name.is_empty()).map(relay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Circuits as a real tor, 0.4.9, lists them: one, two of a conflux set, and one without relays
    /// yet.
    const STATUS: &str = "\
        7 BUILT $AA~a,$BB~b,$CC~c BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL TIME_CREATED=2026-11-29T12:00:00.000000\n\
        8 BUILT $AA~a,$DD~d,$EE~e BUILD_FLAGS=NEED_CAPACITY PURPOSE=CONFLUX_LINKED CONFLUX_ID=F0 CONFLUX_RTT=30\n\
        9 BUILT $AB~f,$DE~g,$EE~e BUILD_FLAGS=NEED_CAPACITY PURPOSE=CONFLUX_LINKED CONFLUX_ID=F0 CONFLUX_RTT=40\n\
        10 LAUNCHED BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL\n";

    /// A watcher, and a stream that it watches, from port 5 of loopback.
    fn watched() -> (Arc<Watcher>, Watched) {
        let watcher = Arc::new(Watcher::default());
        let watched = watcher.watch("127.0.0.1:5".parse().expect("an address"));
        (watcher, watched)
    }

    /// Records events of streams.
    fn note(watcher: &Watcher, texts: &[&str]) {
        for text in texts {
            let event = Event { kind: "STREAM".to_owned(), text: (*text).to_owned() };
            let noted = watcher.note::<()>(&event, |circuit| Ok(legs(STATUS, circuit)));
            noted.expect("a path");
        }
    }

    /// Fingerprints of a path.
    fn ids(told: &Told) -> Vec<&str> {
        let Some(OwnPath::Known(relays)) = &told.path else { panic!("{told:?}") };
        relays.iter().map(|relay| relay.id.as_str()).collect()
    }

    #[test]
    fn a_stream_is_followed_from_circuit_to_circuit() {
        let (watcher, watched) = watched();
        let told = watched.told();
        note(
            &watcher,
            &[
                "3 NEW 0 a:80 SOURCE_ADDR=127.0.0.1:4 PURPOSE=USER",
                "4 NEW 0 a:80 SOURCE_ADDR=127.0.0.1:5 PURPOSE=USER",
                "3 SENTCONNECT 10 a:80",
                "4 SENTCONNECT 8 a:80",
            ],
        );
        let Some(OwnPath::Unknown(why)) = told.borrow().path.clone() else { panic!("two legs") };
        assert_eq!(why, "conflux over 2 circuits: AA,DD,EE; AB,DE,EE");
        note(
            &watcher,
            &[
                "4 DETACHED 8 a:80 REASON=TIMEOUT",
                "4 SENTCONNECT 7 a:80",
                "4 SUCCEEDED 7 192.0.2.1:80",
            ],
        );
        assert_eq!(ids(&told.borrow()), ["AA", "BB", "CC"]);
        note(&watcher, &["4 CLOSED 7 192.0.2.1:80 REASON=END REMOTE_REASON=DONE"]);
        let end = Some(End { reason: "done".to_owned(), by_exit: true });
        assert_eq!(told.borrow().end, end);
        assert!(watcher.lock().numbers.is_empty(), "it is forgotten");
    }

    #[test]
    fn the_refusal_of_an_exit_is_kept() {
        let (watcher, watched) = watched();
        let told = watched.told();
        note(
            &watcher,
            &[
                "4 NEW 0 a:80 SOURCE_ADDR=127.0.0.1:5 PURPOSE=USER",
                "4 SENTCONNECT 7 a:80",
                "4 DETACHED 7 a:80 REASON=END REMOTE_REASON=CONNECTREFUSED",
                "4 FAILED 0 a:80 REASON=TIMEOUT",
            ],
        );
        let end = Some(End { reason: "connectrefused".to_owned(), by_exit: true });
        assert_eq!(told.borrow().end, end);
    }

    #[test]
    fn a_stream_without_a_number_is_forgotten_with_its_socket() {
        let (watcher, watched) = watched();
        drop(watched);
        assert!(watcher.lock().sources.is_empty());
    }

    #[test]
    fn a_circuit_without_relays_has_no_path() {
        assert!(matches!(legs(STATUS, "10"), OwnPath::Unknown(_)));
        assert!(matches!(legs(STATUS, "11"), OwnPath::Unknown(_)));
    }
}
