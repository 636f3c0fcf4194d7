//! Tests of the command and its library from outside. They are one program, so that tests, most of
//! which wait, run at the same time.

mod arbitrary;
mod cli;
mod export_cli;
mod live_network;
mod measurers_cli;
mod network_demo;
mod output_files;
mod publishing;
mod samples;
mod schedule_cli;
mod store;
mod told;
mod v3bw_cli;
mod watch_cli;
