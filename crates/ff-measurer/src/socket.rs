//! One link on the hot path: writes and reads records, in place and without allocation.
//!
//! ```text
//!   EchoLink::write ─▶ cells in a record ─▶ Sealer::seal ─▶ write(2) ─┐   several records a call
//!                                                                     │   the rest to `unsent`
//!   EchoLink::handle ◀─ CellAssembler ◀─ Opener::open ◀─ read(2) ◀────┘   128 KB a call
//! ```
//!
//! The buffers for a call belong to the worker and are shared by its sockets; data that is kept
//! between calls (part of a record, or bytes that the kernel has not accepted) is in the socket's
//! own.

use std::io::{ErrorKind, Read, Write};

use ff_proto::cell::{CELL_LEN, Cell, CellAssembler};
use ff_proto::session::measurer::{EchoEvent, EchoLink, Opening, OpeningLink};
use ff_proto::session::{PeerViolation, SessionFailure};
use ff_proto::units::MonoTime;
use mio::net::TcpStream;
use nix::sys::socket::setsockopt;
use nix::{libc, setsockopt_impl, sockopt_impl};
use zeroize::Zeroizing;

use crate::circuits::TransitLink;
use crate::fault::Fault;
use crate::link::Link;
use crate::link::record::{HEADER, MAX_WIRE, Opened, Opener, RECORD_OVERHEAD, Sealer};
use crate::order::LinkFailure;
use crate::report::Counters;
use crate::window::{Path, Window};

/// The largest number of bytes read from a socket in one call: as much as arrives in a nap on one
/// of 20 links of a relay of 50 Mbit/s. With rustls's own 4 KB per call, the CPU time doubles.
pub(crate) const READ_LEN: usize = 128 * 1024;
/// The largest number of bytes of records written in one call: enough to make the call cheap per
/// cell, and few enough for a socket to keep the unsent bytes and part of a record in 64 KB.
pub(crate) const WRITE_LEN: usize = 44 * 1024;

sockopt_impl!(
    /// `SO_RCVLOWAT`: unread bytes from which on the kernel reports a socket as readable
    /// (socket(7)).
    ReceiveLowWater,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    libc::c_int
);

/// Buffers that a worker's sockets share during a call.
pub(crate) struct Scratch {
    /// The part of a record from the last call, then the bytes read.
    read: Box<[u8]>,
    /// The records being written.
    write: Box<[u8]>,
    /// Length of a full record, in bytes.
    record_len: usize,
    /// The path that their windows share.
    pub(crate) path: Path,
}

impl Scratch {
    /// Buffers for the sockets of this path, with records of `cells_per_record` cells.
    pub(crate) fn new(path: Path, cells_per_record: usize) -> Self {
        let record_len = cells_per_record * CELL_LEN + RECORD_OVERHEAD;
        let records = (WRITE_LEN / record_len).max(1);
        Self {
            read: vec![0; MAX_WIRE + READ_LEN].into_boxed_slice(),
            write: vec![0; records * record_len].into_boxed_slice(),
            record_len,
            path,
        }
    }

    /// The largest number of bytes that a call writes.
    pub(crate) fn write_len(&self) -> usize {
        self.write.len()
    }

    /// The largest number of cells that a call writes.
    pub(crate) fn cells_per_call(&self) -> u64 {
        let cells = self.write.len() / self.record_len * self.cells_per_record();
        u64::try_from(cells).unwrap_or(u64::MAX)
    }

    /// Cells of a full record.
    pub(crate) fn cells_per_record(&self) -> usize {
        (self.record_len - RECORD_OVERHEAD) / CELL_LEN
    }
}

/// The state of the link's session.
enum Phase {
    /// MEAS_CREATE was sent.
    Opening(Option<Box<OpeningLink>>),
    /// The measurement circuit is open.
    Echo(Box<EchoLink>),
    /// A link for cells in transit.
    Transit(Box<TransitLink>),
}

