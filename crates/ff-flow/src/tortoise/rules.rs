//! The rules of the paper's network and of today's: paths of clients, sizes of pages and files,
//! seconds to the first byte.

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;

use super::users::{self, UserKind};

/// The number of relays of a circuit.
pub(super) const PLACES: usize = 3;
/// The number of conflux legs of a transfer.
pub(super) const LEGS: u8 = 2;
/// Seconds from a request to its first byte: two round trips (connect, request) over four links of
/// less than 10 ms, 5 ms on average.
pub(super) const FIRST_BYTE_SECS: f64 = 2.0 * 2.0 * 4.0 * 0.005;
/// The same in today's network: two round trips (connect, request) of 0.4 s, the median through
/// circuits of 2019 (Jansen, Tracey, Goldberg, USENIX Security 2021, Fig. 3b).
pub(super) const TODAY_FIRST_BYTE_SECS: f64 = 2.0 * 0.4;

/// Home pages of 2025: the share of pages with each size, and the size in KiB. The sizes are the
/// 10th, 25th, 50th, 75th and 90th percentile (HTTP Archive, Web Almanac 2025, Page Weight); each
/// stands for the pages closest to it.
const HOME_PAGES: [(f64, f64); 5] =
    [(0.175, 589.0), (0.2, 1_361.0), (0.25, 2_710.0), (0.2, 5_422.0), (0.175, 11_406.0)];
/// The median of home pages on desktops in the same chapter, in KiB: sizes are scaled to it.
const DESKTOP_MEDIAN: f64 = 2_862.0;
/// Bytes in a KiB.
const KIB: f64 = 1_024.0;

/// The rules of a network: how clients choose relays and divide transfers, the sizes of requests,
/// and the time to the first byte.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rules {
    /// The paper's network: each circuit has newly drawn relays, and a transfer over several links
    /// is divided evenly.
    #[default]
    Paper,
    /// Today's network: clients keep their guards, and conflux legs share a transfer.
    Today(Today),
}

impl Rules {
    /// Seconds from a request to its first byte.
    pub(super) const fn first_byte_secs(&self) -> f64 {
        match self {
            Self::Paper => FIRST_BYTE_SECS,
            Self::Today(_) => TODAY_FIRST_BYTE_SECS,
        }
    }

    /// The size of a user's next request, in bytes of the stream.
    pub(super) fn size(&self, kind: UserKind, rng: &mut ChaCha12Rng) -> f64 {
        match self {
            Self::Paper => kind.size(rng),
            Self::Today(_) => todays_size(kind, rng),
        }
    }

    /// Whether a client's links are conflux legs: the rest of a transfer is divided between them in
    /// proportion to their rates.
    pub(super) const fn has_legs(&self) -> bool {
        matches!(self, Self::Today(_))
    }

    /// Whether results include the duration of each transfer.
    pub(super) const fn keeps_secs(&self) -> bool {
        matches!(self, Self::Today(_))
    }
}

/// The size of a user's next request in today's network, in bytes of the stream. Files are scaled
/// by the growth of the median page.
fn todays_size(kind: UserKind, rng: &mut ChaCha12Rng) -> f64 {
    let growth = DESKTOP_MEDIAN * KIB / users::PAGES[2];
    if kind == UserKind::Bulk {
        return kind.size(rng) * growth;
    }
    let mut at = rng.random::<f64>();
    let (_, last) = HOME_PAGES[HOME_PAGES.len() - 1];
    let mut pages = HOME_PAGES.into_iter();
    let page = pages.find(|(part, _)| {
        at -= part;
        at < 0.0
    });
    let (_, median) = HOME_PAGES[2];
    page.map_or(last, |(_, kib)| kib) * KIB * DESKTOP_MEDIAN / median
}

/// Data of today's network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Today {
    /// For the first, second and last relay of a circuit: cumulative weights of relays.
    pub(super) sums: [Vec<f64>; 3],
    /// Each relay's class, as an index into [`Position::ALL`](ff_archives::network::Position::ALL).
    pub(super) classes: Vec<usize>,
    /// Rates of a link, in bytes per second; `Between` counts the bytes above each.
    pub(super) rates: Vec<f64>,
}

impl Today {
    /// Paths of a client's circuits through each of its guards (`held`) to one exit; missing guards
    /// are drawn.
    pub(super) fn paths(&self, held: &[usize], rng: &mut ChaCha12Rng) -> Vec<[usize; PLACES]> {
        let [first, second, last] = &self.sums;
        let mut other = |sums: &[f64], taken: &[usize]| loop {
            let relay = pick(sums, rng);
            if !taken.contains(&relay) {
                break relay;
            }
        };
        let mut guards = held.to_vec();
        while guards.len() < usize::from(LEGS) {
            let guard = other(first, &guards);
            guards.push(guard);
        }
        let exit = other(last, &guards);
        let mut paths = Vec::with_capacity(guards.len());
        for guard in guards {
            let middle = other(second, &[guard, exit]);
            paths.push([guard, middle, exit]);
        }
        paths
    }
}

/// Draws a relay by its weight, from cumulative weights.
pub(super) fn pick(sums: &[f64], rng: &mut ChaCha12Rng) -> usize {
    let all = sums.last().copied().unwrap_or(0.0);
    let point = rng.random::<f64>() * all;
    sums.partition_point(|sum| *sum <= point).min(sums.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn pages_are_those_of_2025_and_files_have_grown_with_them() {
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let mut pages: Vec<f64> =
            (0..20_000).map(|_| todays_size(UserKind::Web, &mut rng)).collect();
        pages.sort_by(f64::total_cmp);
        assert!((pages[10_000] / 2.931e6 - 1.0).abs() < 1e-3, "{}", pages[10_000]);
        assert!((pages[1_000] / 6.37e5 - 1.0).abs() < 1e-2, "{}", pages[1_000]);
        assert!((pages[19_000] / 1.2335e7 - 1.0).abs() < 1e-2, "{}", pages[19_000]);
        let files: f64 = (0..20_000).map(|_| todays_size(UserKind::Bulk, &mut rng)).sum();
        assert!((files / 20_000.0 / 3.694e7 - 1.0).abs() < 0.02, "{files}");
    }
}
