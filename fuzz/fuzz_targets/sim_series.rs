//! Any bytes as a table of relays by times, of each kind: what the cursor gives is what single
//! values are.
#![no_main]

use ff_archives::read::series::{Series, SeriesKind, daily};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for kind in [SeriesKind::BytesPerSec, SeriesKind::Probability, SeriesKind::of_weights(input)] {
        let (series, _) = Series::read("series.csv", kind, input).expect("bytes can be read");
        let (mut cursor, mut listed, mut time) = (series.cursor(), Vec::new(), 0);
        while let Some(at) = cursor.next_into(&mut listed) {
            assert_eq!(series.times.get(time), Some(&at));
            for &(relay, value) in &listed {
                assert_eq!(series.value(relay as usize, time), Some(value));
            }
            time += 1;
        }
        assert_eq!(time, series.times.len());
    }
    let (days, skips) = daily::read("days.csv", input).expect("bytes can be read");
    assert_eq!(days.len() as u64, skips.read);
    assert!(days.windows(2).all(|two| two[0].unix_secs < two[1].unix_secs));
});
