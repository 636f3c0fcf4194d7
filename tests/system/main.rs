//! The whole system over real TLS and real Tor links on loopback.
//!
//! Each module is one scenario: [`lying_relay`], [`forging`], [`held_back`], [`lying_reports`],
//! [`rules`], [`considerate`], [`saturated`], [`links`], [`distance`], [`teams`], [`stopped`]. A relay
//! runs in a thread of its own ([`relay`]), its TLS may lie ([`liar`]) and hold echoes back ([`holding`]), and the coordinator
//! and measurers are those of `ff_bwauth::measure`.
//!
//! The tests move real traffic and would disturb each other, so every one of them holds
//! [`alone`]'s lock.

mod considerate;
mod distance;
mod forging;
mod forwarder;
mod held_back;
mod holding;
mod liar;
mod links;
mod lying_relay;
mod lying_reports;
mod plan;
mod relay;
mod rules;
mod saturated;
mod stopped;
mod teams;

use tokio::sync::{Mutex, MutexGuard};

/// Keeps the tests apart in time.
static TRAFFIC: Mutex<()> = Mutex::const_new(());

/// Waits until no other test moves traffic.
async fn alone() -> MutexGuard<'static, ()> {
    TRAFFIC.lock().await
}
