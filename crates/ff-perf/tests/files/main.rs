//! Reading and computing of `ff-perf` from files. One program, so that tests run in parallel.

mod analyze;
mod anonymity;
mod bound;
mod buckets;
mod downloads;
mod mutations;
mod program;
mod replay;
mod scipy;
mod source;
