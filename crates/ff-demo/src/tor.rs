//! A relay in a process of its own, to be measured by this one: the `tor` that the user gives.
//!
//! ```text
//!   TorHost::start ──▶ data directory, torrc ──▶ process ──▶ its log says that it accepts links
//!         drop    ──▶ SIGTERM, and SIGKILL if that is not enough
//! ```
//!
//! It keeps to itself on loopback. Should this process be killed, tor notices within 15 seconds
//! and ends as well. Its data directory stays, with the log, until the next demo.

mod data_dir;
mod torrc;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ff_coordinator::measure::Progress;
use ff_proto::units::BytesPerSec;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use tor_llcrypto::pk::ed25519::Ed25519Identity;

/// How long tor may take until it accepts links; about a second on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to end after SIGTERM, on which it only writes its state.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the system may take from closing its links to its end; a core dump may take longer.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often it is looked at meanwhile.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// How much of what tor has said stands in an error, in lines and in bytes.
const TAIL: (usize, i64) = (8, 4096);
/// The file of what tor prints, in its data directory.
const OUTPUT: &str = "output";
/// What to do without a FlashFlow tor.
const BUILD_ONE: &str = "build a tor for --tor with crates/ff-relay-ext/tor/build-tor";

/// Which tor to start, and as what relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TorConfig<'a> {
    pub(crate) program: &'a Path,
    /// Where its data directory goes, as `tor`; what an earlier demo left there is removed.
    pub(crate) dir: &'a Path,
    /// FlashFlow's options, by name.
    pub(crate) options: &'a [(&'static str, String)],
    /// What its traffic is limited to.
    pub(crate) limit: Option<BytesPerSec>,
    /// The core it runs on.
    pub(crate) core: Option<usize>,
}

/// A running tor; the process ends when this is dropped.
#[derive(Debug)]
pub(crate) struct TorHost {
    process: Process,
    /// Its OR port.
    addr: SocketAddr,
    ed_identity: Ed25519Identity,
}

impl TorHost {
    /// Starts it and waits until it accepts links.
    ///
    /// # Errors
    /// When the program does not exist, when its data directory cannot be made, and when it does
    /// not get ready; the text has tor's output.
    pub(crate) async fn start(
        config: &TorConfig<'_>,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<Self> {
        let program = find_program(config.program)?;
        let dir = data_dir::make_fresh(config.dir)?;
        let torrc = dir.join(data_dir::TORRC);
        fs::write(&torrc, torrc::text(&dir, config.options, config.limit))
            .with_context(|| format!("Failed to write {}", torrc.display()))?;
        let mut process = Process::spawn(program, dir, config.core)?;
        watch(Progress::Step("waiting until tor accepts links"));
        let (addr, ed_identity) = process.wait_until_ready().await?;
        Ok(Self { process, addr, ed_identity })
    }

    /// Its OR port.
    #[must_use]
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    #[must_use]
    pub(crate) fn ed_identity(&self) -> Ed25519Identity {
        self.ed_identity
    }

    /// CPU time of all its threads so far; `None` when the system does not tell.
    #[must_use]
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.child.id())).ok()?;
        let micros_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Duration::from_micros(cpu_ticks(&stat)? * micros_per_tick))
    }

    /// How it has ended and where its log is, in one line; `None` while it runs.
    pub(crate) async fn end(&mut self) -> Option<String> {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        // A process that ends closes its links a moment before it has ended.
        let status = loop {
            match self.process.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => tokio::time::sleep(POLL_PERIOD).await,
                _ => return None,
            }
        };
        let log = self.process.dir.join(torrc::LOG);
        Some(format!("tor has ended ({status}), and its log is {}", log.display()))
    }
}

/// The path as one that does not depend on the current directory, if there is a file.
fn find_program(path: &Path) -> Result<PathBuf> {
    if !path.is_file() {
        bail!("there is no program {}: {BUILD_ONE}", path.display());
    }
    std::path::absolute(path).with_context(|| format!("Failed to find {}", path.display()))
}

/// A process that ends when this is dropped, and its data directory.
#[derive(Debug)]
struct Process {
    program: PathBuf,
    /// Its data directory.
    dir: PathBuf,
    /// The process.
    child: Child,
}

impl Process {
    /// Starts tor with the torrc in `dir`, on this core if one is given.
    fn spawn(program: PathBuf, dir: PathBuf, core: Option<usize>) -> Result<Self> {
        let failed = || format!("Failed to start {}", program.display());
        // Errors of the configuration come before tor opens its log. (With --quiet they would not
        // come at all, and with --hush the log would not have the port.)
        let output = File::create(dir.join(OUTPUT)).with_context(failed)?;
        let errors = output.try_clone().with_context(failed)?;
        let child = Command::new(&program)
            .args(["--defaults-torrc", "/dev/null", "-f"])
            .arg(dir.join(data_dir::TORRC))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(failed)?;
        if let Some(core) = core {
            let mut cores = CpuSet::new();
            cores.set(core);
            // Now, before it has threads: those inherit it. Where that is not allowed, the relay
            // and the measurers share their cores, and the measurement says what it comes to.
            let _ = sched_setaffinity(Some(Pid::from_child(&child)), &cores);
        }
        Ok(Self { program, dir, child })
    }

