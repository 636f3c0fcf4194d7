//! Network namespaces of a lab, joined by the emulator of [`link`](crate::link).
//!
//! Namespaces and TUN devices have no names in the file system. File descriptors of this process
//! and the processes inside hold them, so the kernel removes them when the last of these ends. A
//! killed lab leaves only the processes that it had started. They carry a mark, by which the next
//! lab ([`Emulation::start`], or a network without hosts) ends those whose owner has ended.

mod awake;
mod driver;
mod emulation;
mod lateness;
mod namespace;
mod priority;
mod tun;

pub(crate) use awake::Awake;
pub use driver::{Drops, Report};
pub use emulation::{Emulation, EmulationPlan, HostPlace, HostPlan};
pub use lateness::LatenessReport;
pub use namespace::Namespace;
pub use priority::{Priority, become_real_time};
