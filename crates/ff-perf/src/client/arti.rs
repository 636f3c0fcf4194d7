//! Arti, in this process: its channels and circuits, without its choice of paths and its timeouts;
//! in [`own`], with both.
//!
//! All use of Arti's circuits and links, whose interfaces are not stable, is in this module.
//! `TunnelBuilder` is not used: it hides when hops stand, and gives circuits up by a timeout that
//! it learns, which cuts off what is to be measured. What is left of Arti's own: a link has 5 s,
//! and is tried twice, with the first try in the times of hops.
//!
//! Decisions: doc/decisions.md, "arti-client only where the client chooses paths".

mod bootstrap;
mod links;
pub mod own;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_circuits::network::{CircuitNetwork, NetworkRelay};
use ff_circuits::record::Probe;
use rustix::io::Errno;
use tokio::io::AsyncReadExt as _;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};
use tor_chanmgr::{ChanProvenance, ChannelUsage, Error as ChanError};
use tor_circmgr::build::exit_circparams_from_netparams;
use tor_linkspec::OwnedCircTarget;
use tor_netdir::params::NetParameters;
use tor_proto::channel::Channel;
use tor_proto::circuit::CircParameters;
use tor_proto::client::circuit::TimeoutEstimator;
use tor_proto::client::stream::DataStream;
use tor_proto::{ClientTunnel, Error as ProtoError};
use tor_rtcompat::PreferredRuntime;

pub use self::bootstrap::start;
use self::links::Links;
use super::{Answer, Client, Fault, PROBE_PORT, Progress, by_exit, refused, us_since};

/// How long Arti keeps halves of closed streams: as long as tor's circuits may take.
const HALF_STREAMS: Duration = Duration::from_secs(60);

/// Arti's part of a client.
pub struct Arti {
    /// Links to guards.
    links: Links,
    /// Parameters of circuits to exits.
    params: CircParameters,
}

/// A circuit of Arti's.
pub struct ArtiCircuit {
    /// It.
    tunnel: Arc<ClientTunnel>,
    /// What moves its cells.
    _reactor: Reactor,
}

/// The task of a circuit's reactor, which ends with this. By itself a reactor waits for the first
/// hop for ever, even if the circuit was given up, and keeps its link open; when it ends, it has
/// the circuit destroyed.
struct Reactor(AbortHandle);

impl Drop for Reactor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Arti {
    /// For a network. Call it within a runtime of tokio's.
    ///
    /// # Errors
    /// With what Arti says.
    pub fn new(network: &CircuitNetwork) -> Result<Self, String> {
        choose_cryptography();
        let runtime = PreferredRuntime::current().map_err(|error| error.to_string())?;
        let known = network.params.parse().map_err(|error| format!("{error}"))?;
        let net = NetParameters::from_map(&known);
        let params = exit_circparams_from_netparams(&net).map_err(|error| error.to_string())?;
        let links = Links::new(runtime, net)?;
        Ok(Self { links, params })
    }

    /// The first hop, on a link that is open or opened for it.
    async fn first(
        &self,
        target: &OwnedCircTarget,
        progress: &mut Progress,
    ) -> Result<ArtiCircuit, Fault> {
        let (channel, provenance) = self.link(target).await?;
        progress.has_link = true;
        if matches!(provenance, ChanProvenance::NewlyCreated) {
            progress.link_us = Some(progress.us());
        }
        let pending = channel.new_tunnel(Arc::new(NoTimeout)).await;
        let (pending, reactor) = pending.map_err(|error| fault(&error))?;
        // The circuit's user learns why it has ended. A future of its size is not moved more often
        // than it must.
        let reactor = Reactor(tokio::spawn(reactor.run()).abort_handle());
        let tunnel = pending.create_firsthop(target, self.params.clone()).await;
        let tunnel = Arc::new(tunnel.map_err(|error| fault(&error))?);
        Ok(ArtiCircuit { tunnel, _reactor: reactor })
    }

    /// The link to a relay.
    async fn link(
        &self,
        target: &OwnedCircTarget,
    ) -> Result<(Arc<Channel>, ChanProvenance), Fault> {
        let links = self.links.for_circuit().map_err(Fault::client)?;
        loop {
            match links.get_or_launch(target, ChannelUsage::UserTraffic).await {
                Ok(link) => return Ok(link),
                // The one that opened it for all waiters has given up; one of these is the next.
                Err(ChanError::RequestCancelled) => {}
                Err(error) => return Err(no_link(&error)),
            }
        }
    }
}

