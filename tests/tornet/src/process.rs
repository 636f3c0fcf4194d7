//! One child process, ended for certain, and what `/proc` says of it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A child process; dropping it ends it and waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    /// The child, which is waited for exactly once.
    child: Child,
}

impl Process {
    /// Starts a command whose output goes to a file, on one core if one is given.
    pub(crate) fn spawn(
        command: &mut Command,
        output: &Path,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(output)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = match core {
            None => command.spawn()?,
            // A child inherits the cores of the thread that starts it. Pinning it afterwards
            // would miss the threads it has by then.
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

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.exit_status().is_some() {
            return Ok(());
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Asks the process to end, waits a moment, and kills it if it has not ended.
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

/// How long a tor has after SIGTERM; it needs about 10 ms, and a second on a busy machine.
const TERM_GRACE: Duration = Duration::from_secs(3);

/// Resident memory of a process.
pub(crate) fn rss_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("no VmRSS of {pid}")))
}

/// CPU time of a process's living threads, in nanoseconds as the scheduler counts it.
///
/// A thread that has ended takes its share with it; tor's threads live as long as it does.
pub(crate) fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the two steps.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let nanos = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
        total += nanos.ok_or_else(|| io::Error::other(format!("no CPU time in {text:?}")))?;
    }
    Ok(Duration::from_nanos(total))
}

/// How many of a process's file descriptors are sockets.
pub(crate) fn open_sockets(pid: u32) -> io::Result<usize> {
    let mut sockets = 0;
    for fd in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(target) = fs::read_link(fd?.path()) else { continue };
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn proc_is_understood() {
        let pid = std::process::id();
        assert!(rss_bytes(pid).unwrap() > 100_000);
        let before = cpu_time(pid).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {}
        assert!(cpu_time(pid).unwrap() > before);
        let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(open_sockets(pid).unwrap() >= 1);
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
