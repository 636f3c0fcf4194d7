//! Tests of `ff-sim`: reading, computing and writing. They are one program, so that tests run in
//! parallel.

mod analysis;
mod attack;
mod cli;
mod compare;
mod flow;
#[path = "../../../ff-archives/tests/readers/full.rs"]
mod full;
mod ledger;
mod mutations;
mod program;
mod read;
mod same_bytes;
mod schedule;
mod schedule_cli;
mod schedule_period;
mod store;
mod tortoise;