    /// Waits for the address of its OR port and its identity.
    async fn wait_until_ready(&mut self) -> Result<(SocketAddr, Ed25519Identity)> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            let program = &self.program;
            let status = self.child.try_wait();
            let status =
                status.with_context(|| format!("Failed to watch {}", program.display()))?;
            if let Some(status) = status {
                return Err(self.ended(status));
            }
            let log = fs::read(self.dir.join(torrc::LOG)).unwrap_or_default();
            let identity = fs::read_to_string(self.dir.join("fingerprint-ed25519"));
            if let Some(addr) = ready_addr(&String::from_utf8_lossy(&log))
                && let Some(identity) = identity.ok().as_deref().and_then(parse_fingerprint)
            {
                return Ok((addr, identity));
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
        bail!(
            "{} does not accept links after {} s{}",
            self.program.display(),
            START_TIMEOUT.as_secs(),
            self.said()
        )
    }

    /// The error for a process that has ended by itself.
    fn ended(&self, status: ExitStatus) -> anyhow::Error {
        let said = self.said();
        // Tor names the first option that it does not know; FlashFlow's all begin like this.
        if said.contains("Unknown option 'FF") {
            let program = self.program.display();
            return anyhow!("this tor has no FlashFlow target ({program}): {BUILD_ONE}{said}");
        }
        anyhow!("{} ended ({status}){said}", self.program.display())
    }

    /// The last lines of what it said, to stand at the end of an error.
    fn said(&self) -> String {
        let (mut text, mut files) = (String::new(), Vec::new());
        for name in [OUTPUT, torrc::LOG] {
            let path = self.dir.join(name);
            let end = end_of(&path);
            if !end.trim().is_empty() {
                text.push_str(&end);
                files.push(path.display().to_string());
            }
        }
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        if lines.is_empty() {
            return ", and said nothing".to_owned();
        }
        let last = &lines[lines.len().saturating_sub(TAIL.0)..];
        format!("; the end of {}:\n  {}", files.join(" and "), last.join("\n  "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let deadline = Instant::now() + END_TIMEOUT;
        // Its id is its own until it has been waited for. An error means that it has ended.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(POLL_PERIOD);
        }
    }
}

/// The address of the OR port, once the log says that tor is up.
fn ready_addr(log: &str) -> Option<SocketAddr> {
    // The last line of start-up: the keys exist and the main loop runs.
    log.find("Bootstrapped 0%")?;
    let is_listener = |line: &&str| line.contains("Opened OR listener connection (ready) on");
    log.lines().find(is_listener)?.rsplit(' ').next()?.parse().ok()
}

/// The identity in a fingerprint file: a nickname, a blank and base64.
fn parse_fingerprint(text: &str) -> Option<Ed25519Identity> {
    Ed25519Identity::from_base64(text.split_whitespace().nth(1)?)
}

/// Ticks of CPU time in user and kernel mode, from `/proc/PID/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, with any characters in it.
    let (_, after_name) = stat.rsplit_once(')')?;
    // proc_pid_stat(5): utime is field 14 and stime 15; the first here is field 3.
    let mut ticks = after_name.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(ticks.next()?.ok()? + ticks.next()?.ok()?)
}

/// The end of a file, as far as it can be read.
fn end_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        // A shorter file is read from its beginning.
        let _ = file.seek(SeekFrom::End(-TAIL.1));
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_comes_when_tor_is_up_and_not_before() {
        let listener = "Nov 20 12:00:00.000 [notice] Opened OR listener connection (ready) on \
                        127.0.0.1:34567\n";
        assert_eq!(ready_addr(listener), None);
        let log = format!("{listener}Nov 20 12:00:01.000 [notice] Bootstrapped 0% (starting)\n");
        assert_eq!(ready_addr(&log), Some(SocketAddr::from(([127, 0, 0, 1], 34567))));
    }

    #[test]
    fn a_fingerprint_that_is_half_written_is_none() {
        let text = "ffdemo AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM\n";
        assert_eq!(parse_fingerprint(text), Some([3; 32].into()));
        assert_eq!(parse_fingerprint("ffdemo AwMDAwMD"), None);
        assert_eq!(parse_fingerprint(""), None);
    }

    #[test]
    fn cpu_ticks_are_found_behind_any_name() {
        let stat = "7 (a) tor (b)) S 1 2 3 4 -1 6 7 8 9 10 250 50 0 0 20 0 3 0 5 6";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("7 (tor) S 1 2"), None);
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(cpu_ticks(&own).is_some(), "{own}");
    }

    #[test]
    fn only_the_end_of_a_long_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(end_of(&path), "");
        fs::write(&path, "short").unwrap();
        assert_eq!(end_of(&path), "short");
        fs::write(&path, "x".repeat(10_000)).unwrap();
        assert_eq!(end_of(&path).len(), 4096);
    }
}
