//! A child process that always ends with its owner, and its figures in `/proc`.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use procfs::net::TcpState;
use procfs::process::FDTarget;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A child process; dropping it ends it and waits for its exit.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a command with its output in a file, pinned to `core` if given.
    pub(crate) fn spawn(
        command: &mut Command,
        output: &Path,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(output)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = match core {
            None => command.spawn()?,
            // A child inherits the cores of the thread that starts it. Pinning it later would miss
            // threads that it has by then.
            Some(core) => thread::scope(|scope| {
                let spawn = scope.spawn(|| {
                    let mut cores = CpuSet::new();
                    cores.set(core);
                    sched_setaffinity(None, &cores)?;
                    command.spawn()
                });
                spawn.join().map_err(|_| io::Error::other("the starting thread panicked"))?
            })?,
        };
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Exit status, if it has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal unless the process has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.exit_status().is_some() {
            return Ok(());
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Asks the process to end, and kills it if it has not ended soon.
    pub(crate) fn end(&mut self) {
        let _ = self.signal(Signal::TERM);
        let deadline = Instant::now() + TERM_GRACE;
        while Instant::now() < deadline {
            if self.exit_status().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Time for a tor to end after SIGTERM; it needs about 10 ms, or a second on a busy machine.
const TERM_GRACE: Duration = Duration::from_secs(3);

/// A TCP connection of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    /// Address of the process's end.
    pub(crate) local: SocketAddr,
    /// Address of the other end.
    pub(crate) remote: SocketAddr,
}

/// Resident memory of a process, in bytes.
pub(crate) fn rss_bytes(pid: u32) -> io::Result<u64> {
    let kib = entry(pid)?.status().map_err(io::Error::other)?.vmrss;
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("no VmRSS of {pid}")))
}

/// CPU time of a process's living threads, as the scheduler counts it (ns).
///
/// Excludes threads that have ended; tor's threads live as long as tor.
pub(crate) fn cpu_time(pid: u32) -> io::Result<Duration> {
    let tasks = entry(pid)?.tasks().map_err(io::Error::other)?;
    // A thread may end between the two steps.
    let nanos = tasks.filter_map(|task| task.ok()?.schedstat().ok());
    Ok(Duration::from_nanos(nanos.map(|stat| stat.sum_exec_runtime).sum()))
}

/// Number of a process's file descriptors that are sockets.
pub(crate) fn open_sockets(pid: u32) -> io::Result<usize> {
    Ok(sockets(&entry(pid)?)?.len())
}

/// A process's TCP connections over IPv4.
pub(crate) fn connections(pid: u32) -> io::Result<Vec<Connection>> {
    let process = entry(pid)?;
    let held = sockets(&process)?;
    let table = process.tcp().map_err(io::Error::other)?.into_iter();
    let own = table.filter(|row| row.state != TcpState::Listen && held.contains(&row.inode));
    Ok(own.map(|row| Connection { local: row.local_address, remote: row.remote_address }).collect())
}

/// The `/proc` entry of a process.
fn entry(pid: u32) -> io::Result<procfs::process::Process> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    procfs::process::Process::new(pid).map_err(io::Error::other)
}

/// Inodes of a process's sockets.
fn sockets(process: &procfs::process::Process) -> io::Result<HashSet<u64>> {
    let files = process.fd().map_err(io::Error::other)?;
    // A file may be closed between the two steps.
    let inode = |target| match target {
        FDTarget::Socket(inode) => Some(inode),
        _ => None,
    };
    Ok(files.filter_map(|file| inode(file.ok()?.target)).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn proc_is_understood() {
        let pid = std::process::id();
        assert!(rss_bytes(pid).unwrap() > 100_000);
        let before = cpu_time(pid).unwrap();
        // On a busy machine it may take a while until the counter increases.
        while cpu_time(pid).unwrap() <= before {}
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let connection = Connection { local: ends.0, remote: ends.1 };
        assert!(open_sockets(pid).unwrap() >= 2);
        assert!(connections(pid).unwrap().contains(&connection));
        drop(client);
        assert!(!connections(pid).unwrap().contains(&connection));
    }

    #[test]
    fn a_process_that_ignores_sigterm_ends_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out");
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]);
        let process = Process::spawn(&mut command, &output, Some(0)).unwrap();
        while fs::read_to_string(&output).unwrap().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let pid = process.pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
