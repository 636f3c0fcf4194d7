//! Measurers as a service: coordinators on other hosts use this one by gRPC.
//!
//! ```text
//!   coordinator                                    measurement host
//!   client::RemoteMeasurer ══ TLS 1.3, both keys ══▶ server: who is it? (tls) may it? (admission)
//!        Prepare ─▶                                    └─▶ run: Measurer::prepare, start, events
//!        ◀─ Ready, Second …, Done                            ends with the stream, whoever ends it
//! ```
//!
//! In another kind of stream, `Bind ─▶ Bound, Begin ─▶ ExchangeSecond …, Exchanged`, measurers
//! exchange UDP with each other (`exchange`), which measures their networks.
//!
//! The messages are in `proto/team.proto`; [`wire`] converts them. Both ends identify each other by
//! their Ed25519 keys, which also sign on Tor's links ([`tls`]).

pub mod admission;
pub mod client;
mod exchange;
mod refusals;
mod run;
pub mod server;
pub mod tls;
pub mod wire;
mod words;
