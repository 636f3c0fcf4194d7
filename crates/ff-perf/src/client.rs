//! Clients that build circuits: one interface, and its implementations.
//!
//! A client does one thing at a time with a circuit and says how long it took; what is done when,
//! and what is kept of it, is decided elsewhere. A future that is dropped ends what it was doing.

pub mod arti;
pub mod tor;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use ff_circuits::network::NetworkRelay;
use ff_circuits::record::{Probe, Whose};
use tokio::io::{AsyncRead, AsyncWrite};

/// Builds circuits through given relays.
pub trait Client: Send + Sync + 'static {
    /// A circuit; it ends when it is dropped.
    type Circuit: Send + Sync + 'static;
    /// A stream on it.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin;

    /// As lines name it.
    const NAME: ff_circuits::record::Client;
    /// Whether a circuit stays open when it has no stream at some moment, however earlier streams
    /// ended.
    const KEEPS_UNUSED: bool;
    /// Whether it chooses paths itself, and builds through no given relays.
    const CHOOSES_PATHS: bool = false;

    /// Builds a circuit, hop by hop. What has been built by when is in `progress`, also if it fails
    /// or is given up.
    fn build(
        &self,
        path: &[Arc<NetworkRelay>],
        progress: &mut Progress,
    ) -> impl Future<Output = Result<Self::Circuit, Fault>> + Send;

    /// Sends one cell to the last relay and waits for the one that comes back. It fails if that one
    /// is about another address, as far as the client tells: only a relay that lies does that.
    ///
    /// Arti does not tell which address an exit has refused, nor does a tor of the Internet's
    /// network if it is a private one; no figure depends on it, because a probe's time is that of
    /// the cell, with any content.
    fn probe(
        &self,
        circuit: &Self::Circuit,
        probe: Probe,
        address: Ipv4Addr,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send;

    /// Opens a stream to a host: asks for it, and waits until the exit says that it is connected.
    fn open(
        &self,
        circuit: &Self::Circuit,
        host: &str,
        port: u16,
    ) -> impl Future<Output = Result<Self::Stream, Fault>> + Send;

    /// The path that the client chose itself for a circuit; none if it builds through given relays.
    fn own_path(_circuit: &Self::Circuit) -> Option<OwnPath> {
        None
    }

    /// What it says that a stream has ended, by an error or without one, if its target has not
    /// ended it.
    fn lost(
        circuit: &Self::Circuit,
        stream: &mut Self::Stream,
        error: Option<&io::Error>,
    ) -> impl Future<Output = Option<Fault>> + Send;
}

/// The path of a circuit that its client chose itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OwnPath {
    /// Its relays, first hop first. To an onion service: the client's part, up to the rendezvous
    /// point.
    Known(Vec<ff_circuits::record::PathRelay>),
    /// Why the path is not known.
    Unknown(String),
}

impl OwnPath {
    /// The paths of all circuits that a stream may use: several if it is on a conflux set.
    pub(crate) fn of_legs(mut legs: Vec<Vec<ff_circuits::record::PathRelay>>) -> Self {
        match (legs.pop(), legs.len()) {
            (Some(relays), 0) if !relays.is_empty() => Self::Known(relays),
            (_, 0) => Self::Unknown("the client does not report the relays".to_owned()),
            (last, _) => {
                legs.extend(last);
                let ids = |leg: &Vec<ff_circuits::record::PathRelay>| {
                    leg.iter().map(|relay| relay.id.as_str()).collect::<Vec<_>>().join(",")
                };
                let legs: Vec<_> = legs.iter().map(ids).collect();
                Self::Unknown(format!("conflux over {} circuits: {}", legs.len(), legs.join("; ")))
            }
        }
    }
}

/// How far the building of a circuit has come. Times count from its beginning, in µs.
#[derive(Clone, Debug)]
pub struct Progress {
    /// When it began.
    pub began: Instant,
    /// How long the link took to open, if it was not open.
    pub link_us: Option<u64>,
    /// Whether there is a link.
    pub has_link: bool,
    /// When each hop stood.
    pub hops_us: Vec<u64>,
}

impl Progress {
    /// Begins now.
    pub fn new() -> Self {
        Self { began: Instant::now(), link_us: None, has_link: false, hops_us: Vec::new() }
    }

    /// How long it has been going on, in µs.
    pub fn us(&self) -> u64 {
        us_since(self.began)
    }

