//! Arti with its own paths, as its users have it: guards, vanguards, retries and learned timeouts.
//!
//! Each download is isolated, so that none gets a circuit that another used. Circuits may have been
//! built in advance, and after a failure Arti tries others; the time until the stream is connected
//! includes all of that.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use arti_client::{ErrorKind, HasKind as _, StreamPrefs, TorClient};
use ff_circuits::network::{CircuitNetwork, NetworkRelay};
use ff_circuits::record::{self, Probe, Whose};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};
use tor_linkspec::HasRelayIds as _;
use tor_proto::client::stream::{ClientStreamCtrl as _, DataStream};
use tor_proto::{ClientTunnel, Error as ProtoError};
use tor_rtcompat::PreferredRuntime;

use super::{causes, lost, reason};
use crate::client::{Answer, Client, Fault, OwnPath, Progress, by_exit, refused};
use crate::target::is_onion;

/// An Arti that chooses its own paths.
pub struct OwnArti {
    client: Arc<TorClient<PreferredRuntime>>,
    /// Nicknames by fingerprint.
    nicks: Arc<HashMap<String, String>>,
}

/// Isolation of one download, whose circuits no other download gets.
pub struct OwnArtiCircuit {
    prefs: StreamPrefs,
    /// Circuits of the stream, and whether they lead to an onion service.
    tunnel: OnceLock<(Arc<ClientTunnel>, bool)>,
    /// Nicknames by fingerprint.
    nicks: Arc<HashMap<String, String>>,
}

impl OwnArti {
    /// Wraps a started client of a network.
    #[must_use]
    pub fn new(client: Arc<TorClient<PreferredRuntime>>, network: &CircuitNetwork) -> Self {
        let nick = |relay: &NetworkRelay| (relay.id.clone(), relay.nick.clone());
        let nicks = Arc::new(network.relays.iter().map(nick).collect());
        Self { client, nicks }
    }
}

impl Client for OwnArti {
    type Circuit = OwnArtiCircuit;
    type Stream = Compat<DataStream>;

    const NAME: record::Client = record::Client::Arti;
    const CHOOSES_PATHS: bool = true;

    async fn build(
        &self,
        _: &[Arc<NetworkRelay>],
        _: &mut Progress,
    ) -> Result<OwnArtiCircuit, Fault> {
        let mut prefs = StreamPrefs::new();
        prefs.new_isolation_group();
        Ok(OwnArtiCircuit { prefs, tunnel: OnceLock::new(), nicks: Arc::clone(&self.nicks) })
    }

    async fn probe(&self, _: &OwnArtiCircuit, _: Probe, _: Ipv4Addr) -> Result<Answer, Fault> {
        Err(Fault::client("a client that chooses its paths has no circuit to probe"))
    }

    async fn open(
        &self,
        circuit: &OwnArtiCircuit,
        host: &str,
        port: u16,
    ) -> Result<Self::Stream, Fault> {
        let to_onion = is_onion(host);
        let stream = self.client.connect_with_prefs((host, port), &circuit.prefs).await;
        let stream = stream.map_err(|error| not_open(&error, to_onion))?;
        if let Some(tunnel) = stream.client_stream_ctrl().and_then(|control| control.tunnel()) {
            let _ = circuit.tunnel.set((tunnel, to_onion));
        }
        Ok(stream.compat())
    }

    fn own_path(circuit: &OwnArtiCircuit) -> Option<OwnPath> {
        let Some((tunnel, _)) = circuit.tunnel.get() else {
            return Some(OwnPath::Unknown(
                "Arti reports the path only when the stream is open".to_owned(),
            ));
        };
        let paths = tunnel.all_paths();
        // A hop without an identity is the service itself.
        let ids = paths.iter().map(|path| {
            path.iter()
                .filter_map(|hop| {
                    hop.as_chan_target()?.rsa_identity().map(|id| id.as_bytes().to_owned())
                })
                .collect::<Vec<_>>()
        });
        let relay = |id: Vec<u8>| {
            let id = hex::encode_upper(id);
            let nick = circuit.nicks.get(&id).cloned().unwrap_or_default();
            record::PathRelay { id, nick }
        };
        Some(OwnPath::of_legs(ids.map(|ids| ids.into_iter().map(relay).collect()).collect()))
    }

    async fn lost(
        circuit: &OwnArtiCircuit,
        stream: &mut Self::Stream,
        error: Option<&io::Error>,
    ) -> Option<Fault> {
        let (tunnel, to_onion) = circuit.tunnel.get()?;
        let by_end: fn(String) -> Option<Fault> = if *to_onion { by_service } else { by_exit };
        lost(tunnel, stream, error, by_end).await
    }
}

/// Judges the END of a stream to an onion service: it comes from the service, which is the target.
fn by_service(_reason: String) -> Option<Fault> {
    None
}

/// The fault of a stream that could not be opened.
fn not_open(error: &arti_client::Error, to_onion: bool) -> Fault {
    let end = causes(error).find_map(|error| match error.downcast_ref() {
        Some(ProtoError::EndReceived(reason)) => Some(reason.to_string().to_lowercase()),
        _ => None,
    });
    match end {
        Some(reason) if to_onion => Fault::target(reason),
        Some(reason) => refused(reason),
        None => Fault::of(whose(error.kind()), format!("{:?}: {}", error.kind(), reason(error))),
    }
}

/// The side at fault for this kind of error.
fn whose(kind: ErrorKind) -> Whose {
    match kind {
        ErrorKind::CircuitCollapse
        | ErrorKind::CircuitRefused
        | ErrorKind::ExitPolicyRejected
        | ErrorKind::RelayIdMismatch
        | ErrorKind::RelayTooBusy
        | ErrorKind::TorDirectoryError
        | ErrorKind::TorProtocolViolation => Whose::Relay,
        ErrorKind::OnionServiceNotFound
        | ErrorKind::OnionServiceNotRunning
        | ErrorKind::OnionServiceProtocolViolation
        | ErrorKind::OnionServiceMissingClientAuth
        | ErrorKind::OnionServiceWrongClientAuth
        | ErrorKind::RemoteConnectionRefused
        | ErrorKind::RemoteStreamClosed
        | ErrorKind::RemoteStreamReset => Whose::Target,
        ErrorKind::ExitTimeout
        | ErrorKind::OnionServiceConnectionFailed
        | ErrorKind::RemoteHostNotFound
        | ErrorKind::RemoteHostResolutionFailed
        | ErrorKind::RemoteNetworkFailed
        | ErrorKind::RemoteNetworkTimeout
        | ErrorKind::RemoteStreamError
        | ErrorKind::TorAccessFailed
        | ErrorKind::TorNetworkTimeout
        | ErrorKind::TransientFailure => Whose::Unknown,
        // This machine, its clock, its options, or a bug in Arti.
        _ => Whose::Client,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_say_whose_they_are() {
        for (kind, expected) in [
            (ErrorKind::OnionServiceNotFound, Whose::Target),
            (ErrorKind::OnionServiceNotRunning, Whose::Target),
            (ErrorKind::OnionServiceConnectionFailed, Whose::Unknown),
            (ErrorKind::OnionServiceAddressInvalid, Whose::Client),
            (ErrorKind::CircuitCollapse, Whose::Relay),
            (ErrorKind::TorNetworkTimeout, Whose::Unknown),
            (ErrorKind::LocalResourceExhausted, Whose::Client),
            (ErrorKind::Internal, Whose::Client),
        ] {
            assert_eq!(whose(kind), expected, "{kind:?}");
        }
    }
}
