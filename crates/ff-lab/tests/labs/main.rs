//! Networks and links, used as by programs and people. One program, so that tests, which mostly
//! wait, run in parallel.

mod hosts;
mod links;
mod mutations;
mod network;
mod quota;
mod up;
