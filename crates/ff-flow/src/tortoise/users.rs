//! Users' requests and their times, and the rates of their access lines (§5 of the Tortoise paper).
//!
//! Web users request a page, wait for it, think, and request the next one, in sessions with breaks
//! between them; bulk users request the next file at once. Assumptions where the paper gives no
//! details: think times are exponential, breaks uniform, and a session ends with its last page.

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;

use super::KB;

/// Sizes of pages in bytes: the 10th, 30th, 50th, 70th and 90th percentile of 60 front pages,
/// equally likely.
pub const PAGES: [f64; 5] = [106.0 * KB, 150.0 * KB, 238.0 * KB, 496.0 * KB, 992.0 * KB];
/// Sizes of files in bytes, equally likely.
pub const FILES: [f64; 5] = [1_000.0 * KB, 2_000.0 * KB, 3_000.0 * KB, 4_000.0 * KB, 5_000.0 * KB];
/// A web user's mean think time between two pages, in seconds.
pub const THINK_SECS: f64 = 11.0;
/// The length of a session, in seconds.
pub const SESSION_SECS: f64 = 900.0;
/// The least and the greatest length of a break, in seconds.
pub const BREAK_SECS: (f64, f64) = (540.0, 660.0);
/// The time in which users without an initial break make their first request, in seconds.
const FIRST_SECS: f64 = 11.0;

/// The kind of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserKind {
    /// Reads pages.
    Web,
    /// Downloads files, one after another.
    Bulk,
}

impl UserKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 2] = [Self::Web, Self::Bulk];

    /// Draws the size of the next request, in bytes of the stream.
    pub fn size(self, rng: &mut ChaCha12Rng) -> f64 {
        let sizes = if self == Self::Web { PAGES } else { FILES };
        sizes[rng.random_range(0..sizes.len())]
    }
}

/// Determines when a user makes requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Habit {
    kind: UserKind,
    /// The end of the session, in seconds; infinite for bulk users.
    session_end: f64,
}

impl Habit {
    /// A user at a random time within sessions and breaks, and the time of the first request in
    /// seconds.
    pub fn start(kind: UserKind, rng: &mut ChaCha12Rng) -> (Self, f64) {
        let first = rng.random_range(0.0..FIRST_SECS);
        if kind == UserKind::Bulk {
            return (Self { kind, session_end: f64::INFINITY }, first);
        }
        let cycle = SESSION_SECS + f64::midpoint(BREAK_SECS.0, BREAK_SECS.1);
        let gone = rng.random_range(0.0..cycle);
        let begin = if gone < SESSION_SECS { first } else { cycle - gone };
        let left = if gone < SESSION_SECS { SESSION_SECS - gone } else { SESSION_SECS };
        (Self { kind, session_end: begin + left }, begin)
    }

    /// The user's pause after a transfer that ended at this time, in seconds, and whether it is a
    /// break.
    pub fn pause(&mut self, ended: f64, rng: &mut ChaCha12Rng) -> (f64, bool) {
        if self.kind == UserKind::Bulk {
            return (0.0, false);
        }
        if ended < self.session_end {
            // 1 - x is above 0, so it has a logarithm.
            return (-THINK_SECS * (1.0 - rng.random::<f64>()).ln(), false);
        }
        let pause = rng.random_range(BREAK_SECS.0..=BREAK_SECS.1);
        self.session_end = ended + pause + SESSION_SECS;
        (pause, true)
    }
}

/// A Mbit/s in bytes per second.
const MBIT: f64 = 125_000.0;
/// The share of lines that are as fast up as down.
const INSTITUTIONS: f64 = 0.1;

