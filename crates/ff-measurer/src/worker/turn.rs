//! A worker's turn: the sockets that it reads and writes, and the cells that the rate allows each.

use ff_proto::cell::CELL_LEN;
use ff_proto::rate::TokenBucket;
use ff_proto::units::{Cells, MonoTime};

use super::{Stage, Worker};
use crate::fault::Fault;
use crate::window::Pace;

/// The largest number of reads and of writes of a socket in the turn after a nap: at most 8 MB are
/// read, the largest queue of all links.
const CALLS_AFTER_NAP: u8 = 64;

impl Worker {
    /// Serves the links whose turn has come; all of them at the end of a second, because bytes that
    /// have arrived before must count in it. Returns whether there is more to do at once.
    pub(super) fn turn_after_nap(&mut self, pace: Pace, began: MonoTime) -> bool {
        let mut busy = false;
        if !self.is_second_over(began) {
            busy = self.turn(began, pace.share_of(self.sockets.len()), CALLS_AFTER_NAP);
        }
        // Also when the second has ended meanwhile.
        let now = self.now();
        if self.is_second_over(now) {
            busy |= self.turn(now, self.sockets.len(), CALLS_AFTER_NAP);
        }
        busy
    }

    /// Reads each of the next sockets at most `calls` times, and writes likewise to those with
    /// room. Returns whether there is more to do at once.
    pub(super) fn turn(&mut self, now: MonoTime, sockets: usize, calls: u8) -> bool {
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(now);
        }
        let count = self.sockets.len();
        let mut busy = false;
        for _ in 0..sockets {
            self.reader = (self.reader + 1) % count;
            busy |= self.serve(self.reader, |worker, index| worker.read(index, now, calls));
        }
        self.counters.note_silence(now);
        self.scratch.path.settle(now);
        // After the one that wrote last, so that all have their turn even if not all may write.
        let first = self.writer;
        for step in 1..=count {
            let index = (first + step) % count;
            busy |= self.serve(index, |worker, index| worker.write(index, now, calls));
        }
        busy
    }

    /// Reads or writes one socket, and gives it up if that fails.
    fn serve(
        &mut self,
        index: usize,
        what: impl FnOnce(&mut Self, usize) -> Result<bool, Fault>,
    ) -> bool {
        what(self, index).unwrap_or_else(|fault| {
            self.give_up(index, fault);
            false
        })
    }

    /// Reads one socket at most `calls` times. Returns whether there is more.
    fn read(&mut self, index: usize, now: MonoTime, calls: u8) -> Result<bool, Fault> {
        let Some(socket) = &mut self.sockets[index] else { return Ok(false) };
        socket.look(&mut self.scratch.path, &mut self.counters, now)?;
        let mut more = socket.may_read();
        for _ in 0..calls {
            more = more && socket.read(&mut self.scratch, &mut self.counters, now)?;
        }
        Ok(more)
    }

    /// Writes one socket at most `calls` times. Returns whether there is more.
    fn write(&mut self, index: usize, now: MonoTime, calls: u8) -> Result<bool, Fault> {
        let sending =
            matches!(self.stage, Stage::Running { start, end } if start <= now && now < end);
        let Some(socket) = &mut self.sockets[index] else { return Ok(false) };
        for _ in 0..calls {
            if !socket.writable {
                return Ok(false);
            }
            let allowed = match &self.bucket {
                _ if !sending => 0,
                None => u64::MAX,
                Some(bucket) => allowed_cells(bucket, self.scratch.cells_per_record()),
            };
            let sent = socket.write(&mut self.scratch, allowed, now)?;
            if sent == 0 {
                return Ok(false);
            }
            self.writer = index;
            self.counters.now.sent_cells += sent;
            if let Some(bucket) = &mut self.bucket {
                bucket.take(Cells(sent).bytes());
            }
        }
        Ok(socket.writable)
    }
}

/// The number of cells that the bucket allows: whole records, so that the rate does not change
/// their size.
fn allowed_cells(bucket: &TokenBucket, cells_per_record: usize) -> u64 {
    let bytes = u64::try_from(bucket.available_bytes()).unwrap_or(0);
    let per_record = cells_per_record as u64;
    bytes / CELL_LEN as u64 / per_record * per_record
}
