//! FlashFlow's traffic generator: opens many Tor links to a relay, floods them with random echo
//! cells, and counts and checks what comes back.
//!
//! ```text
//!   Order ─▶ Measurer::prepare ─▶ link::open (tokio, s links) ─▶ Worker, one thread per core
//!                                                                  │  EchoSocket per link
//!   MeasurerEvent::{Second, Done, Failed} ◀────────────────────────┘
//! ```
//!
//! [`transit`] sends cells through relays instead, to sinks and back, with the same workers.
//!
//! [`exchange`] sends UDP among measurers, to find out what their networks carry.
//!
//! The features, all on by default: `service` gives work to measurers on other hosts, and does it for others; `command`
//! is the program. Without them measurers are in the process that asks them.
//!
//! The central types are [`Task`], [`Order`], [`Measurer`] and [`link::Link`]. `socket.rs` and `worker.rs`
//! are the hot path: no allocation, lock or system call per cell.

#[cfg(feature = "command")]
pub mod bench;
mod circuits;
#[cfg(feature = "command")]
pub mod cli;
#[cfg(feature = "command")]
pub mod config;
pub mod console;
pub mod dial;
#[cfg(feature = "service")]
pub mod exchange;
mod fault;
pub mod key;
pub mod link;
mod logging;
mod measurer;
mod order;
pub mod owner;
mod report;
pub mod secret_file;
#[cfg(feature = "service")]
pub mod service;
mod socket;
mod task;
mod tcp;
pub mod transit;
mod window;
mod worker;

pub use logging::{init_logging, init_service_logging};
pub use measurer::{Measurer, MeasurerEvent, START_LEAD, measurer_id};
pub use order::{LinkFailure, MeasurerError, Order, SecondReport, WorkerTotals};
pub use report::thread_cpu_time;
pub use task::{Host, PartFailure, Task};
pub use tcp::TcpSecond;
