//! Links, circuits, cells in transit and the service, tested with relays. They are one program, so
//! that tests, most of which wait, run at the same time.

mod circuit_tor;
mod exchange_net;
mod link_tor;
mod service;
mod transit_liar;
mod transit_tor;
