//! Whether the network path was the limit of a measurement (PROTOCOL.md §9).

use std::ops::Range;
use std::time::Duration;

use ff_measurer::{MAX_QUEUE_CELLS, QUEUE, TcpSecond};
use ff_proto::aggregate::{self, Counted, DELAYED_ACK, PathSeen, SecondSample};
use ff_proto::units::{BytesPerSec, Cells};

use super::{Echoed, Samples};

/// The longest round trip that measurers' windows fill, and how much longer it may become
/// meanwhile, in microseconds.
const ROUND_TRIP_MICROS: u64 = 500_000;
const LONGER_MICROS: u64 = 500_000;
/// The longest time without echoes over a path that is not cut, in microseconds: less than the
/// queue in front of a relay lasts, and more than tor's token buckets need, which are refilled
/// every 0.1 s.
const MAX_SILENCE_MICROS: u64 = 250_000;
/// How much greater the estimate may be without the seconds that the way has limited.
const MAX_RAISE: f64 = 1.03;

impl Echoed {
    /// Whether its path was longer in a second than windows fill, or nothing arrived.
    fn is_broken(&self, second: usize) -> bool {
        is_cut_off(&self.tcp[second]) || is_too_long(&self.tcp[second])
    }

    /// Whether its path was too long for windows, or cut, in any of these seconds but one: that no
    /// more links mend.
    fn is_too_far(&self, counted: Range<usize>) -> bool {
        counted.filter(|&second| self.is_broken(second)).count() > 1
    }

    /// Bytes of the queue that the measurer keeps in front of a relay that were there at the end of
    /// a second, and the size of that queue. By Little's law, what is on the network is the rate
    /// times TCP's round trip; of the other cells in flight, those that are not in the measurer's
    /// own host are in the relay. More does not count than a window leaves for the queue while the
    /// round trip is longer than the shortest: cells behind a lost segment are neither on the
    /// network nor in the relay. The delay that an acknowledgement may have is not part of the
    /// queue's size. Both are 0 if the kernel gives no data, if nothing came back, or if the queue
    /// is shorter than that delay.
    fn queue(&self, second: usize) -> (f64, f64) {
        let tcp = &self.tcp[second];
        let bytes = |cells| as_float(Cells(cells).bytes());
        let rate = bytes(self.claimed[second].unwrap_or(0));
        let in_flight = bytes(self.on_way_before(second + 1));
        let on_network = rate * as_float(tcp.round_trip_now_micros) / 1e6;
        let queue = rate * QUEUE.as_secs_f64();
        // Each worker has one of at most this size; their number is not known here.
        let sure = queue.min(bytes(MAX_QUEUE_CELLS)) - rate * DELAYED_ACK.as_secs_f64();
        if tcp.links == 0 || sure <= 0.0 {
            return (0.0, 0.0);
        }
        let longer = tcp.round_trip_now_micros.saturating_sub(tcp.round_trip_micros);
        let left = queue - rate * as_float(longer) / 1e6;
        ((in_flight - on_network).min(left) - as_float(tcp.unsent_bytes), sure)
    }
}

impl Samples {
    /// The measured path of each measurer's links, and whether it was too long; `None` for a host
    /// without TCP's data.
    pub(crate) fn paths(&self) -> Vec<Option<(PathSeen, bool)>> {
        let counted = self.counted();
        let of = |measurer: &Echoed| {
            let seen = path_seen(&measurer.tcp[counted.clone()])?;
            Some((seen, measurer.is_too_far(counted.clone())))
        };
        self.echoed.iter().map(of).collect()
    }

    /// Whether a measurer's path was too long for windows in most counted seconds, by TCP.
    pub(crate) fn is_too_long(&self) -> bool {
        let counted = self.counted();
        let in_most = |measurer: &Echoed| {
            let these = counted.clone().filter(|&second| is_too_long(&measurer.tcp[second]));
            these.count() > counted.len() / 2
        };
        self.echoed.iter().any(in_most)
    }

    /// Whether the paths of a team that was allotted so much have limited what came back: they
    /// could not have carried `headroom` times as much, or were the limit for some seconds without
    /// which the estimate would be greater.
    pub(crate) fn is_path_limited(&self, allotted: &[Option<BytesPerSec>], headroom: f64) -> bool {
        self.has_hardly_room(allotted, headroom)
            || self.is_lowered_by_held_up_seconds()
            || self.is_still_growing()
    }

    /// Whether what came back over a long path was still growing.
    fn is_still_growing(&self) -> bool {
        self.is_far && self.whole().is_ok_and(|seconds| aggregate::is_growing(&seconds, self.ratio))
    }

    /// Whether the team's paths carried what they could in a second: the queue was not in the relay,
    /// or one of them was broken.
    pub(super) fn is_held_up(&self, second: usize) -> bool {
        self.waits_elsewhere(second) || self.echoed.iter().any(|one| one.is_broken(second))
    }

