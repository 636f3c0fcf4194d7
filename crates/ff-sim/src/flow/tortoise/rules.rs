//! The rules of a network, the paper's or today's: clients' paths, sizes of pages and files, and
//! seconds to the first byte.

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;

use super::users::{self, UserKind};

/// Relays of a circuit.
pub(super) const PLACES: usize = 3;
/// Conflux legs of a transfer.
pub(super) const LEGS: u8 = 2;
/// Seconds from a request to its first byte: two round trips (to connect, to ask) over four links
/// of less than 10 ms, of which half is the mean.
pub(super) const FIRST_BYTE_SECS: f64 = 2.0 * 2.0 * 4.0 * 0.005;
/// The same today: two round trips (to connect, to ask) of 0.4 s, the median through circuits of
/// 2019 (Jansen, Tracey, Goldberg, USENIX Security 2021, Fig. 3b).
pub(super) const TODAY_FIRST_BYTE_SECS: f64 = 2.0 * 0.4;

/// Home pages of 2025: the part of pages with each size, and the size in KiB. The sizes are the
/// 10th, 25th, 50th, 75th and 90th percentile (HTTP Archive, Web Almanac 2025, Page Weight); each
/// stands for the pages nearest to it.
const HOME_PAGES: [(f64, f64); 5] =
    [(0.175, 589.0), (0.2, 1_361.0), (0.25, 2_710.0), (0.2, 5_422.0), (0.175, 11_406.0)];
/// The same chapter's median of home pages on desktops, in KiB: sizes are scaled to it.
const DESKTOP_MEDIAN: f64 = 2_862.0;
/// Bytes of a KiB.
const KIB: f64 = 1_024.0;

/// The rules of a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rules {
    /// The paper's: other relays for each circuit, and equal parts of a transfer over each link.
    #[default]
    Paper,
    /// Today's: guards, and conflux legs of one transfer.
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

    /// How much a user asks for next, in bytes of the stream.
    pub(super) fn size(&self, kind: UserKind, rng: &mut ChaCha12Rng) -> f64 {
        match self {
            Self::Paper => kind.size(rng),
            Self::Today(_) => todays_size(kind, rng),
        }
    }

    /// Whether a client's links are legs: what is left of a transfer is divided between them by
    /// their rates.
    pub(super) const fn has_legs(&self) -> bool {
        matches!(self, Self::Today(_))
    }

    /// Whether results have the seconds of each transfer.
    pub(super) const fn keeps_secs(&self) -> bool {
        matches!(self, Self::Today(_))
    }
}

/// How much a user asks for next, in bytes of the stream. Files have grown as the median page has.
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

/// What today's network adds to the rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Today {
    /// For the first, second and last relay of a circuit: of each relay the weights of all up to
    /// it.
    pub(super) sums: [Vec<f64>; 3],
    /// Each relay's class, as an index into [`Position::ALL`](crate::network::Position::ALL).
    pub(super) classes: Vec<usize>,
    /// Rates of a link, in bytes a second: bytes above each are counted.
    pub(super) rates: Vec<f64>,
}

impl Today {
    /// Paths of a client's circuits through each of its guards, which are drawn if it holds none,
    /// to one exit.
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

/// A relay by its weight: of each relay `sums` has the weights of all up to it.
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
