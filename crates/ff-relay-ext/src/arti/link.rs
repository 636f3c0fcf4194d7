//! One accepted link: takes the measurement cells out of it and leads them through the relay.
//!
//! ```text
//!              ordinary link                                 measurement link
//!   tor-proto ◀─ all other cells ─┐               ┌─ read ─▶ buffer: decrypt each cell, make it one to forward ─▶ tor-proto
//!                                 ├─ TLS stream ─▶│                                                                  │
//!   Extension ◀─ MEASUREMENT ─────┘               └─ write ◀──────────────────────────────────────── Echoes ◀────────┘
//! ```
//!
//! tor-proto's reactor polls this stream and knows nothing of it. A link starts as an ordinary one.
//! When its MEAS_CREATE is granted it becomes a measurement link: tor-proto then gets the cells of
//! a circuit that this link has opened (`through.rs`), and no others; what it sends on the link is
//! that circuit's.
//!
//! ```text
//!             Open                      Over
//!   Ordinary ──────▶ Measuring ─────────────────────▶ Ending ── reads on and drops, so that
//!      │                 │ extension failed              │      nothing unread resets the link
//!      │ Close           │ or Close                      │ Close
//!      └────────────────▶└─────────▶ Closing ◀───────────┘
//!                                       │ the last words are out, or Abandon
//!                                       ▼
//!                                 end of the stream
//! ```
//!
//! An ordinary link that is the coordinator's has no circuits but the probe's: what others carry
//! would escape the share of clients.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use ff_proto::auth::{EXPORTER_LABEL, EXPORTER_LEN, Exporter};
use ff_proto::cell::{
    Boundaries, CELL_LEN, CMD_CREATE_FAST, CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING,
    CMD_VPADDING, Cell, HEADER_LEN, peek_cell,
};
use ff_proto::circuit::EchoCircuit;
use ff_proto::session::target::LinkPart;
use ff_proto::units::Cells;
use futures::io::{AsyncRead, AsyncWrite};
use tor_rtcompat::CertifiedConn;
use tracing::warn;
use zeroize::Zeroizing;

use super::extension::{Extension, LinkHandle, LinkTask};
use super::inner_link::as_its_inner_link;
use super::limit::{Direction, Traffic};
use super::outbox::Outbox;
use super::through::Through;

/// Bytes read from TLS at once, and what a measurement link holds at most: 31 cells, that is one
/// full record of tor's own peers four times over.
const BUFFER_LEN: usize = 31 * CELL_LEN;
/// Batches echoed in one poll before other tasks get their turn: clients' cells pass through
/// several tasks of Arti's, and at each of them wait for every measurement link once.
const BATCHES_PER_POLL: usize = 2;
/// Bytes in each direction for which a link is new: a handshake with certificates, and the first
/// messages.
const FRESH_BYTES: usize = 16 * 1024;
/// tor-spec: CREATE.
const CMD_CREATE: u8 = 1;
/// tor-spec: RELAY.
const CMD_RELAY: u8 = 3;
/// tor-spec: RELAY_EARLY.
const CMD_RELAY_EARLY: u8 = 9;
/// tor-spec: CREATE2.
const CMD_CREATE2: u8 = 10;

/// What becomes of the link's bytes; the module has a drawing.
#[derive(Debug)]
enum Mode {
    /// tor-proto gets them.
    Ordinary,
    /// They go through the relay, and back.
    Measuring(Box<Through>),
    /// They are dropped.
    Ending,
    /// Pending bytes go out, then the link ends.
    Closing,
}