impl Client for Arti {
    type Circuit = ArtiCircuit;
    type Stream = Compat<DataStream>;

    const NAME: ff_circuits::record::Client = ff_circuits::record::Client::Arti;
    const KEEPS_UNUSED: bool = true;

    async fn build(
        &self,
        path: &[Arc<NetworkRelay>],
        progress: &mut Progress,
    ) -> Result<Self::Circuit, Fault> {
        let (first, rest) =
            path.split_first().ok_or_else(|| Fault::client("a path of 0 relays"))?;
        let circuit = self.first(&target(first)?, progress).await?;
        progress.hop();
        for relay in rest {
            let target = target(relay)?;
            let circ = circuit.tunnel.as_single_circ().map_err(|error| fault(&error))?;
            circ.extend(&target, self.params.clone()).await.map_err(|error| fault(&error))?;
            progress.hop();
        }
        Ok(circuit)
    }

    async fn probe(
        &self,
        circuit: &Self::Circuit,
        probe: Probe,
        address: Ipv4Addr,
    ) -> Result<Answer, Fault> {
        let (text, began) = (address.to_string(), Instant::now());
        let reason = match probe {
            Probe::Refused => match circuit.tunnel.begin_stream(&text, PROBE_PORT, None).await {
                Ok(_) => return Err(Fault::relay(format!("the exit accepted {address}"))),
                Err(ProtoError::EndReceived(reason)) => reason.to_string().to_lowercase(),
                Err(error) => return Err(fault(&error)),
            },
            Probe::Resolve => match circuit.tunnel.resolve(&text).await {
                Ok(answers) => resolved(address, &answers)?,
                // An answer, too, in one cell.
                Err(ProtoError::ResolveError(_)) => NOTHING.to_owned(),
                Err(error) => return Err(fault(&error)),
            },
        };
        Ok(Answer { us: us_since(began), reason })
    }

    async fn open(
        &self,
        circuit: &Self::Circuit,
        host: &str,
        port: u16,
    ) -> Result<Self::Stream, Fault> {
        let stream = circuit.tunnel.begin_stream(host, port, None).await;
        stream.map(DataStream::compat).map_err(|error| match error {
            ProtoError::EndReceived(reason) => refused(reason.to_string().to_lowercase()),
            error => fault(&error),
        })
    }

    async fn lost(
        circuit: &Self::Circuit,
        stream: &mut Self::Stream,
        error: Option<&io::Error>,
    ) -> Option<Fault> {
        lost(&circuit.tunnel, stream, error, by_exit).await
    }
}

/// Why a stream has ended, if its target has not ended it; `by_end` judges the reason of the exit's
/// END.
async fn lost(
    tunnel: &ClientTunnel,
    stream: &mut Compat<DataStream>,
    error: Option<&io::Error>,
    by_end: fn(String) -> Option<Fault>,
) -> Option<Fault> {
    match error?.get_ref()?.downcast_ref()? {
        ProtoError::EndReceived(reason) => by_end(reason.to_string().to_lowercase()),
        // So says who writes to a stream that has ended, with its circuit or without.
        error @ (ProtoError::NotConnected | ProtoError::CircuitClosed) => {
            let closed = tunnel.as_single_circ().ok()?.wait_for_close();
            if timeout(CLOSING, closed).await.is_ok() {
                return Some(fault(error));
            }
            // The reader learns what the exit has said.
            let read = timeout(CLOSING, stream.read_u8()).await.ok()?.err()?;
            match read.get_ref()?.downcast_ref()? {
                ProtoError::EndReceived(reason) => by_end(reason.to_string().to_lowercase()),
                _ => None,
            }
        }
        error => Some(fault(error)),
    }
}

/// How long after a stream its circuit may be known to have ended, or what the exit has said.
const CLOSING: Duration = Duration::from_secs(3);

/// The reason that is noted for an answer without an address.
const NOTHING: &str = "error";

/// What is noted of what an exit resolved a literal address to: nothing if it is that address, as
/// it must be.
fn resolved(address: Ipv4Addr, answers: &[IpAddr]) -> Result<String, Fault> {
    let is_false = |answer: &&IpAddr| **answer != IpAddr::V4(address);
    match answers.iter().find(is_false) {
        Some(other) => {
            let what = format!("the exit resolved {address} to {other}, a false address");
            Err(Fault::relay(what))
        }
        None if answers.is_empty() => Ok(NOTHING.to_owned()),
        None => Ok(String::new()),
    }
}

