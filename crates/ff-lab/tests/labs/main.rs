//! Networks and links, as programs and as a person's. One program, so that tests, which wait most
//! of the time, run beside each other.

mod hosts;
mod links;
mod mutations;
mod network;
mod quota;
mod up;
