//! A client of Arti's crates, whose circuits pass the relay under test and end at an exit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ff_lab::{ArtiRelay, Node};
use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tor_chanmgr::{ChanMgr, ChanMgrConfig, ChannelUsage, Dormancy};
use tor_circmgr::build::exit_circparams_from_netparams;
use tor_linkspec::OwnedCircTarget;
use tor_memquota::MemoryQuotaTracker;
use tor_netdir::params::NetParameters;
use tor_proto::ClientTunnel;
use tor_proto::client::circuit::TimeoutEstimator;
use tor_proto::client::stream::DataStream;
use tor_rtcompat::tokio::TokioRustlsRuntime;

/// Bytes of a cell, and of what a stream carries in it.
const CELL: (u64, u64) = (514, 498);

/// A client with one link to each relay.
pub(crate) struct Client {
    channels: ChanMgr<TokioRustlsRuntime>,
    net: NetParameters,
}

/// Circuits have all the time that they need.
struct Patient;

impl TimeoutEstimator for Patient {
    fn circuit_build_timeout(&self, _length: usize) -> Duration {
        Duration::from_secs(60)
    }
}

impl Client {
    /// A client without links, in the current runtime.
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let runtime = TokioRustlsRuntime::current().expect("a runtime");
        let (config, net) = (ChanMgrConfig::default(), NetParameters::default());
        let memory = MemoryQuotaTracker::new_noop();
        let channels = ChanMgr::new(runtime, config, Dormancy::Active, &net, memory);
        Self { channels: channels.expect("channels"), net }
    }

    /// A circuit through these relays.
    async fn circuit(&self, path: &[OwnedCircTarget]) -> Arc<ClientTunnel> {
        let mut params = exit_circparams_from_netparams(&self.net).expect("parameters");
        params.extend_by_ed25519_id = true;
        let (first, rest) = path.split_first().expect("a relay");
        let link = self.channels.get_or_launch(first, ChannelUsage::UserTraffic).await;
        let (link, _) = link.expect("a link");
        let pending = link.new_tunnel(Arc::new(Patient)).await;
        let (pending, reactor) = pending.expect("a circuit");
        tokio::spawn(reactor.run());
        let tunnel = pending.create_firsthop(first, params.clone()).await.expect("a first hop");
        for hop in rest {
            let circuit = tunnel.as_single_circ().expect("one path");
            circuit.extend(hop, params.clone()).await.expect("another hop");
        }
        Arc::new(tunnel)
    }

    /// A stream on a circuit of its own, on which this request has been sent.
    async fn stream(
        &self,
        path: &[OwnedCircTarget],
        source: SocketAddr,
        request: &[u8],
    ) -> DataStream {
        let tunnel = self.circuit(path).await;
        let host = source.ip().to_string();
        let mut stream = tunnel.begin_stream(&host, source.port(), None).await.expect("a stream");
        stream.write_all(request).await.expect("an open stream");
        stream.flush().await.expect("an open stream");
        stream
    }

    /// An endless download on a circuit of its own: bytes of cells so far.
    pub(crate) async fn download(
        &self,
        path: &[OwnedCircTarget],
        source: SocketAddr,
    ) -> Arc<AtomicU64> {
        let mut stream = self.stream(path, source, b"GET\n").await;
        let (count, mut buffer) = (Arc::new(AtomicU64::new(0)), vec![0; 16 * 1024]);
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                counted.fetch_add(len as u64 * CELL.0 / CELL.1, Ordering::Relaxed);
            }
        });
        count
    }

    /// How long single bytes take there and back on a circuit of its own, in milliseconds, in order.
    pub(crate) async fn echoes(
        &self,
        path: &[OwnedCircTarget],
        source: SocketAddr,
        count: usize,
    ) -> Vec<f64> {
        let mut stream = self.stream(path, source, b"ECHO\n").await;
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            stream.write_all(&[7]).await.expect("an open stream");
            stream.flush().await.expect("an open stream");
            stream.read_exact(&mut [0]).await.expect("its echo");
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        times.sort_by(f64::total_cmp);
        times
    }
}

/// Bytes of these downloads together, of one second, on average over this time.
pub(crate) async fn bytes_per_sec(downloads: &[Arc<AtomicU64>], time: Duration) -> f64 {
    let all = || downloads.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let (begun, before) = (Instant::now(), all());
    tokio::time::sleep(time).await;
    crate::support::as_f64(all() - before) / begun.elapsed().as_secs_f64()
}

/// The arti-relay, then this exit.
pub(crate) fn path(relay: &ArtiRelay, exit: &Node) -> [OwnedCircTarget; 2] {
    let mut first = OwnedCircTarget::builder();
    first.chan_target().addrs(vec![relay.addr().into()]);
    first.chan_target().ed_identity(relay.ed_identity().into());
    first.chan_target().rsa_identity(rsa(relay.rsa_identity()).into());
    first.ntor_onion_key(relay.ntor_onion_key().into());
    first.protocols("FlowCtrl=1 Link=4-5 Relay=1-4".parse().expect("protocols"));
    let mut last = OwnedCircTarget::builder();
    last.chan_target().addrs(vec![exit.or_addr()]);
    last.chan_target().ed_identity(exit.ed_identity().into());
    last.chan_target().rsa_identity(rsa(exit.rsa_fingerprint()).into());
    last.ntor_onion_key(exit.ntor_onion_key().expect("its key").into());
    last.protocols("FlowCtrl=1-2 Link=4-5 Relay=1-4".parse().expect("protocols"));
    [first, last].map(|hop| hop.build().expect("a hop"))
}

/// An RSA identity from its hexadecimal text.
fn rsa(hex: &str) -> [u8; 20] {
    hex::decode(hex).ok().and_then(|bytes| bytes.try_into().ok()).expect("20 bytes")
}