/// Countries of clients: percentage of clients, and Mbit/s down and up. The paper took them from
/// Tor Metrics and NetIndex of May 2011; it prints only the 20 % of the United States. These are
/// round numbers based on reports of that year, with one line for all other countries. They matter
/// in two ways: nearly all lines are far above 41 KB/s down, and the rate up limits what client
/// relays forward.
const COUNTRIES: [(f64, f64, f64); 16] = [
    (20.0, 10.2, 2.3),
    (12.0, 12.0, 1.9),
    (8.0, 4.7, 0.9),
    (7.0, 9.5, 2.0),
    (7.0, 0.8, 0.3),
    (5.0, 7.5, 1.2),
    (5.0, 9.0, 6.5),
    (4.0, 9.5, 1.3),
    (4.0, 4.5, 0.9),
    (4.0, 6.5, 1.2),
    (3.0, 20.0, 11.0),
    (2.0, 32.0, 17.0),
    (3.0, 26.0, 9.0),
    (3.0, 23.0, 4.5),
    (3.0, 3.5, 1.4),
    (10.0, 5.0, 1.7),
];

/// The rates of an access line, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessLine {
    /// To the client.
    pub down: f64,
    /// From the client.
    pub up: f64,
}

impl AccessLine {
    /// Draws the line of a client.
    pub fn draw(rng: &mut ChaCha12Rng) -> Self {
        let mut at = rng.random_range(0.0..100.0);
        let is_even = rng.random::<f64>() < INSTITUTIONS;
        let last = COUNTRIES[COUNTRIES.len() - 1];
        let mut country = COUNTRIES.into_iter();
        let (_, down, up) = country
            .find(|(part, ..)| {
                at -= part;
                at < 0.0
            })
            .unwrap_or(last);
        Self { down: down * MBIT, up: if is_even { down } else { up } * MBIT }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn mean(mut draw: impl FnMut(&mut ChaCha12Rng) -> f64) -> f64 {
        let mut rng = ChaCha12Rng::seed_from_u64(41);
        let count = 20_000;
        (0..count).map(|_| draw(&mut rng)).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn means_are_the_papers() {
        let page = mean(|rng| UserKind::Web.size(rng));
        assert!((page / 396_400.0 - 1.0).abs() < 0.02, "{page}");
        let file = mean(|rng| UserKind::Bulk.size(rng));
        assert!((file / 3e6 - 1.0).abs() < 0.02, "{file}");
        let habit = |session_end| Habit { kind: UserKind::Web, session_end };
        let think = mean(|rng| habit(1.0).pause(0.0, rng).0);
        assert!((think / 11.0 - 1.0).abs() < 0.02, "{think}");
        let pause = mean(|rng| habit(0.0).pause(0.0, rng).0);
        assert!((pause / 600.0 - 1.0).abs() < 0.02, "{pause}");
        assert!((COUNTRIES.iter().map(|one| one.0).sum::<f64>() - 100.0).abs() < 1e-9);
        let (down, up) =
            (mean(|rng| AccessLine::draw(rng).down), mean(|rng| AccessLine::draw(rng).up));
        let table = |rate: fn(&(f64, f64, f64)) -> f64| {
            COUNTRIES.iter().map(|one| one.0 / 100.0 * rate(one)).sum::<f64>() * MBIT
        };
        let (all_down, all_up) = (table(|one| one.1), table(|one| one.2));
        assert!((down / all_down - 1.0).abs() < 0.03, "{down}, {all_down}");
        assert!((up / (0.9 * all_up + 0.1 * all_down) - 1.0).abs() < 0.03, "{up}");
    }

    #[test]
    fn a_session_ends_with_a_break_and_another_begins() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut habit = Habit { kind: UserKind::Web, session_end: 100.0 };
        assert!(!habit.pause(99.0, &mut rng).1);
        let (pause, is_break) = habit.pause(103.0, &mut rng);
        assert!(is_break && (540.0..=660.0).contains(&pause), "{pause}");
        assert!((habit.session_end - (103.0 + pause + 900.0)).abs() < 1e-9);
        let (mut bulk, first) = Habit::start(UserKind::Bulk, &mut rng);
        assert!(first < FIRST_SECS);
        assert_eq!(bulk.pause(1e9, &mut rng), (0.0, false), "bulk users never pause");
        // Sixty percent of web users are in a session at first.
        let mut starts = (0..10_000).map(|_| Habit::start(UserKind::Web, &mut rng).1);
        let early = starts.by_ref().filter(|first| *first < FIRST_SECS).count();
        assert!((5_900..6_250).contains(&early), "{early}");
    }
}
