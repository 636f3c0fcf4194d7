//! Any bytes as lists that are given by hand: relays that come during a period, capacities, hosts'
//! links, and ratios of errors.
#![no_main]

use ff_sim::schedule::arrivals::{Arrivals, Listed, capacities};
use ff_sim::schedule::errors::Errors;
use ff_sim::schedule::link;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (mut listed, skips) = Listed::read_csv("new.csv", input);
    assert_eq!(listed.len() as u64, skips.read);
    let last = listed.last_hour();
    assert_eq!(listed.at(last).is_empty(), skips.read == 0);
    let _ = Errors::read_csv("errors.csv", input);
    let (all, skips) = capacities("capacities.csv", input);
    assert_eq!(all.len() as u64, skips.read);
    let (links, skips) = link::read_csv("links.csv", input);
    assert_eq!(links.len() as u64, skips.read);
});
