//! FlashFlow's target inside C tor, on private Tor networks.
//!
//! All of it needs a tor that `crates/ff-relay-ext/tor/build-tor` has built, named by the
//! environment variable `FF_TEST_TOR`, and is therefore ignored unless asked for:
//! `FF_TEST_TOR=target/tor/bin/tor cargo test --test c_tor -- --ignored`. One of the tests sets a
//! CPU quota, for which it must be root.

mod background;
mod bursts;
mod full;
mod fuzz;
mod ingress;
mod options;
mod orders;
#[path = "../faults/program.rs"]
mod program;
mod rules;
mod saturated;
mod service;
mod support;
mod trace;
mod votes;