    /// Whether less than half of the team's queue was in the relay at the end of a second. During
    /// start-up there is no queue yet. A team has one queue, because a relay that is not the limit
    /// leaves none of it.
    fn waits_elsewhere(&self, second: usize) -> bool {
        let queues = self.echoed.iter().map(|measurer| measurer.queue(second));
        let (in_relay, queue) =
            queues.fold((0.0, 0.0), |(sums, all), (one, whole)| (sums + one, all + whole));
        !self.seconds[second].is_starting && in_relay < queue / 2.0
    }

    /// Whether the estimate would be greater without the seconds in which paths carried what they
    /// could.
    fn is_lowered_by_held_up_seconds(&self) -> bool {
        let Ok(seconds) = self.whole() else { return false };
        let free: Vec<_> = self
            .counted()
            .zip(&seconds)
            .filter(|(at, _)| !self.is_held_up(*at))
            .map(|(_, one)| *one)
            .collect();
        let of = |seconds: &[SecondSample]| {
            self.estimator.estimate(seconds, self.ratio).map_or(0.0, |rate| as_float(rate.get()))
        };
        free.is_empty() || of(&free) > MAX_RAISE * of(&seconds)
    }

    /// Whether the paths of a team that was allotted so much could not have carried `least` times
    /// what came back.
    fn has_hardly_room(&self, allotted: &[Option<BytesPerSec>], least: f64) -> bool {
        let counted = self.counted();
        let mostly = |is: &dyn Fn(usize) -> bool| {
            counted.clone().filter(|&second| is(second)).count() * 2 >= counted.len()
        };
        let waits_elsewhere = mostly(&|second| self.waits_elsewhere(second));
        let (mut carried, mut carriable) = (0.0, 0.0);
        for ((measurer, path), allotted) in self.echoed.iter().zip(self.paths()).zip(allotted) {
            let rate = mean_rate(&measurer.claimed[counted.clone()]);
            let headroom = match path {
                Some(_) if waits_elsewhere || mostly(&|second| measurer.is_broken(second)) => 1.0,
                Some((path, _)) => path.headroom(),
                None => f64::INFINITY,
            };
            let by_path = if rate > 0.0 { rate * headroom } else { f64::INFINITY };
            let allotted = allotted.map_or(f64::INFINITY, |rate| as_float(rate.get()));
            carried += rate;
            carriable += by_path.min(allotted);
        }
        carriable < least * carried
    }
}

/// Whether segments were lost, and nothing arrived in the second, or for so long that the relay had
/// no more of the queue.
fn is_cut_off(tcp: &TcpSecond) -> bool {
    let is_silent = tcp.acked_bytes == 0 || tcp.silence_micros > MAX_SILENCE_MICROS;
    tcp.resent_segments > 0 && is_silent
}

/// Whether a path is longer than a window fills.
fn is_too_long(tcp: &TcpSecond) -> bool {
    let longer = tcp.round_trip_now_micros.saturating_sub(tcp.round_trip_micros);
    tcp.round_trip_micros > ROUND_TRIP_MICROS || longer > LONGER_MICROS
}

/// The path that links have shown in these seconds.
fn path_seen(seconds: &[TcpSecond]) -> Option<PathSeen> {
    let known = || seconds.iter().filter(|second| second.links > 0);
    let sum = |number: fn(&TcpSecond) -> u64| as_float(known().map(number).sum());
    let smoothed = sum(|one| one.round_trip_now_micros) / as_float(known().count() as u64).max(1.0);
    Some(PathSeen {
        round_trip: Duration::from_micros(known().map(|one| one.round_trip_micros).min()?),
        smoothed: Duration::from_secs_f64(smoothed / 1e6),
        segment_bytes: as_float(known().map(|one| one.segment_bytes).max()?),
        connection_secs: sum(|one| one.links.into()),
        sent: Counted {
            segments: sum(|one| one.sent_segments),
            wrong: sum(|one| one.resent_segments),
            wrong_secs: sum(|one| one.resending_links.into()),
        },
        received: Counted {
            segments: sum(|one| one.received_segments),
            wrong: sum(|one| one.disordered_segments),
            wrong_secs: sum(|one| one.disordered_links.into()),
        },
    })
}

/// The mean of these seconds, in bytes a second.
fn mean_rate(cells: &[Option<u64>]) -> f64 {
    let sum = cells.iter().flatten().fold(0, |sum: u64, &cells| sum.saturating_add(cells));
    as_float(Cells(sum).bytes()) / as_float(cells.len().max(1) as u64)
}

/// A number as a float.
#[expect(clippy::cast_precision_loss, reason = "bytes of a measurement are below 2^53")]
fn as_float(number: u64) -> f64 {
    number as f64
}
