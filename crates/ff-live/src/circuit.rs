//! A circuit of one hop to a directory server.
//!
//! What is fetched is public and checked by itself, so the link's proof of who the server is
//! suffices, and CREATE_FAST, which all relays know, makes the circuit. It cannot negotiate
//! congestion control, so Arti uses the fixed window of the circuit's parameters.

use std::sync::Arc;
use std::time::Duration;

use tor_circmgr::build::exit_circparams_from_netparams;
use tor_netdir::params::NetParameters;
use tor_proto::channel::Channel;
use tor_proto::client::circuit::TimeoutEstimator;
use tor_proto::client::stream::DataStream;
use tor_rtcompat::{PreferredRuntime, SpawnExt as _};

/// When Arti gives up on streams that have been closed from our end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a directory stream on a circuit of its own, which ends with the stream.
pub(super) async fn open_stream(
    runtime: &PreferredRuntime,
    channel: &Arc<Channel>,
    net: &NetParameters,
) -> Result<DataStream, String> {
    let params = exit_circparams_from_netparams(net).map_err(|error| error.to_string())?;
    let (pending, reactor) =
        channel.new_tunnel(Arc::new(FixedTimeout)).await.map_err(|error| error.to_string())?;
    let running = runtime.spawn(async move {
        // It ends with the circuit, whatever the reason is; the stream's end tells of it.
        let _ = reactor.run().await;
    });
    running.map_err(|error| error.to_string())?;
    let tunnel = pending.create_firsthop_fast(params).await.map_err(|error| error.to_string())?;
    Arc::new(tunnel).begin_dir_stream().await.map_err(|error| error.to_string())
}

/// When Arti gives up on half of a stream.
struct FixedTimeout;

impl TimeoutEstimator for FixedTimeout {
    fn circuit_build_timeout(&self, _length: usize) -> Duration {
        TIMEOUT
    }
}
