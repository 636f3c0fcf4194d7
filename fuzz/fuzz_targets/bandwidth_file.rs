//! Any bytes as a bandwidth file: whatever is read is bounded by what is there, and every finding
//! has its line.
#![no_main]

use ff_dir::bandwidth::Reading;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let reading = Reading::of(input, 1_600_000_000);
    let lines = input.split(|&byte| byte == b'\n').count();
    assert!(reading.votes().len() <= lines);
    assert!(reading.findings.iter().all(|finding| (1..=lines).contains(&finding.line)));
    let _ = (reading.total_kilobytes(), reading.worst());
});
