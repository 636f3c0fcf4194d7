//! What `ff-perf` reads from files and computes. One program, so that tests run beside each other.

mod analyze;
mod anonymity;
mod bound;
mod buckets;
mod downloads;
mod mutations;
mod replay;
mod scipy;
mod source;