    /// A hop stands.
    pub fn hop(&mut self) {
        self.hops_us.push(self.us());
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// The answer that came back from the last relay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// After how long, in µs.
    pub us: u64,
    /// With which reason it refused, in lower case as tor-spec 6.3 names it, or its number if it
    /// has no name there; empty for a resolved address.
    pub reason: String,
}

/// Why something failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// The reason.
    pub reason: String,
    /// The side at fault.
    pub whose: Whose,
    /// Whether it was the last relay, if it came of a circuit that stands.
    pub is_of_last: bool,
}

impl Fault {
    /// Of this one, as whose all but a last relay's is.
    pub(crate) fn of(whose: Whose, reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), whose, is_of_last: false }
    }

    /// The last relay's, or of the network before it.
    pub fn relay(reason: impl ToString) -> Self {
        Self { is_of_last: true, ..Self::of(Whose::Relay, reason) }
    }

    /// A relay's, or of the network between relays; if the circuit stood, nobody knows which.
    pub fn circuit(reason: impl ToString) -> Self {
        Self::of(Whose::Relay, reason)
    }

    /// Nothing came in time.
    pub fn timeout(reason: impl ToString) -> Self {
        Self::unknown(reason)
    }

    /// Nobody knows whose.
    pub fn unknown(reason: impl ToString) -> Self {
        Self::of(Whose::Unknown, reason)
    }

    /// Ours.
    pub fn client(reason: impl ToString) -> Self {
        Self::of(Whose::Client, reason)
    }

    /// The target's.
    pub fn target(reason: impl ToString) -> Self {
        Self::of(Whose::Target, reason)
    }
}

/// The fault for an exit's END with this reason, in lower case as tor-spec 6.3 names it: some
/// reasons are the exit's own, and tor says `internal` for everything unexpected, its own errors
/// and its target's. It cannot be known whether only this exit does not know a name or a route.
pub(crate) fn refused(reason: String) -> Fault {
    match reason.as_str() {
        "exitpolicy" | "resourcelimit" | "hibernating" | "torprotocol" | "notdirectory" => {
            Fault::relay(reason)
        }
        "internal" | "resolvefailed" | "noroute" => Fault::of(Whose::Unknown, reason),
        _ => Fault::target(reason),
    }
}

/// The fault for an exit's END of an open stream, if it was not the target's.
pub(crate) fn by_exit(reason: String) -> Option<Fault> {
    Some(refused(reason)).filter(|fault| fault.whose != Whose::Target)
}

/// The time since then, in µs.
pub(crate) fn us_since(then: Instant) -> u64 {
    u64::try_from(then.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The port that probes ask for; nothing listens there.
pub(crate) const PROBE_PORT: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_conflux_set_is_not_one_path() {
        let leg = |ids: &[&str]| -> Vec<_> {
            let relay = |id: &&str| ff_circuits::record::PathRelay {
                id: (*id).to_owned(),
                nick: String::new(),
            };
            ids.iter().map(relay).collect()
        };
        let one = leg(&["A", "B", "C"]);
        assert_eq!(OwnPath::of_legs(vec![one.clone()]), OwnPath::Known(one.clone()));
        let OwnPath::Unknown(why) = OwnPath::of_legs(vec![one, leg(&["D", "E", "C"])]) else {
            panic!("the path of two legs is known");
        };
        assert_eq!(why, "conflux over 2 circuits: A,B,C; D,E,C");
        for nothing in [Vec::new(), vec![Vec::new()]] {
            assert!(matches!(OwnPath::of_legs(nothing), OwnPath::Unknown(_)));
        }
    }

    #[test]
    fn some_reasons_are_the_exits_own() {
        for (reason, whose, is_of_last) in [
            ("exitpolicy", Whose::Relay, true),
            ("resourcelimit", Whose::Relay, true),
            ("hibernating", Whose::Relay, true),
            ("internal", Whose::Unknown, false),
            ("resolvefailed", Whose::Unknown, false),
            ("connectrefused", Whose::Target, false),
            ("done", Whose::Target, false),
        ] {
            let fault = refused(reason.to_owned());
            assert_eq!((fault.whose, fault.is_of_last), (whose, is_of_last), "{reason}");
            assert_eq!(by_exit(reason.to_owned()).is_some(), whose != Whose::Target, "{reason}");
        }
    }
}
