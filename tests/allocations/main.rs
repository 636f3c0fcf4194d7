//! What the hot paths allocate, and what a socket holds: nothing per cell, and 64 KiB.

mod counting;
mod forwarder;
#[path = "../../benches/throughput/loopback.rs"]
mod loopback;
mod running;
mod sans_io;
mod target;
mod transit;