/// One link.
pub(crate) struct EchoSocket {
    /// The socket, registered in the worker's poll.
    pub(crate) tcp: TcpStream,
    /// Encrypts records.
    sealer: Sealer,
    /// Decrypts records.
    opener: Opener,
    phase: Phase,
    /// Joins cells that are split over two records.
    cells: CellAssembler,
    /// The received part of a record.
    partial: Vec<u8>,
    /// Sealed bytes, some of which the kernel has not accepted yet.
    unsent: Vec<u8>,
    /// The number of bytes of `unsent` that it has accepted.
    unsent_done: usize,
    /// Limits the cells in flight.
    pub(crate) window: Window,
    /// Whether the socket may be readable.
    pub(crate) readable: bool,
    /// Whether echoes gather unread in the kernel, which then does not report the socket as
    /// readable.
    is_gathering: bool,
    /// Whether the socket may be writable.
    pub(crate) writable: bool,
    /// Whether the kernel has reported the stream's end or an error, which comes after the bytes
    /// that remain to be read.
    pub(crate) ended: bool,
}

/// The parts of a link that the hot path needs.
pub(crate) struct Parts {
    /// The socket.
    pub(crate) tcp: TcpStream,
    /// Encrypts records.
    pub(crate) sealer: Sealer,
    /// Decrypts records.
    pub(crate) opener: Opener,
    /// The bytes that were received already.
    pub(crate) leftover: Leftover,
}

/// The bytes that were received on a link before it was taken over.
pub(crate) struct Leftover {
    /// Bytes that are not decrypted.
    ciphertext: Vec<u8>,
    /// Decrypted bytes that are not handled.
    plaintext: Zeroizing<Vec<u8>>,
}

impl From<Link> for Parts {
    fn from(link: Link) -> Self {
        let leftover = Leftover {
            ciphertext: link.leftover_ciphertext,
            plaintext: link.leftover_plaintext.into(),
        };
        let (tcp, sealer, opener) = (TcpStream::from_std(link.tcp), link.sealer, link.opener);
        Self { tcp, sealer, opener, leftover }
    }
}

