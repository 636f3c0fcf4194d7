//! Takes CPU time away from a process in slices, as a busy or a virtual machine does.
//!
//! The process is put into a cgroup of its own, in which the kernel lets it run for a part of
//! each period and then stops it until the next. Works with version 1 (a mounted `cpu`
//! controller) and version 2 (`cpu` enabled at the root).
//!
//! Limits: threads of the process share the quota. Processes that it starts are under it too,
//! and stay in the cgroup's parent afterwards.

mod hierarchy;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::process::cpu_time;
use hierarchy::Hierarchy;

/// A process under a CPU quota; dropping it gives the process all its time back.
#[derive(Debug)]
pub struct CpuQuota {
    /// Where the cgroup is.
    hierarchy: Hierarchy,
    /// The cgroup's directory.
    dir: PathBuf,
    /// The `cgroup.procs` that the process was in.
    home: PathBuf,
    /// The process.
    pid: u32,
    /// The length of a period.
    period: Duration,
    /// CPU time of the process when it was put under the quota.
    cpu_before: Duration,
}

/// What a quota did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaStats {
    /// Periods in which the process wanted to run.
    pub periods: u64,
    /// Periods in which it was stopped.
    pub throttled_periods: u64,
    /// How long it was stopped, added up over the cores.
    pub throttled_time: Duration,
    /// CPU time it has used since it was put under the quota.
    pub usage: Duration,
}

impl CpuQuota {
    /// Lets a process run for a percentage of one core's time, in slices of this period.
    ///
    /// A period is from 1 ms to 1 s, the time in each of them at least 1 ms.
    ///
    /// # Errors
    /// [`Error::Quota`] if there is no writable cgroup, and if the process has ended.
    pub fn set(pid: u32, percent: f64, period: Duration) -> Result<Self> {
        let hierarchy = Hierarchy::find()?;
        let home = hierarchy.home_of(pid)?;
        let cpu_before = cpu_time(pid).map_err(|error| Error::Quota(error.to_string()))?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = hierarchy.root().join(format!("ff-lab-{}-{number}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| failed("make", &dir, &error))?;
        let quota = Self { hierarchy, dir, home, pid, period, cpu_before };
        quota.change(Some(percent))?;
        write(&quota.dir.join(PROCS), &pid.to_string())?;
        Ok(quota)
    }

    /// Sets another percentage of one core, or takes the quota off; the period stays.
    ///
    /// # Errors
    /// [`Error::Quota`] if the kernel refuses it.
    pub fn change(&self, percent: Option<f64>) -> Result<()> {
        let period = self.period.as_micros();
        let quota = percent.map(|percent| self.period.mul_f64(percent / 100.0).as_micros());
        for (file, text) in self.hierarchy.settings(period, quota) {
            write(&self.dir.join(file), &text)?;
        }
        Ok(())
    }

    /// What the quota has done so far.
    ///
    /// # Errors
    /// [`Error::Quota`] if the process has ended.
    pub fn stats(&self) -> Result<QuotaStats> {
        let path = self.dir.join("cpu.stat");
        let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
        let now = cpu_time(self.pid).map_err(|error| Error::Quota(error.to_string()))?;
        let usage = now.saturating_sub(self.cpu_before);
        Ok(QuotaStats { usage, ..self.hierarchy.parse_stats(&text) })
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        // What is in there is the process, if it lives, and those it has started.
        for _ in 0..100 {
            for pid in fs::read_to_string(self.dir.join(PROCS)).unwrap_or_default().lines() {
                let _ = fs::write(&self.home, pid);
            }
            // A process that has just ended occupies its cgroup until it was waited for.
            if fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        tracing::warn!("could not remove {}", self.dir.display());
    }
}

/// The file with a cgroup's processes.
const PROCS: &str = "cgroup.procs";

/// Numbers the cgroups of this process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Writes a file of a cgroup.
fn write(path: &std::path::Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| failed(&format!("write {text:?} to"), path, &error))
}

/// The error for this file.
fn failed(what: &str, path: &std::path::Path, error: &std::io::Error) -> Error {
    Error::Quota(format!("cannot {what} {}: {error}", path.display()))
}
