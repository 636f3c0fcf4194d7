//! Networks as hosts, and as a person's. One program, so that tests, which wait most of the time, run beside each other.

mod hosts;
mod up;