impl EchoSocket {
    /// Takes over a link, and sends its MEAS_CREATE cell as soon as it is writable.
    ///
    /// # Errors
    /// [`Fault`] when the bytes received before are not valid.
    pub(crate) fn new(
        parts: Parts,
        opening: OpeningLink,
        create: &Cell,
        scratch: &mut Scratch,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<Self, Fault> {
        let phase = Phase::Opening(Some(Box::new(opening)));
        let (mut socket, leftover) = Self::idle(parts, phase, scratch);
        socket.queue(create)?;
        socket.take_leftover(leftover, scratch, counters, now)?;
        Ok(socket)
    }

    /// Takes over a link for cells in transit, whose circuits are open.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub(crate) fn in_transit(
        parts: Parts,
        link: TransitLink,
        scratch: &mut Scratch,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<Self, Fault> {
        scratch.path.set_in_transit();
        let phase = Phase::Transit(Box::new(link));
        let (mut socket, leftover) = Self::idle(parts, phase, scratch);
        socket.take_leftover(leftover, scratch, counters, now)?;
        Ok(socket)
    }

    /// A link, and the bytes that were received on it before.
    fn idle(parts: Parts, phase: Phase, scratch: &Scratch) -> (Self, Leftover) {
        let socket = Self {
            tcp: parts.tcp,
            sealer: parts.sealer,
            opener: parts.opener,
            phase,
            cells: CellAssembler::default(),
            partial: Vec::new(),
            unsent: Vec::with_capacity(scratch.write_len()),
            unsent_done: 0,
            window: Window::new(&scratch.path),
            readable: true,
            is_gathering: false,
            writable: true,
            ended: false,
        };
        (socket, parts.leftover)
    }

    /// Handles the bytes that were received before the link was taken over.
    fn take_leftover(
        &mut self,
        leftover: Leftover,
        scratch: &mut Scratch,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<(), Fault> {
        self.handle_plaintext(&leftover.plaintext, &mut scratch.path, counters, now)?;
        let len = leftover.ciphertext.len().min(scratch.read.len());
        if len > 0 {
            scratch.read[..len].copy_from_slice(&leftover.ciphertext[..len]);
            self.open_records(&mut scratch.read[..len], &mut scratch.path, counters, now)?;
        }
        Ok(())
    }

    /// Whether the link's circuits are open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Opening(_))
    }

    /// Reads the number of cells that arrived at the other end, if the cells are in transit.
    ///
    /// # Errors
    /// When more have arrived than were sent.
    pub(crate) fn look(
        &mut self,
        path: &mut Path,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<(), Fault> {
        if let Phase::Transit(link) = &mut self.phase {
            let arrived = link.look()?;
            if arrived > 0
                && let Some(round_trip) = self.window.on_echoed(arrived, now, path)
            {
                counters.round_trip(round_trip);
            }
        }
        Ok(())
    }

    /// Whether cells are in flight whose arrival is only known from the other end.
    pub(crate) fn must_look(&self) -> bool {
        matches!(&self.phase, Phase::Transit(link) if link.is_sending())
    }

    /// Bytes of memory that the socket uses, without the kernel's buffers: for the memory test.
    pub(crate) fn held_bytes(&self) -> usize {
        let session = match &self.phase {
            Phase::Opening(_) => size_of::<OpeningLink>(),
            Phase::Echo(link) => link.held_bytes(),
            Phase::Transit(link) => link.held_bytes(),
        };
        size_of::<Self>() + self.partial.capacity() + self.unsent.capacity() + session
    }

    /// Seals cells as one record after the unsent ones.
    fn queue(&mut self, cells: &[u8]) -> Result<(), Fault> {
        let start = self.unsent.len();
        self.unsent.resize(start + RECORD_OVERHEAD + cells.len(), 0);
        let record = &mut self.unsent[start..];
        record[HEADER..HEADER + cells.len()].copy_from_slice(cells);
        self.sealer.seal(record)?;
        Ok(())
    }

    /// Has the link gather at most so many bytes of echoes in the kernel between its turns, or, with
    /// `None`, ends this.
    ///
    /// While nobody reads, Linux delays acknowledgements by up to 40 ms, and a sender with a small
    /// congestion window waits for them: over a path that lost 1 % of the segments, a relay sent at
    /// half of its rate. While fewer bytes than `SO_RCVLOWAT` are unread, Linux acknowledges at
    /// once what is longer than a segment, but does not report the socket as readable; so each turn
    /// of a link with cells in flight tries to read.
    pub(crate) fn set_gathering(&mut self, bytes: Option<u64>) {
        if set_gathered_bytes(&self.tcp, bytes) {
            // Linux before 4.18 does not report what has gathered until more arrives.
            self.readable |= self.is_gathering && bytes.is_none();
            self.is_gathering = bytes.is_some();
        }
    }

    /// Whether there may be something to read. While cells gather, only reading can tell. Echoes
    /// arrive only if cells are in flight; cells in transit, which the other end sends, at any time.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        let is_expecting = self.window.on_way() > 0 || matches!(self.phase, Phase::Transit(_));
        self.readable || (self.is_gathering && is_expecting)
    }

    /// Reads once and handles the bytes. Returns whether there may be more.
    pub(crate) fn read(
        &mut self,
        scratch: &mut Scratch,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<bool, Fault> {
        let front = self.partial.len();
        scratch.read[..front].copy_from_slice(&self.partial);
        self.partial.clear();
        let room = &mut scratch.read[front..front + READ_LEN];
        let len = match self.tcp.read(room) {
            Ok(0) => return Err(Fault::Link(LinkFailure::Closed)),
            Ok(len) => len,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                self.partial.extend_from_slice(&scratch.read[..front]);
                self.readable = error.kind() == ErrorKind::Interrupted;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        // A short read means that the socket is empty; for further bytes there will be an event.
        // For an end there will be none if its event came together with that of the bytes before
        // it.
        self.readable = len == READ_LEN || self.ended;
        self.open_records(&mut scratch.read[..front + len], &mut scratch.path, counters, now)?;
        Ok(self.readable)
    }

    /// Decrypts and handles the whole records in `bytes`, and keeps the rest.
    fn open_records(
        &mut self,
        bytes: &mut [u8],
        path: &mut Path,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<(), Fault> {
        let mut at = 0;
        loop {
            let rest = &mut bytes[at..];
            match self.opener.open(rest)? {
                Opened::Data { plaintext, wire_len } => {
                    let (start, end) = (at + plaintext.start, at + plaintext.end);
                    self.handle_plaintext(&bytes[start..end], path, counters, now)?;
                    at += wire_len;
                }
                Opened::Ignored { wire_len } => at += wire_len,
                Opened::Closed => return Err(Fault::Link(LinkFailure::Closed)),
                Opened::Incomplete { need_total_bytes } => {
                    // For the whole record at once: otherwise the capacity would grow with each
                    // longer part, and by doubling it could hold two of the longest records.
                    self.partial.reserve_exact(need_total_bytes);
                    self.partial.extend_from_slice(rest);
                    return Ok(());
                }
            }
        }
    }

    /// Handles the cells in decrypted bytes.
    fn handle_plaintext(
        &mut self,
        bytes: &[u8],
        path: &mut Path,
        counters: &mut Counters,
        now: MonoTime,
    ) -> Result<(), Fault> {
        let phase = &mut self.phase;
        let (mut echoed, mut checked) = (0, 0);
        let in_all = counters.echoed_cells();
        if let Phase::Echo(link) = phase {
            link.note_echoed_in_all(in_all);
        }
        let (mut arrived, mut arrived_checked) = (0, 0);
        let result = self.cells.feed(bytes, |cell| match phase {
            Phase::Transit(link) => {
                if let Some(is_checked) = link.handle(cell, in_all)? {
                    arrived += 1;
                    arrived_checked += u64::from(is_checked);
                }
                Ok(())
            }
            Phase::Echo(link) => {
                match link.handle(cell)? {
                    EchoEvent::Echo => echoed += 1,
                    EchoEvent::Checked => (echoed, checked) = (echoed + 1, checked + 1),
                    EchoEvent::Ignored => {}
                    EchoEvent::Ended => return Err(Fault::Link(LinkFailure::Ended)),
                }
                Ok(())
            }
            Phase::Opening(opening) => {
                let gone = PeerViolation::UnexpectedMessage("a second answer");
                let link = opening.take().ok_or(SessionFailure::Violation(gone))?;
                *phase = match link.handle(cell)? {
                    Opening::Waiting(link) => Phase::Opening(Some(Box::new(link))),
                    Opening::Open(link) => Phase::Echo(link),
                };
                Ok(())
            }
        });
        counters.now.echoed_cells += arrived;
        counters.now.checked_cells += arrived_checked;
        if echoed > 0 {
            counters.now.echoed_cells += echoed;
            counters.now.checked_cells += checked;
            if let Some(round_trip) = self.window.on_echoed(echoed, now, path) {
                counters.round_trip(round_trip);
            }
        }
        result
    }

    /// Writes unsent bytes. Returns whether none are left.
    fn flush(&mut self) -> Result<bool, Fault> {
        while self.unsent_done < self.unsent.len() {
            match self.tcp.write(&self.unsent[self.unsent_done..]) {
                Ok(len) => self.unsent_done += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.unsent.clear();
        self.unsent_done = 0;
        Ok(true)
    }

    /// Writes unsent bytes, and then up to `allowed_cells` new cells in one call. Returns how many
    /// new cells were written.
    pub(crate) fn write(
        &mut self,
        scratch: &mut Scratch,
        allowed_cells: u64,
        now: MonoTime,
    ) -> Result<u64, Fault> {
        if !self.flush()? {
            return Ok(0);
        }
        let room = match &self.phase {
            Phase::Opening(_) => return Ok(0),
            Phase::Echo(_) => self.window.room(&scratch.path),
            Phase::Transit(link) => self.window.room(&scratch.path).min(link.room()),
        };
        let cells = whole_records(room.min(scratch.cells_per_call()), scratch);
        let worthwhile = self.window.worthwhile(&scratch.path);
        if cells < worthwhile.min(scratch.cells_per_call()) {
            return Ok(0);
        }
        let cells = cells.min(allowed_cells);
        let sealer = &mut self.sealer;
        let len = match &mut self.phase {
            Phase::Opening(_) => 0,
            Phase::Echo(link) => seal_records(sealer, scratch, cells, |cell| link.write(cell))?,
            Phase::Transit(link) => seal_records(sealer, scratch, cells, |cell| link.write(cell))?,
        };
        if len == 0 {
            return Ok(0);
        }
        self.window.on_sent(cells, now, &mut scratch.path);
        let taken = match self.tcp.write(&scratch.write[..len]) {
            Ok(taken) => taken,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            Err(error) => return Err(error.into()),
        };
        if taken < len {
            self.writable = false;
            self.unsent.extend_from_slice(&scratch.write[taken..len]);
        }
        Ok(cells)
    }

    /// Announces the end of the link, if the kernel accepts that, and closes it.
    pub(crate) fn close(mut self) {
        if self.flush().is_ok_and(|done| done)
            && let Ok(alert) = self.sealer.close_notify()
        {
            // The result does not matter: the peer also sees the end of the stream.
            let _ = self.tcp.write(&alert);
        }
    }
}

/// Sets `SO_RCVLOWAT` to this number of bytes, or to its default of 1 byte. The kernel accepts at
/// most half of `tcp_rmem`'s maximum. Returns whether it accepts any.
fn set_gathered_bytes(tcp: &TcpStream, bytes: Option<u64>) -> bool {
    let least = libc::c_int::try_from(bytes.unwrap_or(1)).unwrap_or(libc::c_int::MAX);
    setsockopt(tcp, ReceiveLowWater, &least).is_ok()
}

/// The largest multiple of a record's cells that is at most `cells`; `cells` itself if it is less
/// than a record.
fn whole_records(cells: u64, scratch: &Scratch) -> u64 {
    let per_record = scratch.cells_per_record() as u64;
    if cells < per_record { cells } else { cells / per_record * per_record }
}

/// Writes `cells` new cells as records to `scratch.write`; returns their length in bytes.
fn seal_records(
    sealer: &mut Sealer,
    scratch: &mut Scratch,
    cells: u64,
    mut make: impl FnMut(&mut Cell),
) -> Result<usize, Fault> {
    let cells_per_record = scratch.cells_per_record();
    let mut left = usize::try_from(cells).unwrap_or(usize::MAX);
    let mut len = 0;
    while left > 0 {
        let count = left.min(cells_per_record);
        let record = &mut scratch.write[len..len + count * CELL_LEN + RECORD_OVERHEAD];
        let plaintext = &mut record[HEADER..HEADER + count * CELL_LEN];
        let (cells, _) = plaintext.as_chunks_mut::<CELL_LEN>();
        for cell in cells {
            make(cell);
        }
        sealer.seal(record)?;
        len += record.len();
        left -= count;
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Duration;

    use mio::{Events, Interest, Poll, Token};

    use super::*;
    use crate::link::record::tests::looped;

    #[test]
    fn links_that_gather_are_read_without_an_event_if_cells_may_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (sealer, opener) = looped();
        let leftover = Leftover { ciphertext: Vec::new(), plaintext: Zeroizing::new(Vec::new()) };
        let mut scratch = Scratch::new(Path::new(1, 1, None), 6);
        let parts = Parts { tcp, sealer, opener, leftover };
        let (mut socket, _) = EchoSocket::idle(parts, Phase::Opening(None), &scratch);
        socket.readable = false;
        socket.set_gathering(Some(1 << 19));
        assert!(!socket.may_read(), "nothing is in flight");
        socket.window.on_sent(6, MonoTime::from(Duration::ZERO), &mut scratch.path);
        assert!(socket.may_read(), "echoes are due");
        socket.window = Window::new(&scratch.path);
        socket.phase = Phase::Transit(Box::default());
        assert!(socket.may_read(), "the other end may send");
        socket.phase = Phase::Opening(None);
        socket.set_gathering(None);
        assert!(socket.may_read(), "what has gathered");
        socket.readable = false;
        socket.set_gathering(None);
        assert!(!socket.may_read(), "nothing has gathered since");
    }

    #[test]
    fn the_kernel_tells_of_what_gathers_only_when_it_is_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert!(set_gathered_bytes(&tcp, Some(1 << 19)));
        let mut poll = Poll::new().unwrap();
        poll.registry().register(&mut tcp, Token(0), Interest::READABLE).unwrap();
        peer.write_all(&[1; 1000]).unwrap();
        let mut come = [0; 1000];
        while !tcp.peek(&mut come).is_ok_and(|len| len == come.len()) {
            std::thread::yield_now();
        }
        let mut events = Events::with_capacity(1);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty(), "{events:?}");
        assert!(set_gathered_bytes(&tcp, None));
        poll.poll(&mut events, None).unwrap();
        assert!(events.iter().any(mio::event::Event::is_readable));
        assert!(set_gathered_bytes(&tcp, Some(1 << 19)));
        drop(peer);
        poll.poll(&mut events, None).unwrap();
        assert!(events.iter().any(mio::event::Event::is_read_closed), "an end is told at once");
    }
}
