//! Cells: the units of a Tor link's bytes, and the two commands that FlashFlow adds.
//!
//! Once the VERSIONS cells have passed, a link of protocol 4 or 5 carries cells with four-byte
//! circuit ids (tor-spec, "Cell Packet format"): a fixed-length cell is `circ_id [4] command [1]
//! body [509]`, a variable-length one `circ_id [4] command [1] length [2] body [length]`. A
//! command of 128 or above, and VERSIONS, has the variable length.

use crate::codec::DecodeError;

/// Bytes of a fixed-length cell on the wire.
pub const CELL_LEN: usize = 514;
/// Bytes of a cell before its body: circuit id and command.
pub const HEADER_LEN: usize = 5;
/// Bytes of a fixed-length cell's body (tor-spec: PAYLOAD_LEN).
pub const BODY_LEN: usize = 509;

/// Command of a control cell of a measurement (PROTOCOL.md §2). Unused in tor-spec.
pub const CMD_MEASUREMENT: u8 = 80;
/// Command of a cell whose whole body is echo data (PROTOCOL.md §2). Unused in tor-spec.
pub const CMD_MEAS_ECHO: u8 = 81;

/// tor-spec: PADDING, to be dropped.
pub const CMD_PADDING: u8 = 0;
/// tor-spec: DESTROY.
pub const CMD_DESTROY: u8 = 4;
/// tor-spec: CREATE_FAST, the probe of PROTOCOL.md §4.
pub const CMD_CREATE_FAST: u8 = 5;
/// tor-spec: CREATED_FAST, the answer to the probe.
pub const CMD_CREATED_FAST: u8 = 6;
/// tor-spec: VERSIONS, the only variable-length command below 128.
pub const CMD_VERSIONS: u8 = 7;
/// tor-spec: NETINFO, the last cell of a link's handshake.
pub const CMD_NETINFO: u8 = 8;
/// tor-spec: VPADDING, to be dropped.
pub const CMD_VPADDING: u8 = 128;
/// tor-spec: CERTS, the identity of a relay.
pub const CMD_CERTS: u8 = 129;
/// tor-spec: AUTH_CHALLENGE, after which the initiator may authenticate.
pub const CMD_AUTH_CHALLENGE: u8 = 130;

/// A fixed-length cell, encoded for the link.
pub type Cell = [u8; CELL_LEN];
/// The body of a fixed-length cell.
pub type Body = [u8; BODY_LEN];

/// Whether cells with this command have the variable length.
#[must_use]
pub const fn is_variable_length(command: u8) -> bool {
    command >= 128 || command == CMD_VERSIONS
}

/// One cell at the front of a buffer, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// The circuit, 0 for the link as a whole.
    pub circ_id: u32,
    /// The command.
    pub command: u8,
    /// The body: 509 bytes, or the length given in a variable-length cell.
    pub body: &'a [u8],
    /// The cell's length in bytes on the wire.
    pub wire_len: usize,
}

/// Parses the cell at the front of `buf`; `None` when the buffer ends before the cell does.
///
/// Any bytes are a sequence of cells, so this cannot fail; the longest cell takes 65,542 bytes.
#[must_use]
pub fn peek_cell(buf: &[u8]) -> Option<CellRef<'_>> {
    let (&[a, b, c, d, command], rest) = buf.split_first_chunk::<HEADER_LEN>()?;
    let circ_id = u32::from_be_bytes([a, b, c, d]);
    if !is_variable_length(command) {
        let body = rest.get(..BODY_LEN)?;
        return Some(CellRef { circ_id, command, body, wire_len: CELL_LEN });
    }
    let (&len, rest) = rest.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_be_bytes(len));
    Some(CellRef { circ_id, command, body: rest.get(..len)?, wire_len: HEADER_LEN + 2 + len })
}

/// Builds a fixed-length cell; the rest of the body is zero.
///
/// # Errors
/// [`DecodeError::TooLong`] when `body` is longer than [`BODY_LEN`].
pub fn fixed_cell(circ_id: u32, command: u8, body: &[u8]) -> Result<Cell, DecodeError> {
    let mut cell = [0; CELL_LEN];
    cell[..4].copy_from_slice(&circ_id.to_be_bytes());
    cell[4] = command;
    cell[HEADER_LEN..]
        .get_mut(..body.len())
        .ok_or(DecodeError::TooLong { field: "cell body", limit: BODY_LEN })?
        .copy_from_slice(body);
    Ok(cell)
}

/// Builds a variable-length cell of a link's handshake, with circuit id 0.
///
/// # Errors
/// [`DecodeError::TooLong`] when `body` is longer than 65,535 bytes.
pub fn variable_cell(command: u8, body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let limit = usize::from(u16::MAX);
    let len = u16::try_from(body.len());
    let len = len.map_err(|_| DecodeError::TooLong { field: "cell body", limit })?;
    Ok([&[0, 0, 0, 0, command], &len.to_be_bytes()[..], body].concat())
}

/// Splits the bytes of an open link into cells.
///
/// A cell that is whole in the given bytes is passed on in place; others are joined here. The
/// bodies of variable-length cells are dropped: after the handshake only VPADDING has one, without
/// a meaning.
#[derive(Clone, Debug)]
pub struct CellAssembler {
    /// The received part of a cell.
    partial: Cell,
    /// The number of these bytes; less than the cell needs.
    have: usize,
    /// The bytes of a variable-length body that remain to be dropped.
    skip: usize,
}

impl Default for CellAssembler {
    fn default() -> Self {
        Self { partial: [0; CELL_LEN], have: 0, skip: 0 }
    }
}

