//! Ends processes of labs that were killed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::error::{Error, Result};

/// Environment variable that names a process's owner as `PID:START`; START is the owner's start in
/// clock ticks since boot.
const OWNER: &str = "FF_LAB_OWNER";

/// Marks a command's process as owned by this one.
pub(crate) fn mark(command: &mut Command) -> Result<()> {
    let (pid, start) = own_name()?;
    command.env(OWNER, format!("{pid}:{start}"));
    Ok(())
}

/// This process's id and start in clock ticks since boot.
pub(crate) fn own_name() -> Result<(i32, u64)> {
    let stat = Process::myself().and_then(|own| own.stat());
    let stat = stat.map_err(std::io::Error::other).map_err(Error::io("read /proc/self/stat"))?;
    Ok((stat.pid, stat.starttime))
}

/// Ends all processes of labs that have ended, and returns their number.
///
/// A lab is identified by its process id and start time, so a reused id does not match.
pub(crate) fn remove_leftovers() -> usize {
    let Ok(processes) = all_processes() else { return 0 };
    // An unreadable process has ended or belongs to another user.
    let ended = processes.filter_map(|process| end_if_left(process.ok()?.pid()));
    ended.count()
}

/// Ends the processes that this one has started in hosts and their descendants: those with its
/// mark, and all others in this network namespace.
pub(crate) fn remove_own(namespace: &File) {
    let (Ok(id), Ok(own)) = (namespace.metadata().map(|there| there.ino()), own_name()) else {
        return;
    };
    let is_ours = |pid: &Pid| {
        let environ = || fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let is_inside = namespace_of(*pid, "net") == Some(id);
        *pid != getpid() && (is_inside || owner_in(&environ().unwrap_or_default()) == Some(own))
    };
    // Processes may start others meanwhile.
    for _ in 0..ROUNDS {
        let Ok(processes) = all_processes() else { return };
        let pids = processes.filter_map(|process| Pid::from_raw(process.ok()?.pid()));
        // It may have ended by itself.
        let ended = pids.filter(is_ours).map(|pid| kill_process(pid, Signal::KILL));
        if ended.count() == 0 {
            return;
        }
    }
}

/// Rounds of the search for processes that others started before their end.
const ROUNDS: usize = 10;

/// Inode of a process's namespace of this kind.
fn namespace_of(pid: Pid, kind: &str) -> Option<u64> {
    let path = format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero());
    Some(fs::metadata(path).ok()?.ino())
}

/// Ends a process if its owner has ended. Skips processes in other PID namespaces, such as
/// containers, as their ids differ.
fn end_if_left(pid: i32) -> Option<()> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    if namespace_of(Pid::from_raw(pid)?, "pid")? != namespace_of(getpid(), "pid")? {
        return None;
    }
    let owner = owner_in(&environ)?;
    if is_alive(owner) {
        return None;
    }
    kill_process(Pid::from_raw(pid)?, Signal::KILL).ok()
}

/// The owner named in a process's environment.
fn owner_in(environ: &[u8]) -> Option<(i32, u64)> {
    let prefix = format!("{OWNER}=");
    let value =
        environ.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()))?;
    let (pid, start) = std::str::from_utf8(value).ok()?.split_once(':')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// Whether the process of this id and start time is alive.
pub(crate) fn is_alive((pid, start): (i32, u64)) -> bool {
    let stat = Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime == start && !matches!(stat.state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn only_what_nobody_owns_is_ended() {
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null());
            command
        };
        // No process has this id: it is above Linux's largest.
        let mut left = sleep().env(OWNER, "4194999:1").spawn().unwrap();
        let mut owned = sleep();
        mark(&mut owned).unwrap();
        let mut owned = owned.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        // A lab of another test may end it first, and a process that has just started has no
        // environment.
        let status = loop {
            if let Some(status) = left.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it still runs");
            remove_leftovers();
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it must not end by itself");
        assert!(owned.try_wait().unwrap().is_none());
        owned.kill().unwrap();
        owned.wait().unwrap();
    }

    #[test]
    fn an_owner_is_read_or_not() {
        assert_eq!(owner_in(b"A=1\0FF_LAB_OWNER=7:99\0B=2\0"), Some((7, 99)));
        assert_eq!(owner_in(b"XFF_LAB_OWNER=7:99\0"), None);
        assert_eq!(owner_in(b"FF_LAB_OWNER=7\0"), None);
        assert_eq!(owner_in(b""), None);
    }
}
