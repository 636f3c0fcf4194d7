//! Any bytes as lists that are given by hand: relays that come during a period, and ratios of errors.
#![no_main]

use ff_sim::schedule::arrivals::{Arrivals, Listed};
use ff_sim::schedule::errors::Errors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (mut listed, skips) = Listed::read_csv("new.csv", input);
    assert_eq!(listed.len() as u64, skips.read);
    let last = listed.last_hour();
    assert_eq!(listed.at(last).is_empty(), skips.read == 0);
    let _ = Errors::read_csv("errors.csv", input);
});
