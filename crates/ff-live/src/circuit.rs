//! A circuit of one hop to a directory server.
//!
//! What is fetched is public and checked by itself, so the link's proof of who the server is suffices, and
//! CREATE_FAST, which all relays know, makes the circuit. It cannot negotiate congestion control, so it has the
//! fixed window; the other parameters are there because Arti wants them. ff-relay-ext fills the same structs
//! for the demo's clients.

use std::sync::Arc;
use std::time::Duration;

use tor_config::ConfigBuildError;
use tor_netdir::params::NetParameters;
use tor_proto::ccparams::{
    Algorithm, CongestionControlParamsBuilder, CongestionWindowParamsBuilder,
    FixedWindowParamsBuilder, RoundTripEstimatorParamsBuilder,
};
use tor_proto::channel::Channel;
use tor_proto::circuit::CircParameters;
use tor_proto::client::circuit::TimeoutEstimator;
use tor_proto::client::stream::DataStream;
use tor_proto::{CellCount, FlowCtrlParameters};
use tor_rtcompat::{PreferredRuntime, SpawnExt as _};
use tor_units::Percentage;

/// When Arti gives up on streams that have been closed from our end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a directory stream on a circuit of its own, which ends with the stream.
pub(super) async fn open_stream(
    runtime: &PreferredRuntime,
    channel: &Arc<Channel>,
    net: &NetParameters,
) -> Result<DataStream, String> {
    let params = parameters(net).map_err(|error| error.to_string())?;
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

/// The circuit's parameters, from the network's.
fn parameters(net: &NetParameters) -> Result<CircParameters, ConfigBuildError> {
    let cells = |value: i32| u16::try_from(value).unwrap_or(u16::MAX);
    let window = FixedWindowParamsBuilder::default()
        .circ_window_start(cells(net.circuit_window.get()))
        .circ_window_min(cells(net.circuit_window.lower()))
        .circ_window_max(cells(net.circuit_window.upper()))
        .build()?;
    let congestion = CongestionWindowParamsBuilder::default()
        .cwnd_init(net.cc_cwnd_init.into())
        .cwnd_inc_pct_ss(Percentage::new(net.cc_cwnd_inc_pct_ss.as_percent().get_u32()))
        .cwnd_inc(net.cc_cwnd_inc.into())
        .cwnd_inc_rate(net.cc_cwnd_inc_rate.into())
        .cwnd_min(net.cc_cwnd_min.into())
        .cwnd_max(net.cc_cwnd_max.into())
        .sendme_inc(net.cc_sendme_inc.into())
        .build()?;
    let round_trip = RoundTripEstimatorParamsBuilder::default()
        .ewma_cwnd_pct(Percentage::new(net.cc_ewma_cwnd_pct.as_percent().get_u32()))
        .ewma_max(net.cc_ewma_max.into())
        .ewma_ss_max(net.cc_ewma_ss.into())
        .rtt_reset_pct(Percentage::new(net.cc_rtt_reset_pct.as_percent().get_u32()))
        .build()?;
    let control = CongestionControlParamsBuilder::default()
        .alg(Algorithm::FixedWindow(window))
        .fixed_window_params(window)
        .cwnd_params(congestion)
        .rtt_params(round_trip)
        .build()?;
    let streams = FlowCtrlParameters {
        cc_xoff_client: CellCount::new(net.cc_xoff_client.get_u32()),
        cc_xoff_exit: CellCount::new(net.cc_xoff_exit.get_u32()),
        cc_xon_rate: CellCount::new(net.cc_xon_rate.get_u32()),
        cc_xon_change_pct: net.cc_xon_change_pct.get_u32(),
        cc_xon_ewma_cnt: net.cc_xon_ewma_cnt.get_u32(),
    };
    Ok(CircParameters::new(net.extend_by_ed25519_id.into(), control, streams))
}
