//! The lock of a tor: only one process at a time changes its options.
//!
//! A process that changes options restores their previous values at its end. If two processes did
//! so at the same time, one would measure with the other's options, and the last to end would leave
//! the other's options set. So a process first binds a Unix socket to a name in the abstract
//! namespace (unix(7)), which contains the device and the inode of tor's control socket. Only one
//! process can bind a name, whatever its user and permissions, and the kernel frees the name when
//! the process ends, also if it is killed. Names belong to a network namespace, as a SocksPort on
//! loopback does. Any user of the host can bind the name and thereby prevent measurements: the
//! error says how to find the process.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Locks of this process, by name.
static HELD: Mutex<BTreeMap<String, Weak<TorLock>>> = Mutex::new(BTreeMap::new());
/// The kernel's table of Unix sockets of all processes in the network namespace.
const SOCKETS: &str = "/proc/self/net/unix";

/// Permits this process to change a tor's options, until the last reference is dropped.
#[derive(Debug)]
pub(crate) struct TorLock {
    _name: UnixListener,
}

impl TorLock {
    /// Locks the tor that has its control socket in this directory. If this process has the lock
    /// already, returns the same one.
    ///
    /// # Errors
    /// If another process has the lock, if there is no control socket, or if the name cannot be
    /// bound.
    pub(crate) fn take(dir: &Path) -> Result<Arc<Self>, String> {
        let name = name(dir)?;
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = held.get(&name).and_then(Weak::upgrade) {
            return Ok(lock);
        }
        let address = SocketAddr::from_abstract_name(&name);
        let lock = match address.and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(socket) => Arc::new(Self { _name: socket }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(busy(dir, &name)),
            Err(error) => {
                return Err(format!("{}: its tor cannot be locked: {error}", dir.display()));
            }
        };
        held.retain(|_, lock| lock.strong_count() > 0);
        held.insert(name, Arc::downgrade(&lock));
        Ok(lock)
    }

    /// Checks that no other process has the lock of this tor.
    ///
    /// # Errors
    /// If another process has it, or if there is no control socket.
    pub(crate) fn check(dir: &Path) -> Result<(), String> {
        let name = name(dir)?;
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = held.get(&name).is_some_and(|lock| lock.strong_count() > 0);
        // Names of other programs may contain any bytes.
        let sockets = fs::read(SOCKETS).unwrap_or_default();
        let end = format!(" @{name}");
        let is_there = String::from_utf8_lossy(&sockets).lines().any(|line| line.ends_with(&end));
        if is_there && !is_ours { Err(busy(dir, &name)) } else { Ok(()) }
    }
}

/// The name to bind for the tor that has its control socket in this directory.
fn name(dir: &Path) -> Result<String, String> {
    let path = dir.join("control");
    let about = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("ff-perf-tor-{:x}-{:x}", about.dev(), about.ino()))
}

/// The error if another process has the lock.
fn busy(dir: &Path, name: &str) -> String {
    format!(
        "{}: another ff-perf has changed the options of its tor: wait until that has ended, or give the directory of another tor; \
         `ss -xlp | grep {name}`, as root, shows the process",
        dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tor_is_one_process_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(TorLock::take(dir.path()).is_err_and(|error| error.contains("control")));
        let _control = UnixListener::bind(dir.path().join("control")).expect("a socket");
        let [one, two] = [0, 1].map(|_| TorLock::take(dir.path()).expect("it is free"));
        assert!(Arc::ptr_eq(&one, &two), "it is this process's");
        TorLock::check(dir.path()).expect("it is ours");
        drop((one, two));

        // As if another process had the lock.
        let name = name(dir.path()).expect("a name");
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let other = UnixListener::bind_addr(&address).expect("it is free again");
        let checked = TorLock::check(dir.path()).expect_err("it is another's");
        let taken = TorLock::take(dir.path()).expect_err("it is another's");
        assert!(taken.contains("another ff-perf") && taken.contains(&name), "{taken}");
        assert_eq!(checked, taken);
        drop(other);
        TorLock::check(dir.path()).expect("it is free");
    }
}
