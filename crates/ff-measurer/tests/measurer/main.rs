//! Links, circuits, cells in transit and the service, against relays. One program, so that tests,
//! most of which wait, run beside each other.

mod circuit_tor;
mod exchange_net;
mod link_tor;
mod service;
mod transit_liar;
mod transit_tor;
