//! Networks and links, as programs and people use them. One program, so that tests, which wait most
//! of the time, run at the same time.

mod hosts;
mod links;
mod mutations;
mod network;
mod quota;
mod up;
