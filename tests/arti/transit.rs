//! Circuits through it, opened all at once.

use std::time::Instant;

use ff_measurer::transit::TransitError;

use crate::support::{Running, namespace, order, relay, send_through};

#[test]
#[ignore = "needs FF_TEST_ARTI_RELAY: a relay that build-arti-relay has built; root, for a namespace"]
fn twenty_links_and_forty_circuits_open_at_once() {
    let namespace = namespace();
    for tried in 1..=20 {
        let begun = Instant::now();
        let relay = relay(&namespace, "", Running::default());
        let sent: Result<_, TransitError> = send_through(&order(&relay, 20, 40, 1));
        let sent = sent.unwrap_or_else(|error| {
            panic!("try {tried}: {error}: {:?}", std::error::Error::source(&error))
        });
        eprintln!("try {tried}: {:?}", begun.elapsed());
        assert!(sent.iter().all(|cells| cells.0 > 0), "try {tried}: {sent:?}");
    }
}
