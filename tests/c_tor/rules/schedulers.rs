//! A relay with another of tor's schedulers than KIST is measured as well.

use ff_proto::params::Params;

use super::LAB;
use super::counts::SECONDS;
use crate::support::plan;

/// As many links as a measurement has at least.
const SOCKETS: u16 = 20;

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_relay_with_any_scheduler_is_measured_over_many_links() {
    LAB.run(async |lab| {
        for name in ["vanilla", "kistlite"] {
            let relay = lab.relay(name);
            let params = Params { sockets: SOCKETS, duration_secs: SECONDS, ..Params::default() };
            let planned = |key: &_| plan(relay.node, key, params);
            let (_, _, outcome) = relay.measured(planned, || ()).await;
            eprintln!("{name}: {:?}, {:?}", outcome.estimate, outcome.cells);
            assert!(outcome.result.is_ok(), "{name}: {:?}", outcome.result);
            assert_eq!(outcome.cells.bad, 0, "{name}");
            relay.assert_in_order().await;
        }
    });
}