/// A TLS connection with the measurement extension on it.
#[derive(Debug)]
pub struct LinkStream<T> {
    /// The TLS connection.
    inner: T,
    /// Shared with the relay's other links.
    extension: Arc<Extension>,
    /// What others reach this link by.
    handle: Arc<LinkHandle>,
    /// Binds signatures to this TLS session; `None` when TLS cannot tell.
    exporter: Option<Zeroizing<Exporter>>,
    /// What becomes of the bytes.
    mode: Mode,
    /// Whether a MEASUREMENT cell has come, so that this may be the coordinator's link.
    has_asked: bool,
    /// Whether tor-proto gets nothing until the last MEASUREMENT cell is answered.
    is_held: bool,
    /// Whether the coordinator's probe has come.
    is_probed: bool,
    /// Whether tor-proto has been asked for circuits, other than by the probe.
    has_circuits: bool,
    /// Bytes, received and sent, for which this still is a new link.
    fresh: [usize; 2],
    /// Bytes from the peer that have not been passed on.
    buffer: Box<[u8]>,
    /// Where they begin and end.
    filled: std::ops::Range<usize>,
    /// How many of them, from the front, are cells that the relay is to forward.
    inward: usize,
    /// Bytes that were read to go through the relay and are not out again.
    inside: usize,
    /// Cells that have come out of the relay, to be sent.
    outward: Vec<u8>,
    /// Bytes of them that have been sent.
    sent: usize,
    /// Cell boundaries of what tor-proto was given.
    passed_in: Boundaries,
    /// Cell boundaries of what tor-proto has sent.
    passed_out: Boundaries,
    /// Control cells to send.
    outbox: Outbox,
    /// Whether TLS holds bytes of ours that it has not given to the socket.
    needs_flush: bool,
    /// Whether the last bytes are not worth waiting for.
    is_abandoned: bool,
}

impl<T> Drop for LinkStream<T> {
    fn drop(&mut self) {
        self.extension.came_out(self.inside);
        self.extension.close_link(self.handle.id);
    }
}

