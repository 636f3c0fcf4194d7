//! One process at a time changes a tor's options.
//!
//! A process that changes options sets back at its end what they were at its beginning. Of two at
//! once, one would measure with the other's options, and the last one would leave the other's. So a
//! process that changes options owns a name in the abstract namespace of Unix sockets (unix(7)),
//! made of the device and the inode of tor's control socket. One process can own it, whichever
//! users there are and whatever they may read, and the kernel frees it when the process ends,
//! however that ends. It counts within a network namespace, as a SocksPort on loopback does. Any
//! user of the host can own the name, too, and so keep us from measuring: the error tells how to
//! find the process.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The tors that this process has, by name.
static HELD: Mutex<BTreeMap<String, Weak<TorLock>>> = Mutex::new(BTreeMap::new());
/// The kernel's table of Unix sockets: those of all processes in the network namespace.
const SOCKETS: &str = "/proc/self/net/unix";

/// A tor whose options this process may change, until the last of these is dropped.
#[derive(Debug)]
pub(crate) struct TorLock {
    _name: UnixListener,
}

impl TorLock {
    /// Takes the tor that has its control socket in this directory; the same one again if this
    /// process has it.
    ///
    /// # Errors
    /// When another process has it, and when there is no control socket.
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

    /// Checks that no other process changes the options of this tor now.
    ///
    /// # Errors
    /// When another one does, and when there is no control socket.
    pub(crate) fn check(dir: &Path) -> Result<(), String> {
        let name = name(dir)?;
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = held.get(&name).is_some_and(|lock| lock.strong_count() > 0);
        // Other programs' names may be any bytes.
        let sockets = fs::read(SOCKETS).unwrap_or_default();
        let end = format!(" @{name}");
        let is_there = String::from_utf8_lossy(&sockets).lines().any(|line| line.ends_with(&end));
        if is_there && !is_ours { Err(busy(dir, &name)) } else { Ok(()) }
    }
}

/// The name of the tor that has its control socket in this directory.
fn name(dir: &Path) -> Result<String, String> {
    let path = dir.join("control");
    let about = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("ff-perf-tor-{:x}-{:x}", about.dev(), about.ino()))
}

/// The message about a tor that another process has.
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

        // As another process would have it.
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
