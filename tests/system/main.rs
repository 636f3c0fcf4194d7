//! The whole system over real TLS and real Tor links on loopback.
//!
//! Each module is one scenario: [`lying_relay`], [`forging`], [`held_back`], [`lying_reports`],
//! [`rules`], [`considerate`], [`saturated`], [`links`], [`distance`], [`teams`], [`stopped`]. A
//! relay runs in a thread of its own ([`relay`]), its TLS may lie ([`liar`]) and hold echoes back
//! ([`holding`]), and the coordinator and measurers are those of `ff_coordinator::measure`.
//!
//! Figures that want the machine for themselves are ignored, and `.ci/measure` has them. What the
//! others ask holds however busy the machine is; they wait for their [`turn`], so that no
//! measurement has less than a fair part of it.

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

use std::thread::{self, JoinHandle};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many tests measure at once.
static TURNS: Semaphore = Semaphore::const_new(4);

/// Does this in a thread of its own, with a runtime of its own.
fn in_thread(work: impl AsyncFnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work());
    })
}

/// Runs a test in a process of its own, where it says that it has not been run so yet: it looks at
/// the process' memory.
fn is_run_by_itself(name: &str) -> bool {
    const INSIDE: &str = "FF_TEST_BY_ITSELF";
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let program = std::env::current_exe().expect("this program");
    let mut inside = std::process::Command::new(program);
    let status = inside.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").status();
    assert!(status.expect("it runs").success(), "it failed in a process of its own: see above");
    true
}

/// Waits for a turn.
async fn turn() -> SemaphorePermit<'static> {
    TURNS.acquire().await.expect("it is never closed")
}
