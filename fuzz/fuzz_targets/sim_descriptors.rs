//! Any bytes as server descriptors: each is kept or named, and what is kept can be looked at.
#![no_main]

use ff_archives::read::archive;
use ff_archives::read::descriptor::Descriptors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut descriptors = Descriptors::default();
    let errors = descriptors.add(input);
    assert!(descriptors.all.len() + errors.len() <= archive::documents(input).count());
    let lines = input.split(|&byte| byte == b'\n').count();
    assert!(errors.iter().all(|error| (1..=lines).contains(&error.line)));
    for one in &descriptors.all {
        assert!(one.advertised() <= one.limit() && !descriptors.nickname(one).is_empty());
        let _ = (descriptors.platform(one), descriptors.family(one));
        assert!(descriptors.family_ids(one).all(|id| id.len() == "ed25519:".len() + 43));
    }
});
