//! Builds a circuit through one relay to another, cell by cell.
//!
//! ```text
//!   Building::new ─▶ CREATE2 ─▶ the relay ─▶ CREATED2 ─▶ handle ─▶ RELAY_EARLY(EXTEND2) ─▶ the relay,
//!   which asks the next one ─▶ RELAY(EXTENDED2) ─▶ handle ─▶ Step::Open
//! ```

use super::extend::{
    CMD_CREATE2, CMD_CREATED2, CMD_RELAY, CMD_RELAY_EARLY, NextRelay, RELAY_EXTEND2,
    RELAY_EXTENDED2, RelayMessage, ask_for, create, read_created,
};
use super::hop::Hop;
use super::ntor::{HANDSHAKE_TYPE, NtorClient, NtorError, OnionKey};
use crate::cell::{Body, CMD_DESTROY, Cell, CellRef, fixed_cell};
use crate::circuit::{EphemeralKey, Passage};
use crate::codec::DecodeError;
use crate::ids::CryptoKind;

/// The relays and keys of a circuit.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The key of the relay at the other end of the link.
    pub relay: OnionKey,
    /// The requested crypto.
    pub crypto: CryptoKind,
    /// The relay after it.
    pub next: NextRelay,
    /// The circuit key of that relay.
    pub next_key: [u8; 32],
}

/// Why a circuit did not open, or was closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CircuitError {
    /// A relay closed it (tor-spec 5.4).
    #[error("a relay ended the circuit ({})", destroy_reason(*.0))]
    Destroyed(u8),
    /// A handshake failed.
    #[error("a relay's circuit handshake failed")]
    Handshake(#[from] NtorError),
    /// A relay's cell cannot be decoded.
    #[error("a relay's cell does not decode")]
    Decode(#[from] DecodeError),
    /// A cell that is not expected now.
    #[error("a relay sent cell command {0} in place of a circuit's next step")]
    Unexpected(u8),
    /// A message that is not EXTENDED2, or not a message.
    #[error("a relay did not answer EXTEND2 with EXTENDED2")]
    NotExtended,
    /// The crypto is not supported.
    #[error("cipher {} is not spoken here", .0.name())]
    Crypto(CryptoKind),
}

/// The meaning of a reason in DESTROY.
fn destroy_reason(reason: u8) -> &'static str {
    match reason {
        1 => "it calls something a protocol violation",
        2 => "internal error",
        3 => "asked to",
        4 => "it hibernates",
        5 => "resource limit",
        6 => "it cannot reach the next relay",
        7 => "the next relay has another identity",
        8 => "its link to the next relay closed",
        9 => "circuit too old",
        10 => "circuit took too long to open",
        11 => "the next relay ended it",
        _ => "no reason given",
    }
}

/// A circuit that is not open yet.
pub struct Building {
    /// Its id on the link.
    circ_id: u32,
    /// The relays and keys.
    way: Way,
    state: State,
}

/// The state of a circuit.
enum State {
    /// CREATE2 is sent; the second value is the entropy of the next handshake's key.
    Creating(Box<NtorClient>, [u8; 32]),
    /// EXTEND2 is sent.
    Extending(Box<Hop>, Box<NtorClient>),
}

/// The result of handling a cell.
pub enum Step {
    /// Send this cell next.
    Send(Box<Building>, Box<Cell>),
    /// The circuit is open: the relay's encryption of forwarded cells, away from us and towards us.
    Open(Box<[Passage; 2]>),
}

impl Building {
    /// Starts a circuit; the returned cell must be sent. The entropy must be fresh from a
    /// cryptographic generator.
    ///
    /// # Errors
    /// [`CircuitError::Handshake`] for a key of small order.
    pub fn new(
        circ_id: u32,
        way: Way,
        entropy: [[u8; 32]; 2],
    ) -> Result<(Self, Cell), CircuitError> {
        let [first, second] = entropy;
        let (client, handshake) =
            NtorClient::new(way.relay, EphemeralKey::new(first), &ask_for(way.crypto))?;
        let cell = fixed_cell(circ_id, CMD_CREATE2, &create(HANDSHAKE_TYPE, &handshake)?)?;
        let state = State::Creating(Box::new(client), second);
        Ok((Self { circ_id, way, state }, cell))
    }

    /// Handles the circuit's next cell.
    ///
    /// # Errors
    /// [`CircuitError`] if the circuit cannot be built.
    pub fn handle(self, cell: CellRef<'_>) -> Result<Step, CircuitError> {
        match (cell.command, self.state) {
            (CMD_DESTROY, _) => {
                Err(CircuitError::Destroyed(cell.body.first().copied().unwrap_or(0)))
            }
            (CMD_CREATED2, State::Creating(client, entropy)) => {
                let (_, mut keys) = client.finish(read_created(cell.body)?)?;
                let crypto = self.way.crypto;
                let hop = Hop::new(crypto, &mut |bytes| keys.fill(bytes))
                    .ok_or(CircuitError::Crypto(crypto))?;
                Self::extend(self.circ_id, self.way, hop, entropy)
            }
            (CMD_RELAY, State::Extending(mut hop, client)) => {
                let mut body: Body = cell
                    .body
                    .try_into()
                    .map_err(|_| DecodeError::Truncated { field: "a relay cell" })?;
                match hop.open(CMD_RELAY, &mut body)? {
                    Some(RelayMessage { command: RELAY_EXTENDED2, data }) => {
                        client.finish(read_created(data)?)?;
                        Ok(Step::Open(Box::new(hop.into_passages())))
                    }
                    _ => Err(CircuitError::NotExtended),
                }
            }
            (command, _) => Err(CircuitError::Unexpected(command)),
        }
    }

    /// Extends the circuit to the next relay.
    fn extend(
        circ_id: u32,
        way: Way,
        mut hop: Hop,
        entropy: [u8; 32],
    ) -> Result<Step, CircuitError> {
        let next = OnionKey { id: way.next.ed_id, key: way.next_key };
        // The next relay handles no cells, so no crypto is requested from it.
        let (client, handshake) =
            NtorClient::new(next, EphemeralKey::new(entropy), &ask_for(CryptoKind::AES128_CTR))?;
        let data = way.next.extend(HANDSHAKE_TYPE, &handshake)?;
        let message = RelayMessage { command: RELAY_EXTEND2, data: &data };
        let body = hop.seal(CMD_RELAY_EARLY, &message)?;
        let cell = fixed_cell(circ_id, CMD_RELAY_EARLY, &body)?;
        let state = State::Extending(Box::new(hop), Box::new(client));
        Ok(Step::Send(Box::new(Self { circ_id, way, state }), Box::new(cell)))
    }
}
