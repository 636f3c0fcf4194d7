//! Emulated links, because not every kernel has a link emulator of its own.
//!
//! ```text
//!  Profile ── up, down: Direction ──▶ Link ─┐ sans-IO: a packet and the time in,
//!                                           │ the same packet and its arrival out, or a drop
//!  host A ─▶ Link (A's up) ─▶ delay of the pair ─▶ Link (B's down) ─▶ host B        Switch
//!                                           │
//!  a TUN in each namespace ◀── one thread ──┘                                       Driver
//! ```
//!
//! [`Link`] is one direction of one link: a queue, then a rate, then loss, then delay with jitter,
//! copies and late packets, and a [`Timetable`] that changes any of it. [`Switch`] joins the links
//! of all hosts of a lab. Neither has a clock, a socket or chance of its own: the same packets at
//! the same times and the same seed give the same result. The driver brings the clock and the TUN
//! devices, and counts how late it was.
//!
//! What is counted are bytes of IP packets; what a link would add to them (Ethernet, PPP, LTE) is
//! not modelled. Times are [`Duration`](std::time::Duration)s since a moment the caller chose once.

mod codel;
mod delay;
mod direction;
mod loss;
mod queue;
mod rate;
mod switch;
mod timetable;
mod trace;

pub use codel::CoDel;
pub use delay::{Delay, DelayTable, DelayTableError, Jitter, MAX_DELAY, Reorder};
pub use direction::{Cause, Direction, Link, Output, PacketCounts};
pub use loss::Loss;
pub use queue::QueueLimit;
pub use rate::Rate;
pub use switch::{Delivery, HostId, PairDelays, Switch, SwitchCounts};
pub use timetable::{Change, Cut, Timetable};
pub use trace::{OPPORTUNITY_BYTES, Trace, TraceError};
