//! One network namespace.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Error, Result};
use crate::leftovers;

/// Network namespace of the calling thread.
const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace with a loopback device. It ends when this value is dropped and the last
/// process in it has ended.
#[derive(Debug)]
pub struct Namespace {
    /// Name in messages.
    name: String,
    /// Keeps the namespace alive.
    file: File,
}

impl Namespace {
    /// Creates a namespace with this TCP congestion control ("cubic") instead of the machine's
    /// default.
    pub fn new(name: &str, congestion_control: &str) -> Result<Self> {
        let made = in_a_thread(|| {
            let allowed = Allowed::for_now(congestion_control).map_err(failed(name, "set up"))?;
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
                nix::errno::Errno::EPERM => Error::NotRoot,
                errno => failed(name, "make")(errno.into()),
            })?;
            let chosen = sysctl("ipv4/tcp_congestion_control", congestion_control);
            // From here on, a killed process leaves the kernel's list unchanged.
            drop(allowed);
            chosen.and_then(|()| set_up()).map_err(failed(name, "set up"))?;
            File::open(OF_THIS_THREAD).map_err(failed(name, "keep"))
        });
        Ok(Self { name: name.to_owned(), file: made?? })
    }

    /// The namespace of the calling thread.
    pub fn here(name: &str) -> Result<Self> {
        let file = File::open(OF_THIS_THREAD).map_err(failed(name, "keep"))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// Name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` in a thread inside. Sockets that it opens stay in the namespace, whichever
    /// thread uses them.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        in_a_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Moves the calling thread inside permanently.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| failed(&self.name, "enter")(errno.into()))
    }

    /// Makes all addresses of a network ("198.18.0.0/15") local to the namespace, as 127.0.0.0/8
    /// is.
    pub fn own_network(&self, network: &str) -> Result<()> {
        let route = ["route", "add", "local", network, "dev", "lo"];
        self.run(|| ip(&route))?.map_err(failed(&self.name, "have addresses in"))
    }

    /// Sets the MTU of the loopback device, in bytes.
    pub fn set_loopback_mtu(&self, mtu: u16) -> Result<()> {
        let link = ["link", "set", "dev", "lo", "mtu", &mtu.to_string()];
        self.run(|| ip(&link))?.map_err(failed(&self.name, "set the loopback of"))
    }

    /// Starts a process from the calling thread, which must be inside. The process is marked, so
    /// that others can end it if this process cannot.
    pub fn start(&self, command: &mut Command) -> Result<Child> {
        leftovers::mark(command)?;
        let program = command.get_program().display();
        let what = format!("start {program} in network namespace {}", self.name);
        command.spawn().map_err(Error::io(what))
    }

    /// Starts a process inside; otherwise as [`Self::start`].
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        self.run(|| self.start(command))?
    }

    /// Ends all processes that this one has started inside, and their descendants.
    pub(crate) fn remove_own(&self) {
        leftovers::remove_own(&self.file);
    }

    /// Sets the default congestion control of connections between an address and its neighbours
    /// within `prefix_bits` bits; other connections in the namespace keep theirs. The setting
    /// belongs to the kernel's route for the address and goes with it.
    pub(super) fn set_congestion_control(
        &self,
        device: &str,
        address: Ipv4Addr,
        prefix_bits: u8,
        congestion_control: &str,
    ) -> Result<()> {
        let host_bits = 32_u32.saturating_sub(prefix_bits.into());
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        let network = Ipv4Addr::from_bits(address.to_bits() & mask);
        let route = format!(
            "route replace {network}/{prefix_bits} dev {device} proto kernel scope link src {address}"
        );
        let words = route.split(' ').chain(["congctl", congestion_control]).collect::<Vec<_>>();
        let what = format!("set congestion control {congestion_control} for {device} of");
        self.run(|| ip(&words))?.map_err(failed(&self.name, &what))
    }

    /// Packets that a device inside could not send, from `/proc/net/dev`.
    pub(super) fn send_drops(&self, device: &str) -> Result<u64> {
        Ok(parse_send_drops(&self.devices()?, device).unwrap_or(0))
    }

    /// Bytes of IP packets that all devices inside have received and sent so far, without loopback.
    pub fn carried_bytes(&self) -> Result<u64> {
        Ok(parse_bytes(&self.devices()?))
    }

    /// The kernel's table of devices inside.
    fn devices(&self) -> Result<String> {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        self.run(read)?.map_err(failed(&self.name, "read the devices of"))
    }
}

