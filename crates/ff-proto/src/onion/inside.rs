//! A circuit through a relay in the same process to a next hop of our own.
//!
//! ```text
//!   Inside::new ─▶ CREATE_FAST ─▶ the relay ─▶ CREATED_FAST ─▶ handle ─▶ RELAY_EARLY(EXTEND2) ─▶ the relay,
//!   which asks the next hop ─▶ RELAY(EXTENDED2) ─▶ handle ─▶ Next::Open
//! ```
//!
//! No proof is needed here, so the next hop's handshake is empty.

use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::circuit::CircuitError;
use super::extend::{
    CMD_RELAY, CMD_RELAY_EARLY, NextRelay, RELAY_EXTEND2, RELAY_EXTENDED2, RelayMessage,
};
use super::hop::Hop;
use super::ntor::{HANDSHAKE_TYPE, NtorError};
use crate::cell::{
    Body, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_DESTROY, Cell, CellRef, fixed_cell,
};
use crate::circuit::Passage;
use crate::codec::{DecodeError, Reader};
use crate::ids::CryptoKind;

/// Length of each side's part of the key material, and of the relay's proof, in bytes.
const LEN: usize = 20;

/// A circuit that is not open yet.
pub struct Inside {
    /// Its id on the link.
    circ_id: u32,
    /// The next hop.
    next: NextRelay,
    state: State,
}

/// The state of a circuit.
enum State {
    /// CREATE_FAST is sent, with this key material.
    Creating(Zeroizing<[u8; LEN]>),
    /// EXTEND2 is sent.
    Extending(Box<Hop>),
}

/// The result of handling a cell.
pub enum Next {
    /// Send this cell next.
    Send(Box<Inside>, Box<Cell>),
    /// The circuit is open: the relay's encryption of forwarded cells.
    Open(Box<Passage>),
}

impl Inside {
    /// Starts a circuit; the returned cell must be sent. The entropy must be fresh from a
    /// cryptographic generator.
    ///
    /// # Errors
    /// [`CircuitError::Decode`], which does not depend on peers.
    pub fn new(
        circ_id: u32,
        next: NextRelay,
        entropy: [u8; LEN],
    ) -> Result<(Self, Cell), CircuitError> {
        let cell = fixed_cell(circ_id, CMD_CREATE_FAST, &entropy)?;
        let state = State::Creating(Zeroizing::new(entropy));
        Ok((Self { circ_id, next, state }, cell))
    }

    /// Handles the circuit's next cell.
    ///
    /// # Errors
    /// [`CircuitError`] if the circuit cannot be built.
    pub fn handle(self, cell: CellRef<'_>) -> Result<Next, CircuitError> {
        match (cell.command, self.state) {
            (CMD_DESTROY, _) => {
                Err(CircuitError::Destroyed(cell.body.first().copied().unwrap_or(0)))
            }
            (CMD_CREATED_FAST, State::Creating(ours)) => {
                Self::extend(self.circ_id, self.next, hop(&ours, cell.body)?)
            }
            (CMD_RELAY, State::Extending(mut hop)) => {
                let mut body: Body = cell
                    .body
                    .try_into()
                    .map_err(|_| DecodeError::Truncated { field: "a relay cell" })?;
                match hop.open(CMD_RELAY, &mut body)? {
                    Some(RelayMessage { command: RELAY_EXTENDED2, .. }) => {
                        let [forward, _] = hop.into_passages();
                        Ok(Next::Open(Box::new(forward)))
                    }
                    _ => Err(CircuitError::NotExtended),
                }
            }
            (command, _) => Err(CircuitError::Unexpected(command)),
        }
    }

    fn extend(circ_id: u32, next: NextRelay, mut hop: Hop) -> Result<Next, CircuitError> {
        let data = next.extend(HANDSHAKE_TYPE, &[])?;
        let message = RelayMessage { command: RELAY_EXTEND2, data: &data };
        let body = hop.seal(CMD_RELAY_EARLY, &message)?;
        let cell = fixed_cell(circ_id, CMD_RELAY_EARLY, &body)?;
        let state = State::Extending(Box::new(hop));
        Ok(Next::Send(Box::new(Self { circ_id, next, state }), Box::new(cell)))
    }
}

/// The relay that answered CREATE_FAST with this (tor-spec "CREATE_FAST", KDF-TOR).
fn hop(ours: &[u8; LEN], answer: &[u8]) -> Result<Hop, CircuitError> {
    let mut reader = Reader::new(answer);
    let theirs: [u8; LEN] = reader.array("the relay's part of the key material")?;
    let proof: [u8; LEN] = reader.array("the relay's proof of the key material")?;
    let mut material = Zeroizing::new(Vec::with_capacity(5 * LEN));
    for block in 0..5_u8 {
        let hash = Sha1::new().chain_update(ours).chain_update(theirs).chain_update([block]);
        material.extend_from_slice(&hash.finalize());
    }
    let (expected, keys) = material.split_at(LEN);
    if !bool::from(expected.ct_eq(&proof)) {
        return Err(NtorError::BadAuth.into());
    }
    let mut keys = keys;
    let mut fill = |bytes: &mut [u8]| {
        let (now, later) = keys.split_at(bytes.len());
        bytes.copy_from_slice(now);
        keys = later;
    };
    let crypto = CryptoKind::AES128_CTR;
    Hop::new(crypto, &mut fill).ok_or(CircuitError::Crypto(crypto))
}
