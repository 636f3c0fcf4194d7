//! The rate that TCP can carry over a path, from the path's observed properties.
//!
//! Losses limit the segments that a connection has in flight. The response functions of Reno
//! (Mathis et al. 1997) and CUBIC (RFC 9438, §5.1) give their mean number. If connections had
//! almost no room left, the measurement shows their limit and not the relay's.

use core::time::Duration;

/// Losses cost as much over a shorter round trip as over this one. Linux repairs them by timers of
/// two jiffies at least (8 ms at 250 Hz), and tor's scheduler KIST gives a connection at most two
/// congestion windows every 10 ms.
pub const LEAST_ROUND_TRIP: Duration = Duration::from_millis(5);
/// The part of a connection's window that one loss puts out of order: 0.53 to 0.68 were measured
/// where 1 to 5 % were lost.
const OUT_OF_ORDER: f64 = 0.6;
/// If more is lost, TCP mostly waits for its timers, which the response functions leave out (Padhye
/// et al. 1998): then a connection has no room.
const MOST_LOSS: f64 = 0.04;
/// A smoothed round trip may contain the delay of an acknowledgement, at most this long on Linux.
pub const DELAYED_ACK: Duration = Duration::from_millis(40);
/// A loss rate needs at least so many losses.
const MIN_LOSSES: f64 = 5.0;
/// A loss rate follows from the seconds without losses if there are at least so many, or this part
/// of all seconds.
const MIN_FREE_SECS: f64 = 5.0;
const MIN_FREE_PART: f64 = 0.1;

/// The observations of one measurer's connections to the relay, in the counted seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathSeen {
    /// The shortest round trip of a segment.
    pub round_trip: Duration,
    /// The mean of the connections' smoothed round trips.
    pub smoothed: Duration,
    /// Bytes of data in a full segment.
    pub segment_bytes: f64,
    /// The number of connections times the number of seconds.
    pub connection_secs: f64,
    /// Sent segments; wrong ones were retransmitted.
    pub sent: Counted,
    /// Received segments; wrong ones arrived before one that had been sent earlier.
    pub received: Counted,
}

/// Segments with data in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// All segments.
    pub segments: f64,
    /// The segments that indicate a loss.
    pub wrong: f64,
    /// Seconds with such segments, summed over connections.
    pub wrong_secs: f64,
}

impl Counted {
    /// The part of received segments that was lost, by those that arrived out of order, if
    /// connections had the windows that losses leave them: p losses put p · [`OUT_OF_ORDER`] ·
    /// √(1.5 / p) of the segments out of order. Less if they had smaller windows.
    fn loss_by_order(&self) -> f64 {
        let part = (self.wrong / self.segments.max(self.wrong).max(1.0)).min(1.0);
        part * (part / (1.5 * OUT_OF_ORDER * OUT_OF_ORDER)).min(1.0)
    }
}

impl PathSeen {
    /// The part of the segments that were lost on the way to the relay.
    #[must_use]
    pub fn loss_out(&self) -> f64 {
        self.loss(&self.sent, self.sent.wrong)
    }

    /// The part of the segments that were lost on the way back, as far as the order of segments
    /// shows.
    #[must_use]
    pub fn loss_back(&self) -> f64 {
        let Counted { segments, wrong, .. } = self.received;
        self.loss(&self.received, segments.max(wrong) * self.received.loss_by_order())
    }

    /// The rate that the path could have carried over the same number of connections, divided by
    /// the carried rate, at least 1. Infinite if nothing was lost, or nothing is known.
    #[must_use]
    pub fn headroom(&self) -> f64 {
        let (out, back) = (self.loss_out(), self.loss_back());
        if out.max(back).max(self.received.loss_by_order()) > MOST_LOSS {
            return 1.0;
        }
        let round_trip = self.usual_round_trip();
        let of = |counted: &Counted, loss: f64| {
            let on_way = self.on_way(counted.segments, round_trip);
            let most = segments_on_way(loss, round_trip);
            if on_way > 0.0 { (most / on_way).max(1.0) } else { f64::INFINITY }
        };
        of(&self.sent, out).min(of(&self.received, back))
    }

    /// The round trip in which TCP repaired losses: that of most segments, because a path's may
    /// vary much, or grow.
    fn usual_round_trip(&self) -> Duration {
        let most = self.smoothed.saturating_sub(DELAYED_ACK);
        self.round_trip.max(most).max(LEAST_ROUND_TRIP)
    }

