//! Measurers as a service: coordinators on other hosts give work to this one, by gRPC.
//!
//! ```text
//!   coordinator                                    measurement host
//!   client::RemoteMeasurer ══ TLS 1.3, both keys ══▶ server: who is it? (tls) may it? (admission)
//!        Prepare ─▶                                    └─▶ run: Measurer::prepare, start, events
//!        ◀─ Ready, Second …, Done                            ends with the stream, whoever ends it
//! ```
//!
//! By another stream, `Bind ─▶ Bound, Begin ─▶ ExchangeSecond …, Exchanged`, measurers exchange UDP
//! among them (`exchange`), which shows what their networks carry.
//!
//! What travels is in `proto/team.proto`; [`wire`] reads and writes it. Both ends know each other
//! by their Ed25519 keys, which sign on Tor's links, too ([`tls`]).

pub mod admission;
pub mod client;
mod exchange;
mod refusals;
mod run;
pub mod server;
pub mod tls;
pub mod wire;
mod words;
