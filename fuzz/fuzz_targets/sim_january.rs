//! Any bytes as the tables of January 2019: which relays there were, and when they were listed.
#![no_main]

use ff_archives::read::january::{self, Presence};
use ff_report::skipped::Skips;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut skips = Skips::default();
    let network = january::relays("relays.csv", input, &mut skips);
    assert_eq!(network.relays.len() as u64, skips.read);
    let mut skips = Skips::default();
    let Some(presence) = Presence::read("presence.csv", input, &mut skips) else { return };
    assert_eq!(presence.relays.len() as u64, skips.read);
    // Counting looks at each hour of each relay.
    if presence.relays.len() * presence.hours < 1 << 16 {
        let listed: usize = presence.new_per_hour().iter().sum();
        assert!(listed <= presence.relays.len());
        assert_eq!(presence.listed_per_hour().len(), presence.hours);
    }
});
