//! Parameters of circuits, from those of the network (tor-spec, flow control and congestion
//! control).

use tor_netdir::params::NetParameters;
use tor_proto::ccparams::{
    Algorithm, CongestionControlParamsBuilder, CongestionWindowParamsBuilder,
    FixedWindowParamsBuilder, RoundTripEstimatorParamsBuilder, VegasParamsBuilder,
};
use tor_proto::circuit::CircParameters;
use tor_proto::{CellCount, FlowCtrlParameters};
use tor_units::Percentage;

/// An error of one of the builders.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Those of circuits to exits: Vegas with exits that know it, fixed windows with others, as Arti's
/// clients have it.
pub(super) fn exit(net: &NetParameters) -> Result<CircParameters> {
    let cells = |value: i32| u16::try_from(value).unwrap_or(u16::MAX);
    let fixed = FixedWindowParamsBuilder::default()
        .circ_window_start(cells(net.circuit_window.get()))
        .circ_window_min(cells(net.circuit_window.lower()))
        .circ_window_max(cells(net.circuit_window.upper()))
        .build()?;
    let windows = CongestionWindowParamsBuilder::default()
        .cwnd_init(net.cc_cwnd_init.into())
        .cwnd_inc_pct_ss(Percentage::new(net.cc_cwnd_inc_pct_ss.as_percent().get_u32()))
        .cwnd_inc(net.cc_cwnd_inc.into())
        .cwnd_inc_rate(net.cc_cwnd_inc_rate.into())
        .cwnd_min(net.cc_cwnd_min.into())
        .cwnd_max(net.cc_cwnd_max.into())
        .sendme_inc(net.cc_sendme_inc.into())
        .build()?;
    let trips = RoundTripEstimatorParamsBuilder::default()
        .ewma_cwnd_pct(Percentage::new(net.cc_ewma_cwnd_pct.as_percent().get_u32()))
        .ewma_max(net.cc_ewma_max.into())
        .ewma_ss_max(net.cc_ewma_ss.into())
        .rtt_reset_pct(Percentage::new(net.cc_rtt_reset_pct.as_percent().get_u32()))
        .build()?;
    let algorithm = if net.cc_alg.get() == 2 { vegas(net)? } else { Algorithm::FixedWindow(fixed) };
    let control = CongestionControlParamsBuilder::default()
        .alg(algorithm)
        .fixed_window_params(fixed)
        .cwnd_params(windows)
        .rtt_params(trips)
        .build()?;
    Ok(CircParameters::new(net.extend_by_ed25519_id.into(), control, streams(net)))
}

/// Vegas, with the values for exits.
fn vegas(net: &NetParameters) -> Result<Algorithm> {
    let queue: (u32, u32, u32, u32, u32) = (
        net.cc_vegas_alpha_exit.into(),
        net.cc_vegas_beta_exit.into(),
        net.cc_vegas_delta_exit.into(),
        net.cc_vegas_gamma_exit.into(),
        net.cc_vegas_sscap_exit.into(),
    );
    let full = net.cc_cwnd_full_minpct.as_percent().get_u32();
    let vegas = VegasParamsBuilder::default()
        .cell_in_queue_params(queue.into())
        .ss_cwnd_max(net.cc_ss_max.into())
        .cwnd_full_gap(net.cc_cwnd_full_gap.into())
        .cwnd_full_min_pct(Percentage::new(full))
        .cwnd_full_per_cwnd(net.cc_cwnd_full_per_cwnd.into())
        .build()?;
    Ok(Algorithm::Vegas(vegas))
}

/// Flow control of streams.
fn streams(net: &NetParameters) -> FlowCtrlParameters {
    FlowCtrlParameters {
        cc_xoff_client: CellCount::new(net.cc_xoff_client.get_u32()),
        cc_xoff_exit: CellCount::new(net.cc_xoff_exit.get_u32()),
        cc_xon_rate: CellCount::new(net.cc_xon_rate.get_u32()),
        cc_xon_change_pct: net.cc_xon_change_pct.get_u32(),
        cc_xon_ewma_cnt: net.cc_xon_ewma_cnt.get_u32(),
    }
}
