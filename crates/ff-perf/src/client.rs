//! The interface of clients that build circuits, and its implementations.
//!
//! A client does one operation at a time on a circuit and returns how long it took; callers decide
//! the order and what is recorded. Dropping a future cancels its operation.

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
    /// Type of circuits; dropping one closes it.
    type Circuit: Send + Sync + 'static;
    /// Type of streams on its circuits.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin;

    /// Name in lines.
    const NAME: ff_circuits::record::Client;
    /// Whether a circuit without streams stays open, however earlier streams ended.
    const KEEPS_UNUSED: bool = true;
    /// Whether it chooses its own paths and cannot build through given relays.
    const CHOOSES_PATHS: bool = false;

    /// Builds a circuit, hop by hop. `progress` has the times of finished hops, also on failure or
    /// if the build is cancelled.
    fn build(
        &self,
        path: &[Arc<NetworkRelay>],
        progress: &mut Progress,
    ) -> impl Future<Output = Result<Self::Circuit, Fault>> + Send;

    /// Sends one cell to the last relay and waits for the answer. Fails if the answer is about
    /// another address, as far as the client tells: only a lying relay does that.
    ///
    /// Arti does not tell which address an exit refused, nor does tor in the public network if the
    /// address is private. No result depends on it: a probe measures the time of a cell, whatever
    /// its content.
    fn probe(
        &self,
        circuit: &Self::Circuit,
        probe: Probe,
        address: Ipv4Addr,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send;

    /// Opens a stream to a host and waits until the exit reports it as connected.
    fn open(
        &self,
        circuit: &Self::Circuit,
        host: &str,
        port: u16,
    ) -> impl Future<Output = Result<Self::Stream, Fault>> + Send;

    /// The path that the client chose for a circuit; `None` if paths are given.
    fn own_path(_circuit: &Self::Circuit) -> Option<OwnPath> {
        None
    }

    /// Why a stream ended, with or without an error; `None` if its target ended it.
    fn lost(
        circuit: &Self::Circuit,
        stream: &mut Self::Stream,
        error: Option<&io::Error>,
    ) -> impl Future<Output = Option<Fault>> + Send;
}

/// Path of a circuit that the client chose.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OwnPath {
    /// Relays, first hop first. To an onion service: the client's part, up to the rendezvous point.
    Known(Vec<ff_circuits::record::PathRelay>),
    /// Reason why the path is unknown.
    Unknown(String),
}

impl OwnPath {
    /// The path of a stream that may use several circuits, as on a conflux set.
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

/// Progress of building a circuit; times in µs since its start.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Start.
    pub began: Instant,
    /// Time to open the link, if it was not open.
    pub link_us: Option<u64>,
    /// Whether the link is open.
    pub has_link: bool,
    /// Times at which hops were complete.
    pub hops_us: Vec<u64>,
}

impl Progress {
    /// Starts now.
    pub fn new() -> Self {
        Self { began: Instant::now(), link_us: None, has_link: false, hops_us: Vec::new() }
    }

    /// Time since the start, in µs.
    pub fn us(&self) -> u64 {
        us_since(self.began)
    }

    /// Records that a hop is complete.
    pub fn hop(&mut self) {
        self.hops_us.push(self.us());
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

/// Answer of the last relay to a probe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Time until the answer, in µs.
    pub us: u64,
    /// Reason of the refusal in lower case as in tor-spec 6.3, or its number if it has no name
    /// there; empty for a resolved address.
    pub reason: String,
}

/// A failure and the side at fault.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Reason.
    pub reason: String,
    /// The side at fault.
    pub whose: Whose,
    /// Whether the last relay is at fault, for failures on an open circuit.
    pub is_of_last: bool,
}

impl Fault {
    /// A fault of this side, but not of the last relay. Of a long reason only the beginning is
    /// kept, because relays and targets may write it, and it is in a line.
    pub(crate) fn of(whose: Whose, reason: impl ToString) -> Self {
        let mut reason = reason.to_string();
        if let Some((end, _)) = reason.char_indices().nth(MOST_REASON) {
            reason.truncate(end);
        }
        Self { reason, whose, is_of_last: false }
    }

    /// Fault of the last relay, or of the network before it.
    pub fn relay(reason: impl ToString) -> Self {
        Self { is_of_last: true, ..Self::of(Whose::Relay, reason) }
    }

    /// Fault of a relay or of the network between relays; on an open circuit it is unknown which.
    pub fn circuit(reason: impl ToString) -> Self {
        Self::of(Whose::Relay, reason)
    }

    /// Timeout.
    pub fn timeout(reason: impl ToString) -> Self {
        Self::unknown(reason)
    }

    /// Fault of an unknown side.
    pub fn unknown(reason: impl ToString) -> Self {
        Self::of(Whose::Unknown, reason)
    }

    /// Fault of this client.
    pub fn client(reason: impl ToString) -> Self {
        Self::of(Whose::Client, reason)
    }

    /// Fault of the target.
    pub fn target(reason: impl ToString) -> Self {
        Self::of(Whose::Target, reason)
    }
}

/// The fault for an exit's END with this reason, in lower case as in tor-spec 6.3. Some reasons are
/// the exit's own. tor sends `internal` for everything unexpected, its own errors and its target's.
/// It is unknown whether only this exit cannot resolve a name or reach a host.
pub(crate) fn refused(reason: String) -> Fault {
    match reason.as_str() {
        "exitpolicy" | "resourcelimit" | "hibernating" | "torprotocol" | "notdirectory" => {
            Fault::relay(reason)
        }
        "internal" | "resolvefailed" | "noroute" => Fault::of(Whose::Unknown, reason),
        _ => Fault::target(reason),
    }
}

/// The fault for an exit's END of an open stream; `None` if the target ended it.
pub(crate) fn by_exit(reason: String) -> Option<Fault> {
    Some(refused(reason)).filter(|fault| fault.whose != Whose::Target)
}

/// Time since `then`, in µs.
pub(crate) fn us_since(then: Instant) -> u64 {
    u64::try_from(then.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Longest reason, in characters.
const MOST_REASON: usize = 500;

/// Port of probes; nothing listens there.
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
    fn of_a_long_reason_the_beginning_is_kept() {
        let fault = Fault::relay("\u{e4}".repeat(100_000));
        assert_eq!(fault.reason, "\u{e4}".repeat(500));
        let whole = "\u{e4}".repeat(500);
        assert_eq!(Fault::client(&whole).reason, whole);
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
