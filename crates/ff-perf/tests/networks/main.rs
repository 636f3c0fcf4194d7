//! `ff-perf` in private networks, as users run it. One program, so that tests, which mostly wait,
//! run in parallel.

mod check;
mod client_tor;
mod cpu;
mod delays;
mod downloads;
mod faults;
mod lab_ends;
mod liars;
mod lost;
mod mobile;
mod mute;
mod onion;
mod run;
mod selection;
mod serve;
mod tortoise;
mod wire;
