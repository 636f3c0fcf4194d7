//! Tests of whole exchanges.

mod loopback;
mod net;
