//! Starts Arti as its users have it: it fetches documents, keeps guards and chooses its own paths.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arti_client::TorClient;
use arti_client::config::dir::{FallbackDir, FallbackDirBuilder};
use arti_client::config::{TorClientConfig, TorClientConfigBuilder};
use ff_circuits::network::{CircuitNetwork, NetworkRelay};
use tokio::time::timeout;
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_rtcompat::PreferredRuntime;

use super::{choose_cryptography, reason};

/// Longest wait for the network's documents; over EDGE, 270 s are too short for those of the
/// Internet.
const PATIENCE: Duration = Duration::from_secs(900);

/// Starts a client with its guards, documents and keys in a folder, and waits until it has the
/// network's documents. Call it within a tokio runtime.
///
/// # Errors
/// One sentence with Arti's message and its progress.
pub async fn start(
    network: &CircuitNetwork,
    dir: &Path,
) -> Result<Arc<TorClient<PreferredRuntime>>, String> {
    choose_cryptography();
    let client = TorClient::builder()
        .config(config(network, dir)?)
        .create_unbootstrapped_async()
        .await
        .map_err(|error| format!("{}: {}", dir.display(), reason(&error)))?;
    match timeout(PATIENCE, client.bootstrap()).await {
        Ok(Ok(())) => Ok(client),
        Ok(Err(error)) => Err(format!("cannot fetch the network's documents: {}", reason(&error))),
        Err(_) => Err(format!(
            "cannot fetch the network's documents within {} s ({})",
            PATIENCE.as_secs(),
            client.bootstrap_status()
        )),
    }
}

/// Configuration of a client: Arti's default, and for a private network its authorities and rules
/// that suit its addresses.
fn config(network: &CircuitNetwork, dir: &Path) -> Result<TorClientConfig, String> {
    let mut builder =
        TorClientConfigBuilder::from_directories(dir.join("state"), dir.join("cache"));
    if !network.is_public() {
        let identities = network.authorities.iter().map(|id| RsaIdentity::from(*id)).collect();
        builder.tor_network().authorities().set_v3idents(identities);
        let fallbacks = network.relays.iter().map(fallback).collect();
        builder.tor_network().set_fallback_caches(fallbacks);
        // Relays of a private network often share an address, and its targets are local.
        builder.path_rules().ipv4_subnet_family_prefix(33).ipv6_subnet_family_prefix(129);
        builder.address_filter().allow_local_addrs(true);
    }
    builder.build().map_err(|error| format!("Arti's configuration: {}", reason(&error)))
}

/// A fallback directory for a client without documents.
fn fallback(relay: &NetworkRelay) -> FallbackDirBuilder {
    let mut builder = FallbackDir::builder();
    builder.rsa_identity(relay.rsa.into()).ed_identity(relay.ed25519.into());
    builder.orports().extend(relay.addrs.iter().copied());
    builder
}

#[cfg(test)]
mod tests {
    use ff_dir::consensus::Flags;

    use super::*;

    /// A network with one relay at this address.
    fn network(address: &str) -> CircuitNetwork {
        let relay = NetworkRelay {
            id: "01".repeat(20),
            nick: "one".to_owned(),
            rsa: [1; 20],
            ed25519: [2; 32],
            ntor: [3; 32],
            addrs: vec![address.parse().expect("an address")],
            protocols: String::new(),
            flags: Flags::default(),
        };
        let mut network = CircuitNetwork::default();
        (network.relays, network.authorities) = (vec![relay], vec![[7; 20]]);
        network
    }

    #[test]
    fn only_a_private_network_brings_its_own_authorities() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |network: &CircuitNetwork| config(network, dir.path()).expect("a configuration");
        let own = of(&network("127.0.0.1:5000"));
        let internet = of(&network("192.0.2.1:5000"));
        assert_ne!(own, internet);
        assert_eq!(internet, of(&network("192.0.2.2:1")), "Arti's own, whatever relays there are");
        let documents = own.dir_mgr_config().expect("a configuration");
        assert_eq!(documents.network.authorities().v3idents()[..], [RsaIdentity::from([7; 20])]);
        assert_eq!(documents.network.fallback_caches().len(), 1);
    }
}
