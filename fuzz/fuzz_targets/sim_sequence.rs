//! Any bytes as consensuses one after the other, which `ingest` reads by what they have in common:
//! each is as alone.
#![no_main]

use ff_archives::read::archive;
use ff_archives::read::consensus::{Consensus, Sequence};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut sequence = Sequence::new();
    for part in archive::documents(input) {
        assert_eq!(sequence.read(part.bytes).cloned(), Consensus::parse(part.bytes));
    }
});
