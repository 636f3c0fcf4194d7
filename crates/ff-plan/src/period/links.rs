//! The number of links to a relay, by its expected capacity and the path to it.
//!
//! Decisions: doc/decisions.md, "Links follow the expected capacity".

use std::time::Duration;

use ff_proto::aggregate::{LEAST_ROUND_TRIP, segments_on_way};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

/// The part of the expected capacity for one link, on a path of [`NEAR`] or less.
const RATE_PER_LINK: BytesPerSec = BytesPerSec::new(12_500_000 / 8);
/// Bytes in flight of a link on the public Internet. FlashFlow, App. E.1 and Table 1: over 210 ms a
/// host needed 160 links for a line of 954 Mbit/s, which is 157 KB each. Losses are the limit, not
/// the kernel's buffers (4 MiB by default, App. D.1) nor a measurer's window (64 MiB, of which half
/// a second's bytes are used): both would carry 12.5 Mbit/s over more than two seconds.
const FLIGHT_BYTES: u64 = 160_000;
/// The round trip over which [`FLIGHT_BYTES`] gives [`RATE_PER_LINK`].
const NEAR: Duration = Duration::from_micros(FLIGHT_BYTES * 1_000_000 / RATE_PER_LINK.get());
/// The longest round trip that is used, as in a measurer's window.
const FAR: Duration = Duration::from_millis(500);
/// The least number of links to a relay.
const MIN_LINKS: u16 = 20;
/// The largest number of links to a near relay: the paper's s.
const MAX_NEAR_LINKS: u16 = 160;
/// The largest number of links to any relay: the default limit of targets (PROTOCOL.md §7.2).
pub const MAX_LINKS: u16 = 512;
/// The expected loss if only the round trip is known: with it CUBIC keeps [`FLIGHT_BYTES`] in
/// flight over [`FARTHEST_HOST`], like the paper's hosts.
const USUAL_LOSS: f64 = 0.0004;
/// The round trip of the paper's farthest host (Table 1). Over longer paths more loss is expected,
/// in proportion to the round trip: CUBIC's share of a connection grows again only after seconds,
/// and connections that happen to be behind their share make the sum too small.
const FARTHEST_HOST: Duration = Duration::from_millis(210);
/// The greatest loss that links are planned for. A relay that drops segments on purpose is not to
/// take links from the others.
const MOST_LOSS: f64 = 0.05;
/// The factor by which links should exceed the headroom that a verdict requires: losses vary, and a
/// measurement that they limited is repeated.
const SPARE: f64 = 1.5;
/// Bytes of data in a full segment over Ethernet.
const SEGMENT_BYTES: f64 = 1448.0;

/// The known properties of the path between a team and a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KnownPath {
    /// The longest round trip of all measurers.
    pub round_trip: Option<Duration>,
    /// The part of segments lost in either direction; at least `usual_loss` is expected.
    pub loss: f64,
    /// The least number of links, because the path limited a measurement with fewer.
    pub least_links: u16,
}

impl KnownPath {
    /// A path with this round trip, about which nothing else is known.
    #[must_use]
    pub fn of(round_trip: Option<Duration>) -> Self {
        Self { round_trip, ..Self::default() }
    }
}

/// The number of links to a relay of this expected capacity: one for each 12.5 Mbit/s, from 20 to
/// 160; on a path with a round trip of more than 0.1 s, more in proportion to the round trip, and
/// enough that TCP could carry 1.5 times [`Params::headroom`] times the capacity at the measured
/// loss; this is taken for 0.04 % at least (more beyond 210 ms, 0.1 % over 0.5 s) and 5 % at most;
/// 512 at most.
///
/// Cells cost a relay more CPU time the fewer arrive at once. So too many links make a slow relay
/// slower than it is for its clients; too few leave a fast relay idle. The numbers are in
/// tests/ground-truth/RESULTS.md, "A whole core". A long path does not change what the relay needs
/// but what a link carries.
#[must_use]
pub fn links_for(expected: BytesPerSec, path: &KnownPath) -> u16 {
    let near = RATE_PER_LINK.get() * u64::from(MAX_NEAR_LINKS);
    let carried = expected.get().min(near);
    let known = path.round_trip.unwrap_or(NEAR).min(FAR);
    let round_trip = known.max(NEAR).as_micros();
    let links = (u128::from(carried) * round_trip).div_ceil(u128::from(FLIGHT_BYTES) * 1_000_000);
    let links = u16::try_from(links).unwrap_or(MAX_LINKS);
    let loss = path.loss.clamp(usual_loss(known), MOST_LOSS);
    let by_loss =
        path.round_trip.map(|_| links_by_loss(carried, known.max(LEAST_ROUND_TRIP), loss));
    let links = links.max(by_loss.unwrap_or(0));
    links.max(path.least_links).clamp(MIN_LINKS, MAX_LINKS)
}

