//! The limit on links between relays and clients of Arti's crates.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tor_linkspec::OwnedChanTarget;
use tor_proto::RelayChannelBuilder;
use tor_proto::channel::Channel;
use tor_proto::memquota::{ChannelAccount, SpecificAccount as _};
use tor_proto::peer::PeerAddr;
use tor_rtcompat::TlsProvider as _;
use tor_rtcompat::tls::{CertifiedConn as _, TlsConnector as _};
use tor_rtcompat::tokio::TokioRustlsRuntime;

use super::*;
use crate::arti::background::{open_link, open_stream};
use crate::arti::extension::Extension;
use crate::arti::keys::RelayKeys;
use crate::arti::relay::{Relay, RelayConfig, RelayTcp, channel_manager, request_handler};
use crate::ingress::IngressOptions;
use crate::options::TargetOptions;

/// The limit in bytes per second; the burst is the least that is allowed.
const LIMIT: u64 = 10_000;
/// What a limited link has to carry: beyond the burst, four seconds of the limit.
const SOME: usize = 42_000;
/// What takes a limited link 100 seconds.
const MUCH: usize = 1_000_000;
/// As fast as any machine, and too fast for the limit.
const FAST: Duration = Duration::from_secs(60);

/// An extension.
fn extension() -> Arc<Extension> {
    let policy = TargetOptions::default().resolve(&BTreeMap::new());
    Extension::new(policy, None, None).expect("it reads no file")
}

/// Limits the links of clients, and of relays but these.
fn limit(extension: &Extension, exempt: &[RelayId]) {
    let mut options = IngressOptions::default();
    for (name, value) in
        [("FFIngressLimit", 1), ("PerConnBWRate", LIMIT), ("PerConnBWBurst", LIMIT / 5)]
    {
        options.set(name, &value.to_string()).unwrap();
    }
    extension.set_ingress(options.resolve(&BTreeMap::new()).rules);
    let listing = Listing { is_fast: true, ..Listing::default() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let relays: HashMap<_, _> = exempt.iter().map(|id| (*id, listing)).collect();
    extension.set_listings(Listings { valid_after_secs: now, relays });
}

/// A relay with this extension, and what clients and relays know of it.
fn relay(extension: &Arc<Extension>) -> (Relay, OwnedChanTarget) {
    let keys = RelayKeys::generate().unwrap();
    let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let extension = Arc::clone(extension);
    let relay = Relay::launch(RelayConfig { listen, keys, extension }).unwrap();
    let mut target = OwnedChanTarget::builder();
    target.addrs(vec![relay.addr()]).ed_identity(relay.ed_identity());
    target.rsa_identity(relay.rsa_identity());
    (relay, target.build().unwrap())
}

/// A link to that relay from another with these keys.
async fn link_of_a_relay(
    keys: &RelayKeys,
    relay: &Relay,
    target: &OwnedChanTarget,
) -> Arc<Channel> {
    let runtime = TokioRustlsRuntime::current().unwrap();
    let managed = channel_manager(runtime.clone(), keys, relay.addr(), extension()).unwrap();
    let (handler, circuits) = request_handler(&managed.1, keys).unwrap();
    let tcp: RelayTcp = TcpStream::connect(relay.addr()).await.unwrap().into();
    let tls = runtime.tls_connector().negotiate_unvalidated(tcp, "www.example.com").await.unwrap();
    let certificate = tls.peer_certificate().unwrap().unwrap().into_owned();
    let (material, memory) = (keys.auth_material(), ChannelAccount::new_noop());
    let (channel, reactor) = RelayChannelBuilder::new()
        .launch(tls, runtime, material, Vec::new(), target, memory, handler)
        .connect(SystemTime::now)
        .await
        .expect("a greeting")
        .verify(target, &certificate, None)
        .expect("the relay")
        .finish(PeerAddr::from(relay.addr()))
        .await
        .expect("a link");
    tokio::spawn(async move {
        let _kept = (managed, circuits);
        reactor.run().await
    });
    channel
}

/// How long it takes until this number of bytes has come back on a stream.
async fn echo(channel: &Arc<Channel>, bytes: usize) -> Duration {
    let begun = Instant::now();
    let (mut reader, mut writer) = open_stream(channel).await.expect("a stream").split();
    let sending = async {
        writer.write_all(&vec![7; bytes]).await.expect("a stream that takes bytes");
        writer.flush().await.expect("a stream that takes bytes");
    };
    let mut echoed = vec![0; bytes];
    let receiving = async { reader.read_exact(&mut echoed).await.expect("an echo") };
    tokio::join!(sending, receiving);
    begun.elapsed()
}

/// Asserts that a link has the limit.
async fn assert_limited(channel: &Arc<Channel>) {
    let time = echo(channel, SOME).await;
    let least = Duration::from_millis(1000 * (SOME as u64 - LIMIT / 5) / LIMIT * 9 / 10);
    assert!(time >= least, "{SOME} bytes in {time:?}");
}

/// Runs a test's steps.
fn run(steps: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(steps);
}

#[test]
fn a_client_has_the_limit_until_it_is_lifted() {
    run(async {
        let extension = extension();
        let (relay, target) = relay(&extension);
        let client = open_link(relay.addr(), &target).await.expect("a link");
        assert!(echo(&client, MUCH).await < FAST, "without rules");
        limit(&extension, &[]);
        assert_limited(&client).await;
        extension.set_ingress(None);
        assert!(echo(&client, MUCH).await < FAST, "without rules again");
    });
}

#[test]
fn a_relay_is_exempt_by_its_flags_and_only_then() {
    run(async {
        let extension = extension();
        let (relay, target) = relay(&extension);
        let [listed, unlisted] = [(); 2].map(|()| RelayKeys::generate().unwrap());
        limit(&extension, &[listed.rsa_identity().to_bytes()]);
        let exempt = link_of_a_relay(&listed, &relay, &target).await;
        assert!(echo(&exempt, MUCH).await < FAST, "an exempt relay");
        assert_limited(&link_of_a_relay(&unlisted, &relay, &target).await).await;
        // The next consensus no longer lists it.
        limit(&extension, &[unlisted.rsa_identity().to_bytes()]);
        assert_limited(&exempt).await;
    });
}
