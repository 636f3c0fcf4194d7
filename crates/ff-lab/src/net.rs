//! Network namespaces of a lab, joined by the emulator of [`link`](crate::link).
//!
//! Namespaces and TUN devices have no names in the file system: they are held by file descriptors
//! of this process and by the processes inside, so the kernel removes them with the last of these,
//! whatever ended it. A killed lab can leave only processes that it had started; they
//! carry a mark, by which the next lab ends those whose owner is gone: [`Emulation::start`] does,
//! and a network without hosts.

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
