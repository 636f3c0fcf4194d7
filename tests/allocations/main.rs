//! Tests of allocations: the hot paths make none per cell, and a socket holds at most 64 KiB.

mod counting;
mod forwarder;
#[path = "../../benches/throughput/loopback.rs"]
mod loopback;
#[path = "../../benches/throughput/record_layer.rs"]
mod record_layer;
mod running;
mod sans_io;
mod target;
mod transit;
