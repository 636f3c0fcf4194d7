//! What TCP can carry over a path, from what it has shown of it.
//!
//! A connection keeps only so much on its way as losses let it. The response functions of Reno
//! (Mathis et al. 1997) and CUBIC (RFC 9438, §5.1) say how many segments that are in the mean. A
//! measurement whose connections had hardly room for more has measured them and not the relay.

use core::time::Duration;

/// Fewer losses than this in a measurement say nothing of how often they happen.
const MIN_LOSSES: f64 = 5.0;

/// What one measurer's connections have shown of its path to the relay, in the seconds that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathSeen {
    /// The shortest round trip of a segment.
    pub round_trip: Duration,
    /// Bytes of a full segment.
    pub segment_bytes: f64,
    /// Connections times seconds.
    pub connection_secs: f64,
    /// Segments that were sent, wrong if again.
    pub sent: Counted,
    /// Segments that came, wrong if before one that had been sent earlier.
    pub received: Counted,
}

/// Segments with data in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// All of them.
    pub segments: f64,
    /// Those that tell of a loss.
    pub wrong: f64,
    /// Seconds with any such, summed over connections.
    pub wrong_secs: f64,
}

impl PathSeen {
    /// How often segments were lost on the way to the relay, as a part of all.
    #[must_use]
    pub fn loss_out(&self) -> f64 {
        self.loss(&self.sent)
    }

    /// How often segments were lost on the way back, as a part of all, as far as their order tells.
    #[must_use]
    pub fn loss_back(&self) -> f64 {
        self.loss(&self.received)
    }

    /// How many times what it carried the path could have carried, over as many connections: 1
    /// means no more than that. Infinite where nothing was lost, or nothing is known.
    #[must_use]
    pub fn headroom(&self) -> f64 {
        let of = |counted: &Counted| {
            let on_way = self.on_way(counted.segments);
            let most = segments_on_way(self.loss(counted), self.round_trip);
            if on_way > 0.0 { (most / on_way).max(1.0) } else { f64::INFINITY }
        };
        of(&self.sent).min(of(&self.received))
    }

    /// How often TCP had to slow down, as a part of the segments. It does so once in a round trip,
    /// however many are lost in it, and after one that is lost many come out of order: so seconds
    /// with any are counted, as if losses came independently of each other. No more can be lost
    /// than tell of it.
    fn loss(&self, counted: &Counted) -> f64 {
        if counted.wrong < MIN_LOSSES || self.connection_secs <= 0.0 {
            return 0.0;
        }
        let free = 1.0 - (counted.wrong_secs / self.connection_secs).min(1.0);
        let losses = (-free.ln() * self.connection_secs).min(counted.wrong);
        losses / counted.segments.max(losses)
    }

    /// Segments on the way on a connection that has carried `segments` in all.
    fn on_way(&self, segments: f64) -> f64 {
        if self.connection_secs > 0.0 {
            segments / self.connection_secs * self.round_trip.as_secs_f64()
        } else {
            0.0
        }
    }
}

/// Segments that a connection has on its way in the mean, when this part of them is lost: what
/// CUBIC keeps, which is never less than Reno. Infinite without losses.
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

    /// A path over 0.1 s on which each of 20 connections carries `segments` segments in 30 s each
    /// way; the first number of each pair is the segments that tell of losses, the second the
    /// seconds in which they do.
    fn path(segments: f64, out: (f64, f64), back: (f64, f64)) -> PathSeen {
        let counted = |(wrong, wrong_secs)| Counted { segments, wrong, wrong_secs };
        PathSeen {
            round_trip: Duration::from_millis(100),
            segment_bytes: 1448.0,
            connection_secs: 600.0,
            sent: counted(out),
            received: counted(back),
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
        // 600 connection seconds of 10 segments on the way in 0.1 s.
        let (segments, none) = (60_000.0, (0.0, 0.0));
        assert_eq!(path(segments, none, none).headroom(), f64::INFINITY);
        assert_eq!(path(segments, (4.0, 4.0), none).headroom(), f64::INFINITY, "four say nothing");
        // 600 that come independently are in 1 - 1/e of the seconds: 1 %.
        let in_secs = 600.0 * (1.0 - (-1.0_f64).exp());
        let lossy = path(segments, (600.0, in_secs), none);
        assert!((lossy.loss_out() - 0.01).abs() < 1e-9 && lossy.loss_back() == 0.0);
        assert!((lossy.headroom() - 1.22).abs() < 0.01, "{}", lossy.headroom());
        // The same on the way back, where nine or ten come out of order after each of them.
        let lossy = path(segments, none, (6_000.0, in_secs));
        assert!((lossy.loss_back() - 0.01).abs() < 1e-9, "{}", lossy.loss_back());
        assert!(lossy.headroom() < 1.5);
        // As many at once, as from a buffer that was full, are one.
        let burst = path(segments, (600.0, 20.0), none);
        assert!(burst.headroom() > 5.0, "{}", burst.headroom());
        // The headroom is never below 1, also if something was lost in each second.
        assert_eq!(path(segments, (20_000.0, 600.0), none).headroom(), 1.0);
        assert!((path(segments, (600.0, 600.0), none).loss_out() - 0.01).abs() < 1e-9);
        assert_eq!(PathSeen::default().headroom(), f64::INFINITY);
    }
}
