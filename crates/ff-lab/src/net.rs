//! Network namespaces of a lab, joined by the emulator of [`link`](crate::link).
//!
//! Namespaces and TUN devices have no names in the file system: they are held by file descriptors of this process and
//! by the processes inside, so the kernel removes them with the last of these, whatever ended it. What a killed
//! lab can leave behind are processes that it had started; they carry a mark, and [`remove_leftovers`] ends those
//! whose owner is gone. [`Emulation::start`] begins with that, and so does a network without hosts.

mod awake;
mod driver;
mod emulation;
mod lateness;
mod leftovers;
mod namespace;
mod priority;
mod tun;

pub(crate) use awake::Awake;
pub use driver::{Drops, Report};
pub use emulation::{Emulation, HostPlan, Place, Plan};
pub use lateness::LatenessReport;
pub use leftovers::remove_leftovers;
pub(crate) use leftovers::{is_alive, mark, own_name};
pub use namespace::Namespace;
pub use priority::{Priority, become_real_time};
