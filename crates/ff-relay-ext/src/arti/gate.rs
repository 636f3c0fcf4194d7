//! A link's part in the limit where clients enter: shows who is at its other end, and holds back
//! cells beyond its limit.
//!
//! ```text
//!   peer ─▶ Gate::greet ─▶ Extension::greet: which limit the link has
//!   tor-proto ─▶ Gate::poll_admit ─┬─ within the limit ─────────────▶ TLS
//!                                  ├─ beyond ─▶ Held ─ drain ───────▶ TLS, at the limit's rate
//!                                  └─ Held is full: its next cells ─▶ TLS, at once
//! ```
//!
//! tor-proto never waits for a link's limit when it writes. If it did, cells of the client's
//! circuits would fill their queues of 128 cells, and then the link to the next relay, which other
//! clients share, would stand still until there is room (`deliver_relay` in tor-proto 0.47). So what
//! exceeds both the limit and [`Held`] goes out at once. Reading does wait: that holds up only the
//! link itself, whose circuits have queues for ten million cells.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ff_proto::cell::{CMD_DESTROY, peek_cell};
use ff_proto::session::target::LinkId;
use futures::io::AsyncWrite;

use super::extension::Extension;
use super::greeting::Greeting;
use super::held::{Held, LEAST_BYTES};
use super::limit::{Direction, Traffic};

/// The most bytes that get a turn at once: as a TLS record has.
const MAX_TURN_BYTES: usize = 16 * 1024;
/// The bytes that go out beyond the limit at once: each time costs a TLS record.
const LET_OUT_BYTES: usize = LEAST_BYTES;

/// A link, and what moves on it now.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    /// The relay's extension.
    pub(super) extension: &'a Extension,
    /// The link.
    pub(super) link: LinkId,
    /// The kind of its traffic.
    pub(super) traffic: Traffic,
}

impl At<'_> {
    /// The bytes that the link's own limit lets it move, at most `wanted`. At 0 its task will be
    /// woken.
    pub(super) fn room(self, direction: Direction, wanted: usize, cx: &Context<'_>) -> usize {
        let is_limited = matches!(self.traffic, Traffic::Background | Traffic::Fresh);
        if is_limited && self.extension.limits_links() {
            self.extension.room(self.link, direction, wanted, cx)
        } else {
            wanted
        }
    }

    /// Lets others have the rest of its turn, because its own limit has no room for it.
    pub(super) fn give_back(self, direction: Direction) {
        self.extension.moved(self.link, direction, self.traffic, 0);
    }

    /// The bytes that it may send by the relay's limits.
    fn claim(self, wanted: usize, cx: &Context<'_>) -> usize {
        self.extension.claim(self.link, Direction::Sent, self.traffic, wanted, cx)
    }
}

/// What becomes of the bytes that tor-proto writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// This number may be written to TLS now, once the relay's limits allow it.
    Direct(usize),
    /// This number has been taken.
    Taken(usize),
}

/// A link's greeting, and its cells that wait.
#[derive(Debug)]
pub(super) struct Gate {
    /// The first cells of the other end; `None` once they have been judged.
    greeting: Option<Box<Greeting>>,
    /// The cells that wait; `None` without any.
    held: Option<Box<Held>>,
    /// Whether TLS has bytes of such cells that it may not have given to the socket.
    needs_flush: bool,
    /// Whether the link waits for a turn, by the relay's limits, to let cells out beyond its own.
    lets_out: bool,
}

impl Gate {
    /// The gate of a link whose other end greets like this.
    pub(super) fn new(greeting: Greeting) -> Self {
        Self { greeting: Some(Box::new(greeting)), held: None, needs_flush: false, lets_out: false }
    }

    /// Takes bytes that the peer has sent.
    pub(super) fn greet(&mut self, bytes: &[u8], at: At<'_>) {
        if let Some(greeting) = &mut self.greeting
            && let Some(shown) = greeting.take(bytes)
        {
            self.greeting = None;
            at.extension.greet(at.link, shown);
        }
    }

    /// Whether cells wait.
    pub(super) const fn holds_cells(&self) -> bool {
        self.held.is_some()
    }

    /// Whether [`drain`](Self::drain) has something to do.
    pub(super) const fn is_busy(&self) -> bool {
        self.held.is_some() || self.needs_flush
    }

    /// Drops the waiting cells of a circuit, because the peer has destroyed it.
    pub(super) fn drop_circuit(&mut self, circuit: u32) {
        if let Some(held) = &mut self.held {
            held.drop_circuit(circuit);
        }
    }

