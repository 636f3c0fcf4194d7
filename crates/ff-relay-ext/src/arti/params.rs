//! Circuit parameters, with the default values of a consensus.
//!
//! Arti splits the consensus's parameters into several structs; this file fills those of a relay
//! ([`relay_circuits`]) and of a client ([`client_circuits`]).

use tor_netdir::params::NetParameters;
use tor_proto::ccparams::{
    Algorithm, CongestionControlParamsBuilder, CongestionWindowParams,
    CongestionWindowParamsBuilder, FixedWindowParams, FixedWindowParamsBuilder,
    RoundTripEstimatorParams, RoundTripEstimatorParamsBuilder, VegasParams, VegasParamsBuilder,
};
use tor_proto::circuit::CircParameters;
use tor_proto::relay::{CircNetParameters, CongestionControlNetParams};
use tor_proto::{CellCount, FlowCtrlParameters};
use tor_units::Percentage;

/// A parameter struct is incomplete: Arti has a parameter that this file does not know.
pub(crate) type ParamsError = tor_config::ConfigBuildError;

/// The parameters that a relay grants the circuits opened through it.
pub(crate) fn relay_circuits(net: &NetParameters) -> Result<CircNetParameters, ParamsError> {
    Ok(CircNetParameters {
        cc: CongestionControlNetParams {
            fixed_window: fixed_window(net)?,
            vegas_exit: vegas(net)?,
            cwnd: window(net)?,
            rtt: round_trip(net)?,
            flow_ctrl: flow_control(net),
        },
    })
}

/// The parameters of a client; CREATE_FAST cannot negotiate, so the window is fixed.
pub(crate) fn client_circuits(net: &NetParameters) -> Result<CircParameters, ParamsError> {
    let fixed_window = fixed_window(net)?;
    let congestion = CongestionControlParamsBuilder::default()
        .alg(Algorithm::FixedWindow(fixed_window))
        .fixed_window_params(fixed_window)
        .cwnd_params(window(net)?)
        .rtt_params(round_trip(net)?)
        .build()?;
    let by_ed25519 = net.extend_by_ed25519_id.into();
    Ok(CircParameters::new(by_ed25519, congestion, flow_control(net)))
}

/// The window of SENDMEs in Tor's first version of flow control.
fn fixed_window(net: &NetParameters) -> Result<FixedWindowParams, ParamsError> {
    let cells = |value: i32| u16::try_from(value).unwrap_or(u16::MAX);
    FixedWindowParamsBuilder::default()
        .circ_window_start(cells(net.circuit_window.get()))
        .circ_window_min(cells(net.circuit_window.lower()))
        .circ_window_max(cells(net.circuit_window.upper()))
        .build()
}

/// The congestion control of proposal 324, which circuits made with ntor-v3 may ask for.
fn vegas(net: &NetParameters) -> Result<VegasParams, ParamsError> {
    let queue: (u32, u32, u32, u32, u32) = (
        net.cc_vegas_alpha_exit.into(),
        net.cc_vegas_beta_exit.into(),
        net.cc_vegas_delta_exit.into(),
        net.cc_vegas_gamma_exit.into(),
        net.cc_vegas_sscap_exit.into(),
    );
    VegasParamsBuilder::default()
        .cell_in_queue_params(queue.into())
        .ss_cwnd_max(net.cc_ss_max.into())
        .cwnd_full_gap(net.cc_cwnd_full_gap.into())
        .cwnd_full_min_pct(Percentage::new(net.cc_cwnd_full_minpct.as_percent().get_u32()))
        .cwnd_full_per_cwnd(net.cc_cwnd_full_per_cwnd.into())
        .build()
}

/// How a congestion window starts, grows and is acknowledged.
fn window(net: &NetParameters) -> Result<CongestionWindowParams, ParamsError> {
    CongestionWindowParamsBuilder::default()
        .cwnd_init(net.cc_cwnd_init.into())
        .cwnd_inc_pct_ss(Percentage::new(net.cc_cwnd_inc_pct_ss.as_percent().get_u32()))
        .cwnd_inc(net.cc_cwnd_inc.into())
        .cwnd_inc_rate(net.cc_cwnd_inc_rate.into())
        .cwnd_min(net.cc_cwnd_min.into())
        .cwnd_max(net.cc_cwnd_max.into())
        .sendme_inc(net.cc_sendme_inc.into())
        .build()
}

/// How round trips are smoothed.
fn round_trip(net: &NetParameters) -> Result<RoundTripEstimatorParams, ParamsError> {
    RoundTripEstimatorParamsBuilder::default()
        .ewma_cwnd_pct(Percentage::new(net.cc_ewma_cwnd_pct.as_percent().get_u32()))
        .ewma_max(net.cc_ewma_max.into())
        .ewma_ss_max(net.cc_ewma_ss.into())
        .rtt_reset_pct(Percentage::new(net.cc_rtt_reset_pct.as_percent().get_u32()))
        .build()
}

/// When streams tell the other end to pause.
fn flow_control(net: &NetParameters) -> FlowCtrlParameters {
    FlowCtrlParameters {
        cc_xoff_client: CellCount::new(net.cc_xoff_client.get_u32()),
        cc_xoff_exit: CellCount::new(net.cc_xoff_exit.get_u32()),
        cc_xon_rate: CellCount::new(net.cc_xon_rate.get_u32()),
        cc_xon_change_pct: net.cc_xon_change_pct.get_u32(),
        cc_xon_ewma_cnt: net.cc_xon_ewma_cnt.get_u32(),
    }
}