/// The loss that is expected over this round trip.
fn usual_loss(round_trip: Duration) -> f64 {
    USUAL_LOSS * round_trip.div_duration_f64(FARTHEST_HOST).max(1.0)
}

/// The number of links with which TCP could carry [`SPARE`] times [`Params::headroom`] times this
/// rate over a path with losses.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rates lie below 2^53; what is more than the most saturates"
)]
fn links_by_loss(bytes_per_sec: u64, round_trip: Duration, loss: f64) -> u16 {
    let on_way = bytes_per_sec as f64 * round_trip.as_secs_f64() / SEGMENT_BYTES;
    (on_way * SPARE * Params::default().headroom() / segments_on_way(loss, round_trip)).ceil()
        as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_follow_the_capacity_and_the_round_trip_within_bounds() {
        // By round trip: unknown, 40 ms, 102.4 ms, 137 ms, 210 ms, 500 ms, 3 s (paper, Table 1: 40
        // to 210).
        let round_trips =
            [None, Some(40.0), Some(102.4), Some(137.0), Some(210.0), Some(500.0), Some(3e3)];
        for (mbit, links) in [
            (0, [20, 20, 20, 20, 20, 20, 20]),
            (10, [20, 20, 20, 20, 20, 20, 20]),
            (100, [20, 20, 37, 40, 45, 106, 106]),
            (250, [20, 40, 93, 100, 111, 263, 263]),
            (251, [21, 40, 93, 100, 111, 264, 264]),
            (954, [77, 152, 352, 379, 421, 512, 512]),
            (1000, [80, 159, 369, 397, 442, 512, 512]),
            (2000, [160, 318, 512, 512, 512, 512, 512]),
            (9000, [160, 318, 512, 512, 512, 512, 512]),
        ] {
            let expected = BytesPerSec::from_mbit(mbit);
            let all = round_trips.map(|ms: Option<f64>| {
                links_for(expected, &KnownPath::of(ms.map(|ms| Duration::from_secs_f64(ms / 1e3))))
            });
            assert_eq!(all, links, "{mbit} Mbit/s");
        }
        assert_eq!(links_for(BytesPerSec::new(u64::MAX), &KnownPath::of(Some(Duration::MAX))), 512);
    }

    #[test]
    fn a_way_that_loses_takes_more_links() {
        let links = |mbit, ms, loss| {
            let round_trip = Some(Duration::from_millis(ms));
            links_for(BytesPerSec::from_mbit(mbit), &KnownPath { round_trip, loss, least_links: 0 })
        };
        // 100 Mbit/s over 0.1 s are 863 segments; at 1 % of loss a connection has 12 of them.
        assert_eq!(links(100, 100, 0.01), 199);
        assert_eq!([links(100, 100, 0.001), links(100, 100, 0.0)], [63, 37]);
        assert_eq!([links(100, 27, 0.01), links(10, 300, 0.01)], [54, 54]);
        assert_eq!([links(250, 0, 0.01), links(250, 5, 0.01)], [25, 25]);
        assert_eq!([links(250, 0, 0.05), links(250, 0, 1.0)], [56, 56]);
        assert_eq!([links(250, 300, 0.01), links(1000, 100, 1.0)], [512, 512]);
        let fewer = KnownPath { least_links: 60, ..KnownPath::default() };
        assert_eq!(links_for(BytesPerSec::from_mbit(10), &fewer), 60);
    }
}
