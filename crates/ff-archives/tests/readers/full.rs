//! Consensuses of the full data, which ff-sim's tests read as well.

use std::path::PathBuf;

/// The consensuses: flavour, file, number of relays.
pub(crate) const CONSENSUSES: [(&str, &str, usize); 6] = [
    ("consensus", "a-network/2020-02-29-11-00-00-consensus.xz", 6_463),
    ("microdesc", "a-network/cached-microdesc-consensus.xz", 6_088),
    ("consensus", "b-series/2019-05-27-20-00-00-consensus.xz", 6_667),
    ("consensus", "b-series/2019-07-14-00-00-00-consensus.xz", 6_528),
    ("consensus", "b-series/2019-07-17-23-00-00-consensus.xz", 6_421),
    ("consensus", "b-series/2019-07-20-18-00-00-consensus.xz", 6_456),
];

/// The folder with the full data.
///
/// # Panics
/// Without the environment variable `FF_SIM_DATA`.
pub(crate) fn full_data() -> PathBuf {
    PathBuf::from(std::env::var_os("FF_SIM_DATA").expect("FF_SIM_DATA is a folder"))
}
