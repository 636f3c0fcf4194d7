//! One accepted link: takes the measurement cells out of it and sends them through the relay.
//!
//! ```text
//!              ordinary link                                 measurement link
//!   tor-proto ◀─ all other cells ─┐               ┌─ read ─▶ buffer: decrypt each cell, make it one to forward ─▶ tor-proto
//!                                 ├─ TLS stream ─▶│                                                                  │
//!   Extension ◀─ MEASUREMENT ─────┘               └─ write ◀──────────────────────────────────────── Echoes ◀────────┘
//! ```
//!
//! tor-proto's reactor polls this stream without knowing of the extension. A link starts as an
//! ordinary one. When its MEAS_CREATE is granted it becomes a measurement link: tor-proto then gets
//! only the cells of a circuit that this link has opened (`through.rs`), and all that it sends on
//! the link belongs to that circuit.
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
//! When the extension has failed, all but ordinary links end at once: nothing would close them if
//! their peers do not.
//!
//! What exceeds a link's own limit waits in its gate (`gate.rs`).
//!
//! The coordinator's link has no circuits except the probe's: other circuits' traffic would escape
//! the share of clients.

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

use super::Moved;
use super::extension::{Extension, LinkHandle, LinkTask};
use super::gate::{At, Gate};
use super::greeting::Greeting;
use super::inner_link::as_its_inner_link;
use super::limit::{Direction, READ_BYTES, Traffic};
use super::outbox::Outbox;
use super::through::Through;

mod sending;

/// The most bytes from the peer that a link holds.
const BUFFER_LEN: usize = READ_BYTES;
/// The number of batches echoed in one poll before other tasks get their turn: clients' cells pass
/// through several tasks of Arti, and wait at each of them for every measurement link once.
const BATCHES_PER_POLL: usize = 2;
/// The bytes in each direction for which a link counts as new: a handshake with certificates, and
/// the first messages.
const FRESH_BYTES: usize = 16 * 1024;
/// tor-spec: CREATE.
const CMD_CREATE: u8 = 1;
/// tor-spec: RELAY.
const CMD_RELAY: u8 = 3;
/// tor-spec: DESTROY.
const CMD_DESTROY: u8 = 4;
/// tor-spec: RELAY_EARLY.
const CMD_RELAY_EARLY: u8 = 9;
/// tor-spec: CREATE2.
const CMD_CREATE2: u8 = 10;

/// How the link's bytes are handled; the module's documentation has a drawing.
#[derive(Debug)]
enum Mode {
    /// tor-proto gets them.
    Ordinary,
    /// They go through the relay and back.
    Measuring(Box<Through>),
    /// They are dropped.
    Ending,
    /// Pending bytes are sent, then the link ends.
    Closing,
}

/// A TLS connection with the measurement extension on it.
#[derive(Debug)]
pub struct LinkStream<T> {
    /// The TLS connection.
    inner: T,
    /// The state shared with the relay's other links.
    extension: Arc<Extension>,
    /// The part of this link that other tasks can reach.
    handle: Arc<LinkHandle>,
    /// Binds signatures to this TLS session; `None` if TLS does not provide it.
    exporter: Option<Zeroizing<Exporter>>,
    mode: Mode,
    /// Who is at the other end, and what its limit holds back.
    gate: Gate,
    /// Whether a MEASUREMENT cell has arrived, so that this may be the coordinator's link.
    has_asked: bool,
    /// Whether tor-proto gets nothing until the last MEASUREMENT cell is answered.
    is_held: bool,
    /// Whether the coordinator's probe has arrived.
    is_probed: bool,
    /// Whether tor-proto has been asked for circuits, the probe's among them.
    has_circuits: bool,
    /// The bytes, received and sent, for which this link still counts as new.
    fresh: [usize; 2],
    /// Bytes from the peer that have not been passed on.
    buffer: Box<[u8]>,
    /// The range of these bytes in the buffer.
    filled: std::ops::Range<usize>,
    /// The number of them, from the front, that are cells for the relay to forward.
    inward: usize,
    /// Bytes that were read for the relay and have not left it.
    inside: usize,
    /// Cells that have left the relay and must be sent.
    outward: Vec<u8>,
    /// The number of these bytes that have been sent.
    sent: usize,
    /// Cell boundaries of the bytes that tor-proto was given.
    passed_in: Boundaries,
    /// Cell boundaries of the bytes that tor-proto has sent.
    passed_out: Boundaries,
    /// Control cells to send.
    outbox: Outbox,
    /// Whether TLS has bytes that it has not given to the socket.
    needs_flush: bool,
    /// Whether to close without waiting for the last bytes.
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
            gate: Gate::new(Greeting::of_opening()),
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
    /// Whether the granted or running measurement was requested on this link.
    fn is_coordinators(&self) -> bool {
        self.has_asked && self.extension.part_of(self.handle.id) == LinkPart::Coordinator
    }

