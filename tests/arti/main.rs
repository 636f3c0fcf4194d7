//! FlashFlow's target inside arti-relay, in a network namespace: Arti refuses to extend circuits
//! over loopback.
//!
//! All of it needs root, and an arti-relay that `crates/ff-relay-ext/arti/build-arti-relay` has
//! built, named by the environment variable `FF_TEST_ARTI_RELAY`, and is therefore ignored unless
//! asked for: `FF_TEST_ARTI_RELAY=target/arti-relay/bin/arti-relay cargo test --test arti --
//! --ignored`.

mod build;
mod clients;
mod figures;
mod fuzz;
mod ingress;
mod network;
mod onion;
#[path = "../c_tor/orders.rs"]
mod orders;
mod rules;
mod section;
mod support;
mod transit;