/// Names of devices, and their numbers.
fn devices(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.trim_start().split_once(':'))
}

/// A number of a device: the first eight are of received packets, the next eight of sent ones.
fn number(numbers: &str, place: usize) -> Option<u64> {
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// The twelfth number after the device's name.
fn parse_send_drops(text: &str, device: &str) -> Option<u64> {
    let (_, numbers) = devices(text).find(|(name, _)| *name == device)?;
    number(numbers, 11)
}

/// The bytes received and sent by all devices but loopback.
fn parse_bytes(text: &str) -> u64 {
    let others = devices(text).filter(|(name, _)| *name != "lo");
    others.flat_map(|(_, numbers)| [0, 8].map(|place| number(numbers, place).unwrap_or(0))).sum()
}

/// Allows namespaces their own congestion control while it exists; the kernel may allow only the
/// machine's default. Existing connections do not change. One process at a time holds the lock on
/// the kernel's list.
struct Allowed {
    /// The kernel's list.
    file: File,
    /// Previous content, if changed.
    before: Option<String>,
}

impl Allowed {
    /// Allows it from now on. Without permission, or if the kernel does not have this congestion
    /// control, it does nothing, and the next step fails.
    fn for_now(congestion_control: &str) -> io::Result<Option<Self>> {
        let Ok(file) = File::options().read(true).write(true).open(ALLOWED) else {
            return Ok(None);
        };
        let failed = |error: io::Error| io::Error::other(format!("{ALLOWED}: {error}"));
        // Otherwise one lab could revert another's change.
        file.lock().map_err(failed)?;
        let list = io::read_to_string(&file).map_err(failed)?;
        if list.split_whitespace().any(|one| one == congestion_control) {
            return Ok(Some(Self { file, before: None }));
        }
        match file.write_at(format!("{} {congestion_control}", list.trim()).as_bytes(), 0) {
            Ok(_) => Ok(Some(Self { file, before: Some(list) })),
            Err(error)
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) =>
            {
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = self.file.write_at(before.as_bytes(), 0)
        {
            tracing::warn!("cannot restore {ALLOWED}: {error}");
        }
    }
}

/// Congestion controls that the kernel allows to all processes.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Sets a network sysctl of the calling thread's namespace.
fn sysctl(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).map_err(|error| io::Error::other(format!("{path}: {error}")))
}

/// Sets up the calling thread's namespace.
fn set_up() -> io::Result<()> {
    // Connections must not learn from earlier ones on the same path.
    sysctl("ipv4/tcp_no_metrics_save", "1")?;
    // The emulator handles IPv4 only. A kernel without IPv6 has nothing to switch off.
    let _ = sysctl("ipv6/conf/all/disable_ipv6", "1");
    ip(&["link", "set", "lo", "up"])
}

/// Runs `ip` in the calling thread's namespace.
pub(super) fn ip(words: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(words).output();
    let output = output
        .map_err(|error| io::Error::other(format!("ip (Debian package iproute2): {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Runs `work` in a new thread: a namespace belongs to a thread.
fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_| Error::Misuse("a thread inside a network namespace panicked".to_owned()))
}

/// Adds the operation on the namespace to an error; for `map_err`.
fn failed(name: &str, what: &str) -> impl FnOnce(io::Error) -> Error {
    Error::io(format!("{what} network namespace {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_the_kernels_table() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n    \
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
            lab0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        assert_eq!(parse_send_drops(text, "lab0"), Some(32));
        assert_eq!(parse_send_drops(text, "lab"), None);
        assert_eq!(parse_bytes(text), 21 + 29);
    }
}
