//! The target, size, times and rates of a download, from its line.

use serde::Serialize;

use crate::record::{CircuitRecord, Download};

/// 1 MiB, a size of OnionPerf.
pub(super) const MIB: u64 = 1 << 20;
/// 5 MiB, a size of OnionPerf.
pub(super) const FIVE_MIB: u64 = 5 << 20;

/// The target of downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DownloadTarget {
    /// A server on the Internet, through an exit.
    Exit,
    /// An onion service.
    Onion,
}

impl DownloadTarget {
    /// The name in Tor Metrics and OnionPerf.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::Exit => "public",
            Self::Onion => "onion",
        }
    }

    /// The target of a line.
    #[must_use]
    pub fn of(circuit: &CircuitRecord) -> Self {
        let is_onion = circuit.download.as_ref().is_some_and(Download::is_from_onion);
        if is_onion { Self::Onion } else { Self::Exit }
    }
}

/// The download of a line, if it is whole.
#[must_use]
pub fn whole(circuit: &CircuitRecord) -> Option<&Download> {
    circuit.download.as_ref().filter(|download| download.us.is_some())
}

/// Time to first byte of a whole download.
#[must_use]
pub fn first_byte_secs(circuit: &CircuitRecord) -> Option<f64> {
    whole(circuit)?.first_byte_us.map(secs)
}

/// Time to last byte of a whole download.
#[must_use]
pub fn last_byte_secs(circuit: &CircuitRecord) -> Option<f64> {
    whole(circuit)?.us.map(secs)
}

/// Throughput of a whole download from the first byte to the last.
#[must_use]
pub fn mbit_per_sec(circuit: &CircuitRecord) -> Option<f64> {
    whole(circuit)?.bytes_per_sec().map(|rate| rate * 8.0 / 1e6)
}

/// Throughput of a whole download over the last MiB of 5 MiB, or the second half of 1 MiB.
#[must_use]
pub fn last_mbit_per_sec(circuit: &CircuitRecord) -> Option<f64> {
    let download = whole(circuit)?;
    // The Mbit between two tenths, with OnionPerf's numbers, so that the quotients have the same
    // digits.
    let (from, mbit) = match download.asked_bytes? {
        FIVE_MIB => (8, 8.388_608),
        MIB => (5, 4.194_304),
        _ => return None,
    };
    let at = |tenth: usize| download.tenths_us.get(tenth).copied().map(secs);
    Some(mbit / (at(10)? - at(from)?)).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// The requested size; if that is unknown, the number of bytes that arrived.
#[must_use]
pub fn size_bytes(circuit: &CircuitRecord) -> u64 {
    let download = circuit.download.as_ref();
    download.map_or(0, |download| download.asked_bytes.unwrap_or(download.bytes))
}

/// Converts microseconds to seconds.
pub(super) fn secs(us: u64) -> f64 {
    us as f64 / 1e6
}
