#![doc = include_str!("../README.md")]
//!
//! # Entry points
//!
//! [`Task`], [`Order`], [`Measurer`], [`link::Link`] and [`transit::Transit`].

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
pub use window::{MAX_QUEUE_CELLS, QUEUE};
