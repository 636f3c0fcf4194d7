//! Any bytes as tornettools' relayinfo, plain and as what an xz file has in it.
#![no_main]

use std::io::Read;

use ff_archives::read::relayinfo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (network, skips) = relayinfo::parse("relayinfo.json", input);
    assert_eq!(network.relays.len() as u64, skips.read);
    for relay in &network.relays {
        assert!(relay.weight.is_finite() && relay.weight >= 0.0);
        assert!((0.0..=1.0).contains(&relay.running));
    }
    let mut packed = Vec::new();
    liblzma::read::XzEncoder::new(input, 0).read_to_end(&mut packed).expect("it fits");
    let (unpacked, _) = relayinfo::parse("relayinfo.json", &*packed);
    // Input that begins like an xz file was unpacked the first time already.
    if !input.starts_with(b"\xfd7zXZ\0") {
        assert_eq!(unpacked.relays.len(), network.relays.len());
    }
});