/// The number of bytes that contain the length of a variable-length cell.
const VARIABLE_HEADER_LEN: usize = HEADER_LEN + 2;

impl CellAssembler {
    /// Takes bytes and passes on every cell that is complete with them; variable-length cells have
    /// an empty body.
    ///
    /// # Errors
    /// The first error of `on_cell`; the remaining bytes are then lost.
    #[inline]
    pub fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut on_cell: impl FnMut(CellRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.have > 0 || self.skip > 0 {
                bytes = self.complete(bytes, &mut on_cell)?;
            } else if let Some(cell) =
                peek_cell(bytes).filter(|cell| !is_variable_length(cell.command))
            {
                bytes = &bytes[CELL_LEN..];
                on_cell(cell)?;
            } else {
                bytes = self.complete(bytes, &mut on_cell)?;
            }
        }
        Ok(())
    }

    /// Takes bytes of a cell that is not whole in them, and returns the bytes after the cell.
    #[cold]
    fn complete<'a, E>(
        &mut self,
        bytes: &'a [u8],
        on_cell: &mut impl FnMut(CellRef<'_>) -> Result<(), E>,
    ) -> Result<&'a [u8], E> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let bytes = &bytes[skipped..];
        // First the command, then the length that it requires.
        let bytes = self.gather(bytes, HEADER_LEN);
        if self.have < HEADER_LEN {
            return Ok(bytes);
        }
        let command = self.partial[4];
        let variable = is_variable_length(command);
        let needed = if variable { VARIABLE_HEADER_LEN } else { CELL_LEN };
        let bytes = self.gather(bytes, needed);
        if self.have < needed {
            return Ok(bytes);
        }
        self.have = 0;
        let [a, b, c, d, ..] = self.partial;
        let circ_id = u32::from_be_bytes([a, b, c, d]);
        if variable {
            self.skip = usize::from(u16::from_be_bytes([self.partial[5], self.partial[6]]));
            on_cell(CellRef { circ_id, command, body: &[], wire_len: needed + self.skip })?;
        } else {
            let body = &self.partial[HEADER_LEN..];
            on_cell(CellRef { circ_id, command, body, wire_len: CELL_LEN })?;
        }
        Ok(bytes)
    }

    /// Moves bytes into `partial` until it has `needed`, and returns the rest.
    fn gather<'a>(&mut self, bytes: &'a [u8], needed: usize) -> &'a [u8] {
        let (now, later) = bytes.split_at(bytes.len().min(needed.saturating_sub(self.have)));
        self.partial[self.have..self.have + now.len()].copy_from_slice(now);
        self.have += now.len();
        later
    }
}

/// Tracks the cell boundaries in one direction of a link without keeping its bytes.
///
/// It starts before the VERSIONS cell, whose circuit id has two bytes. Every byte must be given in
/// order to [`advance`](Self::advance).
#[derive(Clone, Debug)]
pub struct Boundaries {
    /// Header bytes of the current cell; at most 7 are needed to know its length. The first five
    /// stay until the next cell.
    header: [u8; 7],
    /// The number of these bytes.
    have: usize,
    /// The remaining bytes of the current cell, once its length is known.
    body_left: usize,
    /// The length of a circuit id: 2 until the VERSIONS cell has passed, then 4.
    circ_id_len: usize,
}

impl Default for Boundaries {
    fn default() -> Self {
        Self { header: [0; 7], have: 0, body_left: 0, circ_id_len: 2 }
    }
}

impl Boundaries {
    /// Whether the next byte begins a cell.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.have == 0 && self.body_left == 0
    }

    /// Whether the VERSIONS cell has passed, so that cells have four-byte circuit ids.
    #[must_use]
    pub fn versions_done(&self) -> bool {
        self.circ_id_len == 4
    }

    /// Circuit id and command of the last cell whose header has passed; zeros for VERSIONS and
    /// before it, and while a part of the next header has passed.
    #[must_use]
    pub const fn last_header(&self) -> (u32, u8) {
        if self.have > 0 {
            return (0, 0);
        }
        let [a, b, c, d, command, ..] = self.header;
        (u32::from_be_bytes([a, b, c, d]), command)
    }

    /// Takes bytes up to the end of the current cell at most, and returns their number.
    ///
    /// A result below `bytes.len()` means that a cell ended there.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        if self.at_boundary()
            && self.versions_done()
            && let Some(header) = bytes.first_chunk()
        {
            self.header = *header;
            let &[_, _, _, _, command, high, low] = header;
            let variable = header.len() + usize::from(u16::from_be_bytes([high, low]));
            let len = if is_variable_length(command) { variable } else { CELL_LEN };
            let used = len.min(bytes.len());
            self.body_left = len - used;
            return used;
        }
        let mut used = 0;
        while self.body_left == 0 {
            let Some(&byte) = bytes.get(used) else { return used };
            self.header[self.have] = byte;
            self.have += 1;
            used += 1;
            self.read_length();
            if self.have == 0 && self.body_left == 0 {
                return used;
            }
        }
        let body = self.body_left.min(bytes.len() - used);
        self.body_left -= body;
        used + body
    }

    /// Once the header is complete, computes the length of the body and clears the header.
    fn read_length(&mut self) {
        let at = self.circ_id_len;
        if self.have <= at {
            return;
        }
        let command = self.header[at];
        if !is_variable_length(command) {
            self.body_left = BODY_LEN;
        } else if self.have == at + 3 {
            self.body_left =
                usize::from(u16::from_be_bytes([self.header[at + 1], self.header[at + 2]]));
        } else {
            return;
        }
        self.have = 0;
        if !self.versions_done() {
            self.header = [0; 7];
            self.circ_id_len = 4;
        }
    }
}