/// Gives nothing up: the measuring code has a time limit of its own.
struct NoTimeout;

impl TimeoutEstimator for NoTimeout {
    fn circuit_build_timeout(&self, _length: usize) -> Duration {
        HALF_STREAMS
    }
}

/// Has TLS use the cryptography of the rest of the program.
fn choose_cryptography() {
    // An error only says that the program has chosen its cryptography already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A relay as Arti wants it.
fn target(relay: &NetworkRelay) -> Result<OwnedCircTarget, Fault> {
    let odd = |what: &dyn std::fmt::Display| Fault::client(format!("relay {}: {what}", relay.id));
    let mut builder = OwnedCircTarget::builder();
    builder
        .chan_target()
        .ed_identity(relay.ed25519.into())
        .rsa_identity(relay.rsa.into())
        .addrs(relay.addrs.clone());
    builder.ntor_onion_key(relay.ntor.into());
    builder.protocols(relay.protocols.parse().map_err(|error| odd(&error))?);
    builder.build().map_err(|error| odd(&error))
}

/// The text of a circuit's error, and the side at fault.
fn fault(error: &ProtoError) -> Fault {
    match error {
        ProtoError::Bug(_) | ProtoError::IdRangeFull | ProtoError::Spawn { .. } => {
            Fault::client(reason(error))
        }
        ProtoError::CircuitClosed | ProtoError::NotConnected => Fault::circuit("destroyed"),
        error => Fault::relay(reason(error)),
    }
}

/// Why a link could not be opened, and the side at fault.
fn no_link(error: &ChanError) -> Fault {
    let reason = reason(error);
    match error {
        ChanError::ChanTimeout { .. } => Fault::timeout(reason),
        error if is_ours(error) => Fault::client(reason),
        // This machine has no way there, or a router far away says that there is none.
        error if says(error, &[Errno::NETUNREACH]) => Fault::unknown(reason),
        _ => Fault::relay(reason),
    }
}

/// What this machine may have no more of: file descriptors, ports, memory, a network.
const LACKING: [Errno; 6] =
    [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM, Errno::NETDOWN];

/// Whether a link failed for what this machine has no more of, or for an error of Arti's own.
fn is_ours(error: &ChanError) -> bool {
    match error {
        ChanError::UnusableTarget(_)
        | ChanError::MissingId
        | ChanError::Spawn { .. }
        | ChanError::Memquota(_)
        | ChanError::Internal(_) => true,
        error => says(error, &LACKING),
    }
}

/// Whether a link failed, at one of the relay's addresses, with one of these.
fn says(error: &ChanError, errnos: &[Errno]) -> bool {
    match error {
        ChanError::Connect { addresses } => {
            addresses.iter().any(|(_, error)| lies_beneath(error, errnos))
        }
        error => lies_beneath(error, errnos),
    }
}

/// Whether an error, or one beneath, is one of these.
fn lies_beneath(error: &(dyn std::error::Error + 'static), errnos: &[Errno]) -> bool {
    causes(error).any(|error| {
        let shared = error.downcast_ref::<Arc<io::Error>>().map(AsRef::as_ref);
        let errno = shared.or_else(|| error.downcast_ref()).and_then(Errno::from_io_error);
        errno.is_some_and(|errno| errnos.contains(&errno))
    })
}

/// The text of an error, with its causes.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
}

/// An error and its causes, from the outside in.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

#[cfg(test)]
mod tests {
    use ff_circuits::record::Whose;

    use super::*;

    #[test]
    fn a_link_that_fails_is_the_fault_of_who_can_have_done_it() {
        for (errno, whose) in [
            (Errno::MFILE, Whose::Client),
            (Errno::ADDRNOTAVAIL, Whose::Client),
            (Errno::NETUNREACH, Whose::Unknown),
            (Errno::CONNREFUSED, Whose::Relay),
        ] {
            let tried = ("192.0.2.1:9001".to_owned().into(), io::Error::from(errno).into());
            let fault = no_link(&ChanError::Connect { addresses: vec![tried] });
            assert_eq!(fault.whose, whose, "{}", fault.reason);
        }
    }
}
