//! Emulated links, for kernels without a link emulator.
//!
//! ```text
//!  Profile ── up, down: Direction ──▶ Link ─┐ sans-IO: a packet and the time in,
//!                                           │ the packet and its arrival out, or a drop
//!  host A ─▶ Link (A's up) ─▶ delay of the pair ─▶ Link (B's down) ─▶ host B     Switch
//!                                           │
//!  a TUN in each namespace ◀── one thread ──┘                                    Driver
//! ```
//!
//! [`Link`] is one direction of one link: a queue, a rate, loss, and delay with jitter, copies and
//! late packets, and a [`Timetable`] that changes any of them. [`Switch`] joins the links of all
//! hosts of a lab. Both are deterministic and have no clock and no socket: the same packets at the
//! same times with the same seed give the same result. The driver adds the clock and the TUN
//! devices, and measures its lateness.
//!
//! Sizes are bytes of IP packets; the overhead of lower layers (Ethernet, PPP, LTE) is not
//! modelled. Times are [`Duration`](std::time::Duration)s since one moment that the caller chooses.

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