    /// The part of the segments at which TCP had to slow down. It does so once per round trip,
    /// however many are lost in it, and after one loss many arrive out of order. So seconds with
    /// any are counted, as if losses were independent; there are no more than segments that indicate
    /// one. If hardly a second is without, there are `many`.
    fn loss(&self, counted: &Counted, many: f64) -> f64 {
        if counted.wrong < MIN_LOSSES || self.connection_secs <= 0.0 {
            return 0.0;
        }
        let free_secs = self.connection_secs - counted.wrong_secs;
        let independent = -(free_secs / self.connection_secs).ln() * self.connection_secs;
        let is_hardly_free = free_secs < MIN_FREE_SECS.min(self.connection_secs * MIN_FREE_PART);
        let losses = if is_hardly_free { many } else { independent.min(counted.wrong) };
        // A measurer may have reported anything.
        losses / counted.segments.max(losses).max(1.0)
    }

    /// The mean number of segments in flight on a connection that has carried `segments` in total
    /// over this round trip.
    fn on_way(&self, segments: f64, round_trip: Duration) -> f64 {
        if self.connection_secs > 0.0 {
            segments / self.connection_secs * round_trip.as_secs_f64()
        } else {
            0.0
        }
    }
}

/// The mean number of segments in flight on a connection with this part lost: CUBIC's, which is at
/// least Reno's. Infinite without losses.
#[must_use]
pub fn segments_on_way(loss: f64, round_trip: Duration) -> f64 {
    if loss <= 0.0 {
        return f64::INFINITY;
    }
    let reno = (1.5 / loss).sqrt();
    // RFC 9438, figure 5, with C = 0.4 and beta = 0.7.
    let cubic = 1.054 * (round_trip.as_secs_f64() / loss).powf(0.75);
    reno.max(cubic)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a round trip of 0.1 s on which each of 20 connections carries `segments`
    /// segments in 30 s in each direction. The first number of each pair is the number of segments
    /// that indicate losses, the second the number of seconds with them.
    fn path(segments: f64, out: (f64, f64), back: (f64, f64)) -> PathSeen {
        let counted = |(wrong, wrong_secs)| Counted { segments, wrong, wrong_secs };
        PathSeen {
            round_trip: Duration::from_millis(100),
            smoothed: Duration::from_millis(140),
            segment_bytes: 1448.0,
            connection_secs: 600.0,
            sent: counted(out),
            received: counted(back),
        }
    }

    #[test]
    fn whatever_a_measurer_has_reported_the_loss_is_a_number() {
        for segments in [0.0, 1.0, 1e12] {
            for wrong in [0.0, 5.0, 1e12] {
                for wrong_secs in [0.0, 1.0, 600.0, 1e12] {
                    let path = path(segments, (wrong, wrong_secs), (wrong, wrong_secs));
                    for loss in [path.loss_out(), path.loss_back()] {
                        assert!((0.0..=1.0).contains(&loss), "{path:?}: {loss}");
                    }
                    assert!(path.headroom() > 0.0, "{path:?}");
                }
            }
        }
    }

    #[test]
    fn the_response_functions_are_those_of_their_papers() {
        let at = |loss, millis| segments_on_way(loss, Duration::from_millis(millis));
        // RFC 9438, tables 1 and 2: C = 0.4, round trips of 0.1 and 0.01 s.
        for (loss, millis, segments) in
            [(1e-2, 100, 12.0), (1e-3, 100, 38.0), (1e-4, 100, 187.0), (1e-6, 10, 1200.0)]
        {
            let found = at(loss, millis);
            assert!((found / segments - 1.0).abs() < 0.05, "{loss} {millis}: {found}");
        }
        assert_eq!(at(0.0, 100), f64::INFINITY);
    }

    #[test]
    fn a_path_that_loses_little_has_room_and_one_at_its_end_has_none() {
        // 600 connection seconds with 10 segments in flight per 0.1 s.
        let (segments, none) = (60_000.0, (0.0, 0.0));
        assert_eq!(path(segments, none, none).headroom(), f64::INFINITY);
        assert_eq!(path(segments, (4.0, 4.0), none).headroom(), f64::INFINITY, "four say nothing");
        // 600 independent losses are in 1 - 1/e of the seconds: 1 %.
        let in_secs = 600.0 * (1.0 - (-1.0_f64).exp());
        let lossy = path(segments, (600.0, in_secs), none);
        assert!((lossy.loss_out() - 0.01).abs() < 1e-9 && lossy.loss_back() == 0.0);
        assert!((lossy.headroom() - 1.22).abs() < 0.01, "{}", lossy.headroom());
        // The same on the way back, where nine or ten segments arrive out of order after each loss.
        let lossy = path(segments, none, (6_000.0, in_secs));
        assert!((lossy.loss_back() - 0.01).abs() < 1e-9, "{}", lossy.loss_back());
        assert!(lossy.headroom() < 1.5);
        // Nor are fewer losses seen if connections have fewer segments in flight than they could,
        // of which each loss puts two out of order.
        let free = path(21_000.0, none, (420.0, 600.0 * (1.0 - (-0.35_f64).exp())));
        assert!((free.loss_back() - 0.01).abs() < 1e-9, "{}", free.loss_back());
        assert!((free.headroom() - 3.5).abs() < 0.05, "{}", free.headroom());
        // As many at once, from an overflowing buffer, count as one.
        let burst = path(segments, (600.0, 20.0), none);
        assert!(burst.headroom() > 5.0, "{}", burst.headroom());
        // So they do on one connection, in six of its ten seconds.
        let one = PathSeen { connection_secs: 10.0, ..path(10_000.0, (600.0, 6.0), none) };
        assert!((one.loss_out() - 9.16e-4).abs() < 1e-6, "{}", one.loss_out());
        // The headroom is never below 1, even if something was lost in each second.
        assert_eq!(path(segments, (20_000.0, 600.0), none).headroom(), 1.0);
        assert!((path(segments, (600.0, 600.0), none).loss_out() - 0.01).abs() < 1e-9);
        assert_eq!(PathSeen::default().headroom(), f64::INFINITY);
    }

    #[test]
    fn a_round_trip_that_varies_counts_as_long_as_it_mostly_is() {
        // A wireless network: 20 connections of 120 segments a second, 0.6 % lost on the way back.
        let in_secs = 200.0 * (1.0 - (-0.006_f64 * 120.0).exp());
        let counted = Counted { segments: 24_000.0, wrong: 1_000.0, wrong_secs: in_secs };
        let at = |millis| PathSeen {
            round_trip: Duration::from_millis(6),
            smoothed: Duration::from_millis(millis),
            connection_secs: 200.0,
            received: counted,
            ..PathSeen::default()
        };
        assert!((at(6).loss_back() - 0.006).abs() < 1e-9);
        assert_eq!(at(6).headroom(), at(46).headroom(), "acknowledgements may be delayed");
        assert!(at(46).headroom() > 20.0 && at(150).headroom() < 1.3);
    }

    #[test]
    fn a_path_that_loses_much_has_no_room() {
        // Few segments a second: 20 connections of 165 segments a second, as with 12 % lost on the
        // way back, where a fifth of the segments came out of order, but not in every second.
        let few = |part: f64| PathSeen {
            connection_secs: 200.0,
            received: Counted { segments: 33_000.0, wrong: 33_000.0 * part, wrong_secs: 179.0 },
            ..PathSeen::default()
        };
        assert!(few(0.14).headroom() > 3.0);
        assert_eq!(few(0.19).headroom(), 1.0);
        let out = |part: f64| PathSeen {
            connection_secs: 200.0,
            sent: Counted { segments: 4_000.0, wrong: 4_000.0 * part, wrong_secs: 200.0 },
            ..PathSeen::default()
        };
        assert!(out(0.039).headroom() > 10.0);
        assert_eq!(out(0.041).headroom(), 1.0);
    }

    #[test]
    fn a_near_path_has_room_where_its_estimates_were_right() {
        // Over 0.1 ms, 40 connection seconds: segments of a connection in a second, the part of
        // them that was lost, the part that came out of order if that was on the way back, and
        // whether the measurement found the rate of the relay and is trusted. The sixth is not, since
        // more than 4 % were lost.
        let measured = [
            (1_080.0, 0.01, 0.0, true),
            (432.0, 0.03, 0.0, true),
            (1_870.0, 0.05, 0.0, false),
            (1_080.0, 0.01, 0.085, true),
            (432.0, 0.03, 0.133, true),
            (432.0, 0.05, 0.151, false),
            (3_890.0, 0.01, 0.084, false),
            (1_620.0, 0.03, 0.123, false),
            (920.0, 0.05, 0.140, false),
            (842.0, 0.05, 0.150, false),
        ];
        for (segments, loss, disordered, is_right) in measured {
            let all = segments * 40.0;
            let counted = |part| Counted { segments: all, wrong: all * part, wrong_secs: 39.0 };
            let none = Counted { segments: all, ..Counted::default() };
            let is_back = disordered > 0.0;
            let (sent, received) =
                if is_back { (none, counted(disordered)) } else { (counted(loss), none) };
            let seen = PathSeen {
                round_trip: Duration::from_micros(100),
                connection_secs: 40.0,
                sent,
                received,
                ..PathSeen::default()
            };
            let found = if is_back { seen.loss_back() } else { seen.loss_out() };
            assert!((found / loss - 1.0).abs() < 0.35, "{segments} {loss}: {found}");
            let headroom = seen.headroom();
            assert_eq!(headroom >= 1.5 / 0.8, is_right, "{segments} {loss}: {headroom}");
        }
    }
}
