//! Takes CPU time away from a process in slices, as a busy or a virtual machine does.
//!
//! The process is put into a cgroup of its own, in which the kernel lets it run for a part of
//! each period and then stops it until the next. Works with version 1 (a mounted `cpu`
//! controller) and version 2 (`cpu` enabled at the root).
//!
//! What a killed process leaves, the next quota or the next lab with hosts removes.
//!
//! Limits: threads of the process share the quota. Processes that it starts are under it too,
//! and stay in the cgroup's parent afterwards.

mod hierarchy;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::leftovers::{is_alive, own_name};
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
        remove_left_in(&hierarchy);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (own, start) = own_name()?;
        let dir = hierarchy.root().join(format!("{PREFIX}{own}-{start}-{number}"));
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

    /// The statistics of the quota so far.
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
        if !empty_and_remove(&self.dir, &self.home) {
            tracing::warn!("could not remove {}", self.dir.display());
        }
    }
}

/// Removes the cgroups of quotas whose owner was killed.
pub(crate) fn remove_left() {
    // A machine without cgroups has none left over.
    if let Ok(hierarchy) = Hierarchy::mounted() {
        remove_left_in(&hierarchy);
    }
}

/// The same of a hierarchy.
fn remove_left_in(hierarchy: &Hierarchy) {
    for entry in fs::read_dir(hierarchy.root()).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|owner| !is_alive(owner))
            && empty_and_remove(&entry.path(), &hierarchy.root().join(PROCS))
        {
            tracing::info!("removed {}, left over from a killed lab", entry.path().display());
        }
    }
}

/// The owner of a cgroup by its name: a process id, and when that process began.
fn owner(name: &str) -> Option<(i32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?;
    Some(owner)
}

/// Moves all processes of a cgroup to another, and removes it; whether it is gone.
fn empty_and_remove(dir: &Path, home: &Path) -> bool {
    // What is in there is the process, if it lives, and those it has started.
    for _ in 0..100 {
        for pid in fs::read_to_string(dir.join(PROCS)).unwrap_or_default().lines() {
            let _ = fs::write(home, pid);
        }
        // A process that has just ended occupies its cgroup until it was waited for.
        if fs::remove_dir(dir).is_ok() || !dir.exists() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// What the names of cgroups begin with.
const PREFIX: &str = "ff-lab-";

/// The file with a cgroup's processes.
const PROCS: &str = "cgroup.procs";

/// Numbers the cgroups of this process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Writes a file of a cgroup.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| failed(&format!("write {text:?} to"), path, &error))
}

/// The error for this file.
fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Quota(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_its_owner_in_its_name() {
        assert_eq!(owner("ff-lab-12-345-0"), Some((12, 345)));
        for other in ["ff-lab-12-0", "ff-lab-x-1-2", "ff-lab", "12-345-0", "ff-lab--1-2"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