impl<T: CertifiedConn> LinkStream<T> {
    /// Puts the extension on a freshly accepted connection.
    pub fn new(inner: T, extension: Arc<Extension>) -> Self {
        let exporter = inner
            .export_keying_material(EXPORTER_LEN, EXPORTER_LABEL, None)
            .ok()
            .and_then(|bytes| Some(Zeroizing::new(Exporter::try_from(bytes).ok()?)));
        Self {
            inner,
            handle: extension.open_link(),
            extension,
            exporter,
            mode: Mode::Ordinary,
            has_asked: false,
            is_held: false,
            is_probed: false,
            has_circuits: false,
            fresh: [FRESH_BYTES; 2],
            buffer: vec![0; BUFFER_LEN].into_boxed_slice(),
            filled: 0..0,
            inward: 0,
            inside: 0,
            outward: Vec::new(),
            sent: 0,
            passed_in: Boundaries::default(),
            passed_out: Boundaries::default(),
            outbox: Outbox::default(),
            needs_flush: false,
            is_abandoned: false,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> LinkStream<T> {
    /// Whether the measurement that is granted or running was asked for here.
    fn is_coordinators(&self) -> bool {
        self.has_asked && self.extension.part_of(self.handle.id) == LinkPart::Coordinator
    }

    /// Which limits the link's own bytes are under.
    fn traffic(&self, direction: Direction) -> Traffic {
        match self.mode {
            Mode::Measuring(_) => Traffic::Measurement,
            Mode::Ending | Mode::Closing => Traffic::Control,
            Mode::Ordinary if self.is_coordinators() => Traffic::Control,
            Mode::Ordinary if self.fresh[direction as usize] > 0 => Traffic::Fresh,
            Mode::Ordinary => Traffic::Background,
        }
    }

    /// Notes what has moved after a claim.
    fn on_moved(&mut self, direction: Direction, traffic: Traffic, bytes: usize) {
        let fresh = &mut self.fresh[direction as usize];
        *fresh = fresh.saturating_sub(bytes);
        self.extension.moved(self.handle.id, direction, traffic, bytes);
    }

    /// Does what the extension wants of this link.
    fn take_tasks(&mut self) {
        // In this order: once nothing holds the link, the answer is among its tasks.
        self.is_held =
            self.handle.awaits_answer.load(Ordering::Acquire) && !self.extension.has_failed();
        if matches!(self.mode, Mode::Measuring(_)) && self.extension.has_failed() {
            self.begin_closing();
        }
        let tasks = match self.handle.tasks.lock() {
            Ok(mut tasks) if !tasks.is_empty() => std::mem::take(&mut *tasks),
            _ => return,
        };
        for task in tasks {
            match task {
                LinkTask::Send(cell) => self.queue_control(&cell),
                LinkTask::Open(circuit) => self.open(*circuit),
                LinkTask::Over if matches!(self.mode, Mode::Closing) => {}
                LinkTask::Over => {
                    self.drop_echoes();
                    self.mode = Mode::Ending;
                }
                LinkTask::Close => self.begin_closing(),
                LinkTask::Abandon => self.is_abandoned = true,
            }
        }
    }

    /// Becomes a measurement link, which it can be once.
    fn open(&mut self, circuit: EchoCircuit) {
        if !matches!(self.mode, Mode::Ordinary) {
            return self.begin_closing();
        }
        match self.extension.lead_through(self.handle.id, circuit) {
            Some(through) => self.mode = Mode::Measuring(Box::new(through)),
            None => {
                warn!(
                    "FlashFlow: the relay's circuits do not carry measurements: no MeasuringProvider is in use"
                );
                self.begin_closing();
            }
        }
    }

    /// Has the link close as soon as the last words are out.
    fn begin_closing(&mut self) {
        if !matches!(self.mode, Mode::Closing) {
            self.drop_echoes();
            self.mode = Mode::Closing;
            self.extension.on_closing(self.handle.id);
        }
    }

    /// Drops the echoes that are not sent, but for the rest of one that is half sent, and those
    /// that are to go in.
    fn drop_echoes(&mut self) {
        self.outward.truncate(self.sent.next_multiple_of(CELL_LEN));
        self.filled.start += self.inward;
        self.inward = 0;
        self.all_out();
    }

    /// Notes that what was read to go through the relay is out again, or will not come out.
    fn all_out(&mut self) {
        match std::mem::take(&mut self.inside) {
            0 => {}
            bytes => self.extension.came_out(bytes),
        }
    }

    /// Queues a control cell. A peer that does not read its answers loses the link.
    fn queue_control(&mut self, cell: &Cell) {
        if !self.outbox.push(cell) {
            self.begin_closing();
        }
    }

    /// Whether a control cell may go out now: none of another cell is half sent.
    fn at_cell_boundary(&self) -> bool {
        self.passed_out.at_boundary() && self.sent.is_multiple_of(CELL_LEN)
    }

    /// Sends the pending control cells, as far as TLS takes them.
    fn poll_control(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.unwritten().is_empty() {
            let unwritten = self.outbox.unwritten();
            let len = ready!(Pin::new(&mut self.inner).poll_write(cx, unwritten))?;
            self.outbox.on_written(len);
            self.extension.on_control_sent(len);
            self.needs_flush = true;
        }
        self.poll_flush_ours(cx)
    }

    /// Makes TLS give our bytes to the socket.
    fn poll_flush_ours(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.needs_flush {
            ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from TLS after what is filled. A measurement link reads all that is available, because
    /// each piece wakes every task on its way through the relay. Returns 0 at the end of the
    /// stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let traffic = self.traffic(Direction::Received);
        let room = BUFFER_LEN - self.filled.end;
        let link = self.handle.id;
        let allowed = self.extension.claim(link, Direction::Received, traffic, room, cx);
        if allowed == 0 {
            return Poll::Pending;
        }
        let space = &mut self.buffer[self.filled.end..self.filled.end + allowed];
        let mut result = Pin::new(&mut self.inner).poll_read(cx, space);
        let mut len = bytes_moved(&result);
        if traffic == Traffic::Measurement {
            while (1..allowed).contains(&len) {
                let more = bytes_moved(&Pin::new(&mut self.inner).poll_read(cx, &mut space[len..]));
                if more == 0 {
                    break;
                }
                len += more;
                result = Poll::Ready(Ok(len));
            }
            self.inside += len;
        }
        self.filled.end += len;
        self.on_moved(Direction::Received, traffic, len);
        result
    }

    /// Passes bytes of ordinary cells on to tor-proto, and takes measurement cells out.
    ///
    /// Returns 0 when more bytes are needed first.
    fn pass_on(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut passed = 0;
        while passed < out.len() && matches!(self.mode, Mode::Ordinary) && !self.is_held {
            let bytes = &self.buffer[self.filled.clone()];
            if self.passed_in.at_boundary() && self.passed_in.versions_done() {
                if bytes.len() < HEADER_LEN {
                    break;
                }
                if bytes[4] == CMD_MEAS_ECHO {
                    return Err(no_place());
                }
                if bytes[4] == CMD_MEASUREMENT {
                    if self.take_control_cell() {
                        continue;
                    }
                    break;
                }
                self.admit(bytes[4])?;
            }
            let bytes = &self.buffer[self.filled.clone()];
            let len = self.passed_in.advance(&bytes[..bytes.len().min(out.len() - passed)]);
            if len == 0 {
                break;
            }
            out[passed..passed + len].copy_from_slice(&bytes[..len]);
            self.filled.start += len;
            passed += len;
        }
        Ok(passed)
    }

    /// Notes an ordinary cell that tor-proto is to get; one that has no place here is an error.
    fn admit(&mut self, command: u8) -> io::Result<()> {
        let is_create = matches!(command, CMD_CREATE | CMD_CREATE_FAST | CMD_CREATE2);
        if !is_create && !matches!(command, CMD_RELAY | CMD_RELAY_EARLY) {
            return Ok(());
        }
        if !self.is_coordinators() {
            self.has_circuits |= is_create;
            return Ok(());
        }
        let is_probe = command == CMD_CREATE_FAST && !self.is_probed;
        self.is_probed = true;
        if is_probe { Ok(()) } else { Err(no_place()) }
    }

    /// Hands the MEASUREMENT cell at the front to the extension; `false` when it is not all there.
    fn take_control_cell(&mut self) -> bool {
        let Some(cell) = peek_cell(&self.buffer[self.filled.clone()]) else { return false };
        match &self.exporter {
            Some(exporter) => {
                let (id, has_circuits) = (self.handle.id, self.has_circuits);
                self.extension.handle_control(id, cell, has_circuits, exporter);
            }
            None => self.begin_closing(),
        }
        self.filled.start += CELL_LEN;
        self.has_asked = true;
        self.take_tasks();
        true
    }

    /// Measures: sends what has come out of the relay, gives it what there is, then reads more.
    /// Nothing is read before all is out: the turns of measurement links bound what is inside,
    /// where clients' cells have to pass.
    ///
    /// Returns 0 bytes once the link has stopped measuring.
    fn poll_measuring(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        for _ in 0..BATCHES_PER_POLL {
            let sent = self.poll_send_echoes(cx)?;
            let Mode::Measuring(through) = &mut self.mode else { return Poll::Ready(Ok(0)) };
            let passed = through.say(out);
            if passed > 0 {
                return Poll::Ready(Ok(passed));
            }
            if self.inward == 0 {
                self.prepare()?;
            }
            if self.inward > 0 {
                return Poll::Ready(Ok(self.pass_inward(out)));
            }
            let Mode::Measuring(through) = &self.mode else { return Poll::Ready(Ok(0)) };
            if !through.is_idle() {
                return Poll::Pending;
            }
            self.all_out();
            ready!(sent);
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what has come out of the relay.
    fn poll_send_echoes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.sent < self.outward.len() {
                let echoes = &self.outward[self.sent..];
                let result = Pin::new(&mut self.inner).poll_write(cx, echoes);
                if result.is_pending() {
                    // Until the peer reads, others may have this link's turn.
                    self.all_out();
                    self.on_moved(Direction::Received, self.traffic(Direction::Received), 0);
                }
                self.sent += ready!(result)?;
                self.needs_flush = true;
            }
            self.outward.clear();
            self.sent = 0;
            if !self.take_echoes(cx) {
                return self.poll_flush_ours(cx);
            }
        }
    }

    /// Takes the cells that have come out of the relay; `false` when there are none.
    fn take_echoes(&mut self, cx: &Context<'_>) -> bool {
        let Mode::Measuring(through) = &mut self.mode else { return false };
        through.echoes.link.register(cx.waker());
        if !through.echoes.take(&mut self.outward) {
            warn!("FlashFlow: a measurement's circuit through the relay has ended");
            self.begin_closing();
            return false;
        }
        let cells = self.outward.len() / CELL_LEN;
        if cells == 0 {
            return false;
        }
        through.came_out(cells);
        let measurer = through.circuit().measurer();
        let is_counted = self.extension.on_echoed(measurer, Cells(cells as u64));
        if !is_counted {
            // The measurement has ended meanwhile, as this link's task is about to be told.
            self.outward.clear();
        }
        is_counted
    }

    /// Takes what tor-proto sends on a measurement link: the cells of its circuit through the
    /// relay.
    fn on_relay(&mut self, bytes: &[u8]) {
        let Mode::Measuring(through) = &mut self.mode else { return };
        if let Err(error) = through.on_relay(bytes) {
            warn!("FlashFlow: a measurement's circuit through the relay: {error}");
            self.begin_closing();
        }
        // There may be something to read now.
        self.handle.waker.wake();
    }

    /// Gives tor-proto bytes of the cells that it is to forward.
    fn pass_inward(&mut self, out: &mut [u8]) -> usize {
        let len = self.inward.min(out.len());
        let from = self.filled.start;
        out[..len].copy_from_slice(&self.buffer[from..from + len]);
        self.filled.start += len;
        self.inward -= len;
        len
    }

    /// Makes the whole cells in the buffer cells that the relay forwards, once the circuit is open.
    fn prepare(&mut self) -> io::Result<()> {
        while self.take_other_cell()? {}
        let Mode::Measuring(through) = &mut self.mode else { return Ok(()) };
        let circ_id = through.circuit().circ_id().to_be_bytes();
        let before = self.inward;
        let (cells, _) = self.buffer[self.filled.clone()].as_chunks_mut::<CELL_LEN>();
        if !through.is_open() {
            return Ok(());
        }
        for cell in cells {
            if cell[4] != CMD_MEAS_ECHO {
                break;
            }
            if cell[..4] != circ_id {
                return Err(no_place());
            }
            through.send_in(cell);
            self.inward += CELL_LEN;
        }
        through.echoes.go_in(self.inward - before);
        Ok(())
    }

    /// Takes a cell that is not an echo off the front of a measurement link's buffer.
    fn take_other_cell(&mut self) -> io::Result<bool> {
        let bytes = &self.buffer[self.filled.clone()];
        match bytes.get(4) {
            None | Some(&CMD_MEAS_ECHO) => Ok(false),
            Some(&(CMD_PADDING | CMD_VPADDING)) => {
                let cell_len = peek_cell(bytes).map(|cell| cell.wire_len);
                // It is nobody's traffic but the measurer's, which must not spend what is clients'.
                self.filled.start += cell_len.unwrap_or(0);
                // A peer never pads with more than the buffer holds, and such a cell would never be
                // whole.
                let fits = cell_len.is_some() || bytes.len() < BUFFER_LEN;
                if fits { Ok(cell_len.is_some()) } else { Err(no_place()) }
            }
            Some(&CMD_MEASUREMENT) => Ok(self.take_control_cell()),
            Some(_) => Err(no_place()),
        }
    }

    /// Reads what comes on a link whose measurement is over, and drops it.
    ///
    /// Only errors end it, otherwise it is `Pending`, also when the link is closing.
    fn poll_drop(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        for _ in 0..BATCHES_PER_POLL {
            if let Err(error) = ready!(self.poll_send_echoes(cx)) {
                return Poll::Ready(error);
            }
            match self.drop_cells() {
                Ok(()) if matches!(self.mode, Mode::Ending) => {}
                Ok(()) => return Poll::Pending,
                Err(error) => return Poll::Ready(error),
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Drops the whole cells in the buffer, but hands MEASUREMENT cells on.
    fn drop_cells(&mut self) -> io::Result<()> {
        while matches!(self.mode, Mode::Ending) {
            let bytes = &self.buffer[self.filled.clone()];
            if bytes.len() >= CELL_LEN && bytes[4] == CMD_MEAS_ECHO {
                self.filled.start += CELL_LEN;
            } else if !self.take_other_cell()? {
                break;
            }
        }
        Ok(())
    }

    /// Reads on an ordinary link.
    fn poll_ordinary(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let passed = self.pass_on(out)?;
            if passed > 0 || !matches!(self.mode, Mode::Ordinary) {
                return Poll::Ready(Ok(passed));
            }
            if self.at_cell_boundary() {
                let _ = self.poll_control(cx)?;
            }
            if self.is_held {
                return Poll::Pending;
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

/// Bytes that a read or write has moved.
fn bytes_moved(result: &Poll<io::Result<usize>>) -> usize {
    match result {
        Poll::Ready(Ok(len)) => *len,
        Poll::Ready(Err(_)) | Poll::Pending => 0,
    }
}

/// The error for a cell that has no place on its link.
fn no_place() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a cell that has no place on its link")
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for LinkStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.handle.waker.register(cx.waker());
        this.take_tasks();
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            if this.at_cell_boundary() {
                let _ = this.poll_control(cx)?;
            }
            // Nothing of ours may get into a control cell that is half sent.
            if this.outbox.is_mid_cell() && !matches!(this.mode, Mode::Ordinary) {
                return if this.is_abandoned { Poll::Ready(Ok(0)) } else { Poll::Pending };
            }
            let mode = std::mem::discriminant(&this.mode);
            let moved = match this.mode {
                Mode::Closing => {
                    if !this.is_abandoned {
                        // The rest of a cell that is half sent, then the last words, unless they
                        // would get into a cell of tor-proto's.
                        ready!(this.poll_send_echoes(cx))?;
                        if this.at_cell_boundary() {
                            ready!(this.poll_control(cx))?;
                        }
                    }
                    return Poll::Ready(Ok(0));
                }
                Mode::Measuring(_) => {
                    let passed = ready!(this.poll_measuring(cx, out))?;
                    if passed > 0 {
                        return Poll::Ready(Ok(passed));
                    }
                    continue;
                }
                Mode::Ending => this.poll_drop(cx),
                Mode::Ordinary => {
                    let passed = ready!(this.poll_ordinary(cx, out))?;
                    if passed > 0 || matches!(this.mode, Mode::Ordinary) {
                        return Poll::Ready(Ok(passed));
                    }
                    continue;
                }
            };
            match moved {
                Poll::Ready(error) => return Poll::Ready(Err(error)),
                Poll::Pending if mode != std::mem::discriminant(&this.mode) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LinkStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.passed_out.at_boundary() {
            if !matches!(this.mode, Mode::Ordinary) {
                this.on_relay(bytes);
                return Poll::Ready(Ok(bytes.len()));
            }
            ready!(this.poll_control(cx))?;
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let bytes = if matches!(this.mode, Mode::Ordinary) {
            bytes
        } else {
            // The rest of a cell that is half sent, and nothing after it.
            &bytes[..this.passed_out.clone().advance(bytes)]
        };
        let traffic = this.traffic(Direction::Sent);
        let (link, wanted) = (this.handle.id, bytes.len());
        let allowed = this.extension.claim(link, Direction::Sent, traffic, wanted, cx);
        if allowed == 0 {
            // What TLS has taken has had its turn, and waits for the socket only.
            let _ = Pin::new(&mut this.inner).poll_flush(cx)?;
            return Poll::Pending;
        }
        let result = Pin::new(&mut this.inner).poll_write(cx, &bytes[..allowed]);
        let len = bytes_moved(&result);
        let mut at = 0;
        while at < len {
            at += this.passed_out.advance(&bytes[at..len]);
        }
        this.on_moved(Direction::Sent, traffic, len);
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !matches!(this.mode, Mode::Ordinary) && this.passed_out.at_boundary() {
            // Nothing of tor-proto's is on its way. Were it to wait here for a peer that does not
            // read, it would not come to read from this link, and the link could not be closed.
            return Poll::Ready(Ok(()));
        }
        if this.at_cell_boundary() {
            ready!(this.poll_control(cx))?;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

as_its_inner_link!(LinkStream);
