//! Any bytes as a consensus: what is read is in order and can be looked at, and reading again is
//! the same.
#![no_main]

use ff_archives::read::consensus::Consensus;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut consensus = Consensus::default();
    let result = consensus.read(input);
    if result.is_err() {
        assert!(consensus.relays.is_empty());
        return;
    }
    assert!(consensus.relays.windows(2).all(|two| two[0].fingerprint < two[1].fingerprint));
    for relay in &consensus.relays {
        assert!(!consensus.text(relay.nickname).is_empty());
        assert!(consensus.addresses(relay).count() > 0);
        let _ = consensus.text(relay.version);
    }
    let _ = (consensus.valid_after(), consensus.params(), consensus.bandwidth_weights().count());
    let network = consensus.to_network();
    assert_eq!(network.relays.len(), consensus.relays.len());
    let before = consensus.clone();
    consensus.read(input).expect("it was read before");
    assert_eq!(consensus, before);
});
