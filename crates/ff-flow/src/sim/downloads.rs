//! Benchmark clients: each downloads a file every minute on a new circuit and records the times.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;

use super::config::{CELL, SIZES};
use super::outcome::Download;

/// Seconds between the starts of a client's downloads: 40 in Shadow's 2,400 s.
const EVERY_SECS: f64 = 60.0;

/// Seconds after which a download of this size is given up.
pub(super) fn limit_secs(size: u32) -> f64 {
    SIZES.iter().find(|(one, ..)| *one == size).map_or(0.0, |(.., limit)| *limit)
}

#[derive(Debug)]
pub(super) struct Clients {
    /// When each client starts its next download, as bits with the same order, earliest on top.
    starts: BinaryHeap<Reverse<u64>>,
    /// All downloads, each with the time at which its first byte can arrive.
    downloads: Vec<(Download, f64)>,
    /// Random numbers for clients' choices.
    rng: ChaCha12Rng,
}

impl Clients {
    /// `count` clients that start within the first minute.
    pub(super) fn new(count: u32, mut rng: ChaCha12Rng) -> Self {
        let start = |_| Reverse(f64::to_bits(rng.random_range(0.0..EVERY_SECS)));
        let starts = (0..count).map(start).collect();
        Self { starts, downloads: Vec::new(), rng }
    }

    /// The size and start of the next download before the time `end`, if there is one.
    pub(super) fn next_download(&mut self, end: f64) -> Option<(u32, f64)> {
        let Reverse(soonest) = *self.starts.peek()?;
        let start = f64::from_bits(soonest);
        if start >= end {
            return None;
        }
        self.starts.pop();
        self.starts.push(Reverse((start + EVERY_SECS).to_bits()));
        Some((self.draw_size(), start))
    }

    fn draw_size(&mut self) -> u32 {
        let mut point = self.rng.random_range(0..SIZES.iter().map(|(_, often, _)| often).sum());
        for (size, often, _) in SIZES {
            if point < often {
                return size;
            }
            point -= often;
        }
        SIZES[0].0
    }

    /// Adds a download that starts, is requested, and gets its first byte at these times.
    pub(super) fn add(&mut self, size: u32, [start_secs, asked, ready]: [f64; 3]) -> usize {
        let asked_secs = asked - start_secs;
        let download = Download { size, start_secs, asked_secs, first_secs: None, last_secs: None };
        self.downloads.push((download, ready));
        self.downloads.len() - 1
    }

    /// The random numbers for clients' choices.
    pub(super) fn rng(&mut self) -> &mut ChaCha12Rng {
        &mut self.rng
    }

    /// The size of a download in bytes.
    pub(super) fn size(&self, download: usize) -> f64 {
        f64::from(self.downloads[download].0.size)
    }

    /// The time at which a download's first byte can arrive, in seconds.
    pub(super) fn ready(&self, download: usize) -> f64 {
        self.downloads[download].1
    }

    /// Records the bytes of a download in a tick; returns whether it has ended.
    pub(super) fn serve(
        &mut self,
        download: usize,
        now: f64,
        rate: f64,
        left: f64,
        tick_secs: f64,
    ) -> bool {
        let (one, ready) = &mut self.downloads[download];
        let since_asked = |time: f64| time - one.start_secs - one.asked_secs;
        let begin = since_asked(now.max(*ready));
        if one.first_secs.is_none() && rate * tick_secs >= CELL.0 {
            one.first_secs = Some(begin + CELL.0 / rate);
        }
        let limit = limit_secs(one.size);
        if left <= 0.0 {
            let end = since_asked(now + tick_secs);
            let end = end.max(one.first_secs.unwrap_or(end));
            one.last_secs = Some(end).filter(|end| end + one.asked_secs <= limit);
            return true;
        }
        now - one.start_secs >= limit
    }

    /// The downloads that started within these times and could have ended.
    pub(super) fn finish(self, from: f64, to: f64) -> Vec<Download> {
        let counts = |one: &Download| {
            one.start_secs >= from
                && (one.last_secs.is_some() || one.start_secs + limit_secs(one.size) <= to)
        };
        self.downloads.into_iter().map(|(one, _)| one).filter(counts).collect()
    }
}