    /// The kind of traffic of the link's own bytes.
    fn traffic(&self, direction: Direction) -> Traffic {
        match self.mode {
            Mode::Measuring(_) => Traffic::Measurement,
            Mode::Ending | Mode::Closing => Traffic::Control,
            Mode::Ordinary if self.is_coordinators() => Traffic::Control,
            Mode::Ordinary if self.fresh[direction as usize] > 0 => Traffic::Fresh,
            Mode::Ordinary => Traffic::Background,
        }
    }

    /// Notes the bytes that have moved after a claim.
    fn on_moved(&mut self, direction: Direction, traffic: Traffic, bytes: usize) {
        let fresh = &mut self.fresh[direction as usize];
        *fresh = fresh.saturating_sub(bytes);
        self.extension.moved(self.handle.id, direction, traffic, bytes);
    }

    /// Carries out the extension's tasks for this link.
    fn take_tasks(&mut self) {
        // In this order: when the link is released, the answer is already among its tasks.
        self.is_held =
            self.handle.awaits_answer.load(Ordering::Acquire) && !self.extension.has_failed();
        if !matches!(self.mode, Mode::Ordinary) && self.extension.has_failed() {
            // Nothing closes it later if its peer does not.
            self.begin_closing();
            self.is_abandoned = true;
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

    /// Makes it a measurement link, which is possible once.
    fn open(&mut self, circuit: EchoCircuit) {
        if !matches!(self.mode, Mode::Ordinary) {
            return self.begin_closing();
        }
        match self.extension.lead_through(self.handle.id, circuit) {
            Some(through) => {
                self.gate.drop_waiting();
                self.mode = Mode::Measuring(Box::new(through));
            }
            None => {
                warn!(
                    "FlashFlow: the relay's circuits do not carry measurements: no MeasuringProvider is in use"
                );
                self.begin_closing();
            }
        }
    }

    /// Makes the link close as soon as the last cells are sent.
    fn begin_closing(&mut self) {
        if !matches!(self.mode, Mode::Closing) {
            self.drop_echoes();
            self.mode = Mode::Closing;
            self.extension.on_closing(self.handle.id);
        }
    }

    /// Drops the echoes that have not been sent, except the rest of one that is partly sent, and
    /// the cells for the relay; also cells that the link's limit has held back.
    fn drop_echoes(&mut self) {
        if matches!(self.mode, Mode::Measuring(_)) {
            // It has no more turns, and must not keep a place among those that wait for one.
            self.on_moved(Direction::Received, Traffic::Measurement, 0);
        }
        self.gate.drop_waiting();
        self.outward.truncate(self.sent.next_multiple_of(CELL_LEN));
        self.filled.start += self.inward;
        self.inward = 0;
        self.all_out();
    }

    /// Notes that the bytes read for the relay have left it, or never will.
    fn all_out(&mut self) {
        match std::mem::take(&mut self.inside) {
            0 => {}
            bytes => self.extension.came_out(bytes),
        }
    }

    /// Queues a control cell. If the peer does not read its answers, the link is closed.
    fn queue_control(&mut self, cell: &Cell) {
        if !self.outbox.push(cell) {
            self.begin_closing();
        }
    }

    /// Whether a control cell may be sent now: no other cell is partly sent.
    fn at_cell_boundary(&self) -> bool {
        self.passed_out.at_boundary() && self.sent.is_multiple_of(CELL_LEN)
    }

    /// Sends the pending control cells, as far as TLS accepts them.
    fn poll_control(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.unwritten().is_empty() {
            ready!(self.gate.poll_rest(&mut self.inner, cx))?;
            let unwritten = self.outbox.unwritten();
            let len = ready!(Pin::new(&mut self.inner).poll_write(cx, unwritten))?;
            self.outbox.on_written(len);
            self.extension.on_control_sent(len);
            self.needs_flush = true;
        }
        self.poll_flush_ours(cx)
    }

    /// Makes TLS give its bytes to the socket.
    fn poll_flush_ours(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.needs_flush {
            ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from TLS into the rest of the buffer. A measurement link reads all available bytes,
    /// because each piece wakes every task on its way through the relay. Returns 0 at the end of
    /// the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Moved {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let traffic = self.traffic(Direction::Received);
        let link = self.handle.id;
        let at = At { extension: &self.extension, link, traffic };
        let room = at.room(Direction::Received, BUFFER_LEN - self.filled.end, cx);
        if room == 0 {
            at.give_back(Direction::Received);
            return Poll::Pending;
        }
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
        let from = self.filled.end;
        self.filled.end += len;
        self.on_moved(Direction::Received, traffic, len);
        let at = At { extension: &self.extension, link, traffic };
        self.gate.greet(&self.buffer[from..from + len], at);
        result
    }

    /// Passes bytes of ordinary cells to tor-proto, and takes measurement cells out.
    ///
    /// Returns 0 if more bytes are needed first.
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
                if let &[a, b, c, d, CMD_DESTROY, ..] = bytes {
                    self.gate.drop_circuit(u32::from_be_bytes([a, b, c, d]));
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

    /// Notes an ordinary cell for tor-proto; fails if it is not allowed on this link.
    fn admit(&mut self, command: u8) -> io::Result<()> {
        let is_create = matches!(command, CMD_CREATE | CMD_CREATE_FAST | CMD_CREATE2);
        if !is_create && !matches!(command, CMD_RELAY | CMD_RELAY_EARLY) {
            return Ok(());
        }
        // The probe's circuit, too, stays when the measurement is over.
        self.has_circuits |= is_create;
        if !self.is_coordinators() {
            return Ok(());
        }
        let is_probe = command == CMD_CREATE_FAST && !self.is_probed;
        self.is_probed = true;
        if is_probe { Ok(()) } else { Err(no_place()) }
    }

    /// Gives the MEASUREMENT cell at the front to the extension; `false` if it is not complete.
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

    /// Measures: sends cells that have left the relay, passes available cells to it, then reads
    /// more. Nothing is read before all cells are out: the turns of measurement links limit the
    /// bytes inside, through which clients' cells have to pass.
    ///
    /// Returns 0 bytes once the link has stopped measuring.
    fn poll_measuring(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Moved {
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

    /// Sends the cells that have left the relay.
    fn poll_send_echoes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.gate.poll_rest(&mut self.inner, cx))?;
        loop {
            while self.sent < self.outward.len() {
                let echoes = &self.outward[self.sent..];
                let result = Pin::new(&mut self.inner).poll_write(cx, echoes);
                if result.is_pending() {
                    // Until the peer reads, other links may have this one's turn.
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

    /// Takes the cells that have left the relay; `false` if there are none.
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
            // The measurement has ended meanwhile; this link's task will be told.
            self.outward.clear();
        }
        is_counted
    }

    /// Takes the bytes that tor-proto sends on a measurement link: cells of its circuit through the
    /// relay.
    fn on_relay(&mut self, bytes: &[u8]) {
        let Mode::Measuring(through) = &mut self.mode else { return };
        if let Err(error) = through.on_relay(bytes) {
            warn!("FlashFlow: a measurement's circuit through the relay: {error}");
            self.begin_closing();
        }
        // There may be cells to take now.
        self.handle.waker.wake();
    }

    /// Gives tor-proto bytes of the cells to forward.
    fn pass_inward(&mut self, out: &mut [u8]) -> usize {
        let len = self.inward.min(out.len());
        let from = self.filled.start;
        out[..len].copy_from_slice(&self.buffer[from..from + len]);
        self.filled.start += len;
        self.inward -= len;
        len
    }

    /// Turns the whole cells in the buffer into cells that the relay forwards, once the circuit is
    /// open.
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

    /// Takes a cell that is not an echo from the front of a measurement link's buffer.
    fn take_other_cell(&mut self) -> io::Result<bool> {
        let bytes = &self.buffer[self.filled.clone()];
        match bytes.get(4) {
            None | Some(&CMD_MEAS_ECHO) => Ok(false),
            Some(&(CMD_PADDING | CMD_VPADDING)) => {
                let cell_len = peek_cell(bytes).map(|cell| cell.wire_len);
                // It is the measurer's traffic, which must not use the share of clients.
                self.filled.start += cell_len.unwrap_or(0);
                // No valid peer pads with more than the buffer holds, and such a cell would never
                // be complete.
                let fits = cell_len.is_some() || bytes.len() < BUFFER_LEN;
                if fits { Ok(cell_len.is_some()) } else { Err(no_place()) }
            }
            Some(&CMD_MEASUREMENT) => Ok(self.take_control_cell()),
            Some(_) => Err(no_place()),
        }
    }

    /// Reads and drops the bytes of a link whose measurement has ended.
    ///
    /// Returns only errors, otherwise it is `Pending`, also while the link is closing.
    fn poll_drop(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        for _ in 0..BATCHES_PER_POLL {
            if let Err(error) = ready!(self.poll_send_echoes(cx)) {
                return Poll::Ready(error);
            }
            // Before reading, which may wait for long: MEAS_END could not go into half an echo.
            if self.at_cell_boundary()
                && let Poll::Ready(Err(error)) = self.poll_control(cx)
            {
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

    /// Drops the whole cells in the buffer, but passes on MEASUREMENT cells.
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
    fn poll_ordinary(&mut self, cx: &mut Context<'_>, out: &mut [u8]) -> Moved {
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
pub(super) fn bytes_moved(result: &Moved) -> usize {
    match result {
        Poll::Ready(Ok(len)) => *len,
        Poll::Ready(Err(_)) | Poll::Pending => 0,
    }
}

/// The error of a cell that is not allowed on its link.
fn no_place() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a cell that has no place on its link")
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for LinkStream<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Moved {
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
            this.drain(cx)?;
            // Nothing may be written into a partly sent control cell.
            if this.outbox.is_mid_cell() && !matches!(this.mode, Mode::Ordinary) {
                return if this.is_abandoned { Poll::Ready(Ok(0)) } else { Poll::Pending };
            }
            let mode = std::mem::discriminant(&this.mode);
            let moved = match this.mode {
                Mode::Closing => {
                    if !this.is_abandoned {
                        // First the rest of a partly sent cell, then the last cells, unless they
                        // would be written into a cell of tor-proto's.
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
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Moved {
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
            // Only the rest of a partly sent cell.
            &bytes[..this.passed_out.clone().advance(bytes)]
        };
        this.poll_write_ours(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !matches!(this.mode, Mode::Ordinary) && this.passed_out.at_boundary() {
            // No bytes of tor-proto's are in flight. If it waited here for a peer that does not
            // read, it would not read from this link either, and the link could not be closed.
            return Poll::Ready(Ok(()));
        }
        if this.at_cell_boundary() {
            ready!(this.poll_control(cx))?;
        }
        this.drain(cx)?;
        // Cells that wait for the link's limit are not waited for: tor-proto would do nothing else.
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

as_its_inner_link!(LinkStream);

#[cfg(test)]
mod tests;
