//! Any bytes as a Markov model of streams or packets.
#![no_main]

use ff_flow::tmodel::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Walks have an end of their own, see `odd_models_are_errors_or_end`.
    let _ = Model::read(input);
});
