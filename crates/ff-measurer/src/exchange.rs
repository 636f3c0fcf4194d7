//! Measures the networks of measurers: all exchange UDP with all others at once. A host's capacity
//! is the median second of the lesser of the sent and received bytes (paper §4.2).
//!
//! ```text
//!   ExchangeBind ─▶ Exchange::bind ─▶ bound(): ports, buffers       the coordinator tells all of all
//!   ExchangeOrder ─▶ Exchange::begin ─▶ Running, a thread:  UDP ◀─▶ Host ─▶ HostSecond, one a second
//!   all hosts' HostSeconds ─▶ capacity() ─▶ Capacity                at the coordinator
//! ```
//!
//! The parts without sockets: permission to send (`host.rs`), the rate (`pace.rs`), proof of
//! arrival (`receipt.rs`) and the format of datagrams (`packet.rs`). `driver.rs` has the sockets.
//!
//! An exchange cannot be used to flood other hosts. Data goes only to a host that has proven within
//! the last second, by the session's key, that it wants the data, with a number that it can only
//! have from us; and that it receives the data, with numbers from the data. It ends at its
//! deadline, and when [`RunningExchange`] is dropped.
//!
//! Bytes are those of UDP's payload. All packets have the same random content: a network that
//! compresses across packets is measured as faster than it is.

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
