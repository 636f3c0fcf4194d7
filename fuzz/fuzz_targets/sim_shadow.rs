//! Any bytes as Shadow's networks and results.
#![no_main]

use ff_archives::read::shadow;
use ff_report::skipped::Skips;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(results) = shadow::parse_results(input) {
        assert!(results.throughput().len() <= input.len());
        let _ = results.timeouts();
    }
    let mut skips = Skips::default();
    if let Ok(network) = shadow::parse_network("network.csv", input, &mut skips) {
        assert_eq!(network.relays.len() as u64, skips.read);
        assert!(network.relays.iter().all(|relay| relay.weight.is_finite()));
    }
});