    /// Drops the cells that wait, except the rest of what is being written.
    pub(super) fn drop_waiting(&mut self) {
        if let Some(held) = &mut self.held {
            held.drop_waiting();
        }
    }

    /// Writes the rest of cells that have had their turn: before that, nothing else may be written.
    pub(super) fn poll_rest<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(held) = &mut self.held else { return Poll::Ready(Ok(())) };
        while !held.unwritten().is_empty() {
            match ready!(Pin::new(&mut *inner).poll_write(cx, held.unwritten()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => held.on_written(len),
            }
            self.needs_flush = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the cells that wait, as far as the limits allow it. If some must wait on, the link's
    /// task will be woken.
    pub(super) fn drain<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        at: At<'_>,
        cx: &mut Context<'_>,
    ) -> io::Result<()> {
        let _ = self.poll_turns(inner, at, cx)?;
        // A TLS record must not stay here until the next turn.
        if self.needs_flush && Pin::new(inner).poll_flush(cx)?.is_ready() {
            self.needs_flush = false;
        }
        Ok(())
    }

    /// Gives cells their turns and writes them.
    fn poll_turns<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        at: At<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_rest(inner, cx))?;
            let Some(held) = self.held.as_mut().filter(|held| held.bytes() > 0) else {
                self.held = None;
                return Poll::Ready(Ok(()));
            };
            let room = at.room(Direction::Sent, held.bytes().min(MAX_TURN_BYTES), cx);
            if room == 0 {
                if !self.lets_out {
                    at.give_back(Direction::Sent);
                }
                return Poll::Pending;
            }
            let room = at.claim(room, cx);
            if room == 0 {
                return Poll::Pending;
            }
            let taken = held.take_turns(room);
            at.extension.moved(at.link, Direction::Sent, at.traffic, taken);
        }
    }

    /// Decides about bytes that begin with a cell, as tor-proto's do: it writes whole cells.
    pub(super) fn poll_admit<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        at: At<'_>,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Admitted>> {
        if self.held.is_none() || self.poll_turns(inner, at, cx)?.is_ready() {
            let room = at.room(Direction::Sent, bytes.len(), cx);
            if room > 0 {
                return Poll::Ready(Ok(Admitted::Direct(room)));
            }
        }
        if peek_cell(bytes).is_none() {
            // tor-proto writes whole cells only; nothing may overtake the waiting ones.
            while self.held.as_ref().is_some_and(|held| held.bytes() > 0) {
                ready!(self.poll_let_out(inner, at, cx))?;
            }
            ready!(self.poll_rest(inner, cx))?;
            return Poll::Ready(Ok(Admitted::Direct(bytes.len())));
        }
        match self.hold(inner, at, bytes, cx)? {
            0 => Poll::Pending,
            taken => Poll::Ready(Ok(Admitted::Taken(taken))),
        }
    }

    /// Takes cells. If they find no room, it writes waiting cells beyond the limit. Returns the
    /// number of bytes taken; 0 if none fits yet.
    fn hold<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        at: At<'_>,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> io::Result<usize> {
        let mut taken = 0;
        while let Some(cell) = peek_cell(&bytes[taken..]) {
            let held = self.held.get_or_insert_with(|| Box::new(at.extension.new_held()));
            if cell.command == CMD_DESTROY {
                // It makes room for itself.
                held.drop_circuit(cell.circ_id);
            }
            if !held.has_room(cell.wire_len) && self.poll_let_out(inner, at, cx)?.is_pending() {
                break;
            }
            let held = self.held.get_or_insert_with(|| Box::new(at.extension.new_held()));
            held.push(&cell, &bytes[taken..]);
            taken += cell.wire_len;
        }
        Ok(taken)
    }

    /// Writes some of the waiting cells, although the link has no room for them.
    fn poll_let_out<T: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut T,
        at: At<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_rest(inner, cx))?;
        let Some(held) = self.held.as_mut().filter(|held| held.bytes() > 0) else {
            return Poll::Ready(Ok(()));
        };
        let room = at.claim(LET_OUT_BYTES, cx);
        self.lets_out = room == 0;
        if room == 0 {
            return Poll::Pending;
        }
        let taken = held.take_turns(room);
        at.extension.let_out(at.link, at.traffic, taken);
        self.poll_rest(inner, cx)
    }
}

#[cfg(test)]
pub(super) mod tests;
