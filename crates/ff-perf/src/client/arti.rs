//! Arti in this process: its channels and circuits, without its choice of paths and its timeouts;
//! the module [`own`] has both.
//!
//! All use of Arti's circuits and links, whose interfaces are not stable, is in this module.
//! `TunnelBuilder` is not used: it hides when hops are complete, and gives circuits up after a
//! learned timeout, which would cut off what is measured. Arti's limits remain: a link has 5 s and
//! two tries, and the times of hops include the first try.
//!
//! Decisions: doc/decisions.md, "arti-client only where the client chooses paths".

pub mod bootstrap;
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

use self::links::Links;
use super::{Answer, Client, Fault, PROBE_PORT, Progress, by_exit, refused, us_since};

/// How long Arti keeps half-closed streams: as long as tor's circuits may take.
const HALF_STREAMS: Duration = Duration::from_secs(60);

/// Builds circuits with Arti.
pub struct Arti {
    /// Links to guards.
    links: Links,
    /// Circuit parameters for exits.
    params: CircParameters,
}

/// A circuit built by Arti.
pub struct ArtiCircuit {
    tunnel: Arc<ClientTunnel>,
    /// The reactor, which moves cells.
    _reactor: Reactor,
}

/// Task of a circuit's reactor; dropping it aborts the task. Otherwise a reactor would wait for the
/// first hop for ever, even if the circuit was given up, and keep its link open. When it ends, the
/// circuit is destroyed.
struct Reactor(AbortHandle);

impl Drop for Reactor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Arti {
    /// A client for a network. Call it within a tokio runtime.
    ///
    /// # Errors
    /// Arti's message.
    pub fn new(network: &CircuitNetwork) -> Result<Self, String> {
        choose_cryptography();
        let runtime = PreferredRuntime::current().map_err(|error| error.to_string())?;
        let known = network.params.parse().map_err(|error| format!("{error}"))?;
        let net = NetParameters::from_map(&known);
        let params = exit_circparams_from_netparams(&net).map_err(|error| error.to_string())?;
        let links = Links::new(runtime, net)?;
        Ok(Self { links, params })
    }

    /// Creates the first hop, on an open or a new link.
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
        // Errors reach the user of the circuit. Spawned at once, as moving a future of this size is
        // expensive.
        let reactor = Reactor(tokio::spawn(reactor.run()).abort_handle());
        let tunnel = pending.create_firsthop(target, self.params.clone()).await;
        let tunnel = Arc::new(tunnel.map_err(|error| fault(&error))?);
        Ok(ArtiCircuit { tunnel, _reactor: reactor })
    }

    /// Gets or opens the link to a relay.
    async fn link(
        &self,
        target: &OwnedCircTarget,
    ) -> Result<(Arc<Channel>, ChanProvenance), Fault> {
        let links = self.links.for_circuit().map_err(Fault::client)?;
        loop {
            match links.get_or_launch(target, ChannelUsage::UserTraffic).await {
                Ok(link) => return Ok(link),
                // The task that opened the link for all waiters gave up; one of the waiters tries
                // next.
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
                // An error is an answer too, in one cell.
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

/// Why a stream ended; `None` if its target ended it. `by_end` judges the reason of the exit's END.
async fn lost(
    tunnel: &ClientTunnel,
    stream: &mut Compat<DataStream>,
    error: Option<&io::Error>,
    by_end: fn(String) -> Option<Fault>,
) -> Option<Fault> {
    match error?.get_ref()?.downcast_ref()? {
        ProtoError::EndReceived(reason) => by_end(reason.to_string().to_lowercase()),
        // Writes fail so on an ended stream, whether or not its circuit has ended.
        error @ (ProtoError::NotConnected | ProtoError::CircuitClosed) => {
            let closed = tunnel.as_single_circ().ok()?.wait_for_close();
            if timeout(CLOSING, closed).await.is_ok() {
                return Some(fault(error));
            }
            // A read returns the exit's reason.
            let read = timeout(CLOSING, stream.read_u8()).await.ok()?.err()?;
            match read.get_ref()?.downcast_ref()? {
                ProtoError::EndReceived(reason) => by_end(reason.to_string().to_lowercase()),
                _ => None,
            }
        }
        error => Some(fault(error)),
    }
}

/// Longest wait, after a stream's end, for the end of its circuit or the exit's reason.
const CLOSING: Duration = Duration::from_secs(3);

/// Reason recorded for an answer without an address.
const NOTHING: &str = "error";

/// Reason recorded when an exit resolved a literal address: empty if the answer is that address, as
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

/// Never times out: the measuring code has its own time limit.
struct NoTimeout;

impl TimeoutEstimator for NoTimeout {
    fn circuit_build_timeout(&self, _length: usize) -> Duration {
        HALF_STREAMS
    }
}

/// Makes TLS use the program's cryptography.
fn choose_cryptography() {
    // An error only means that the program has already chosen one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// Converts a relay for Arti.
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

/// Converts a circuit's error, with the side at fault.
fn fault(error: &ProtoError) -> Fault {
    match error {
        ProtoError::Bug(_) | ProtoError::IdRangeFull | ProtoError::Spawn { .. } => {
            Fault::client(reason(error))
        }
        ProtoError::CircuitClosed | ProtoError::NotConnected => Fault::circuit("destroyed"),
        error => Fault::relay(reason(error)),
    }
}

/// Converts a link's error, with the side at fault.
fn no_link(error: &ChanError) -> Fault {
    let reason = reason(error);
    match error {
        ChanError::ChanTimeout { .. } => Fault::timeout(reason),
        error if is_ours(error) => Fault::client(reason),
        // This machine has no route, or a distant router reports none.
        error if says(error, &[Errno::NETUNREACH]) => Fault::unknown(reason),
        _ => Fault::relay(reason),
    }
}

/// Errors for exhausted resources of this machine: file descriptors, ports, memory, network.
const LACKING: [Errno; 6] =
    [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM, Errno::NETDOWN];

/// Whether a link failed for exhausted resources of this machine or an error of Arti.
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

/// Whether a link failed, at one of the relay's addresses, with one of these errors.
fn says(error: &ChanError, errnos: &[Errno]) -> bool {
    match error {
        ChanError::Connect { addresses } => {
            addresses.iter().any(|(_, error)| lies_beneath(error, errnos))
        }
        error => lies_beneath(error, errnos),
    }
}

/// Whether an error or one of its causes is one of these.
fn lies_beneath(error: &(dyn std::error::Error + 'static), errnos: &[Errno]) -> bool {
    causes(error).any(|error| {
        let shared = error.downcast_ref::<Arc<io::Error>>().map(AsRef::as_ref);
        let errno = shared.or_else(|| error.downcast_ref()).and_then(Errno::from_io_error);
        errno.is_some_and(|errno| errnos.contains(&errno))
    })
}

/// Text of an error with its causes.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    causes(error).map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
}

/// An error and its causes, outermost first.
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
