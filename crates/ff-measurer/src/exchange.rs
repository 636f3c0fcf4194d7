//! Measures measurers: all of them exchange UDP with all others at once, and what a host's network
//! carries is the median second of the lesser of what it sent and received (paper §4.2).
//!
//! ```text
//!   ExchangeBind ─▶ Exchange::bind ─▶ bound(): ports, buffers       the coordinator tells all of all
//!   ExchangeOrder ─▶ Exchange::begin ─▶ Running, a thread:  UDP ◀─▶ Host ─▶ HostSecond, one a second
//!   all hosts' HostSeconds ─▶ capacity() ─▶ Capacity                at the coordinator
//! ```
//!
//! `host.rs` is all of it without sockets: who may be sent data (`host.rs`), how fast (`pace.rs`),
//! what of it came (`receipt.rs`), in which datagrams (`packet.rs`). `driver.rs` moves datagrams.
//!
//! An exchange floods nobody: data goes only to a host that has shown by the session's key, with a number
//! that it could only have from us, that it wants it; and that it gets it, with numbers that it could only
//! have from the data, within the last second. Whatever happens, it ends at its deadline, and when
//! [`RunningExchange`] is dropped.
//!
//! Bytes are those of UDP's payload. The packets' content is random and the same in each: a network
//! that compresses across packets is measured as faster than it is.

mod capacity;
mod driver;
mod host;
mod order;
mod pace;
mod packet;
mod receipt;
mod report;
mod share;
mod statement;
#[cfg(test)]
mod tests;

pub use self::capacity::{Capacity, Said, WARM_UP_SECS, capacity};
pub use self::driver::{
    Bound, Exchange, ExchangeEvent, ExchangeTotals, PeerTotals, RunningExchange,
};
pub use self::host::PeerFate;
pub use self::order::{
    DEFAULT_PACKET_BYTES, ExchangeBind, ExchangeError, ExchangeOrder, ExchangePeer, MAX_DURATION,
    MAX_PACKET_BYTES, MAX_PEERS, MAX_START_IN, MIN_PACKET_BYTES,
};
pub use self::report::{HostSecond, PeerSecond};
pub use self::share::pair_rates;
