//! Takes CPU time from a process in slices, as a busy or virtual machine does.
//!
//! The process is moved to its own cgroup, in which the kernel lets it run for a part of each
//! period and stops it for the rest. Works with version 1 (a mounted `cpu` controller) and version
//! 2 (`cpu` enabled at the root).
//!
//! The next quota, or the next lab with hosts, removes cgroups of killed processes.
//!
//! Limits: threads of the process share the quota. Child processes are limited too, and are left in
//! the cgroup's parent afterwards.

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

/// A process under a CPU quota; dropping it lifts the quota.
#[derive(Debug)]
pub struct CpuQuota {
    hierarchy: Hierarchy,
    /// Directory of the cgroup.
    dir: PathBuf,
    /// Path of `cgroup.procs` of the previous cgroup.
    home: PathBuf,
    pid: u32,
    period: Duration,
    /// CPU time of the process when the quota began.
    cpu_before: Duration,
}

/// Effects of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaStats {
    /// Periods in which the process was runnable.
    pub periods: u64,
    /// Periods in which it was stopped.
    pub throttled_periods: u64,
    /// Time for which it was stopped, summed over the cores.
    pub throttled_time: Duration,
    /// CPU time used under the quota.
    pub usage: Duration,
}

impl CpuQuota {
    /// Limits a process to a percentage of one core, in slices of `period`.
    ///
    /// A period is 1 ms to 1 s, and the process's time in each at least 1 ms.
    ///
    /// # Errors
    /// [`Error::Quota`] if there is no writable cgroup or the process has ended.
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

    /// Changes the percentage of one core, or lifts the quota; the period stays.
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

    /// Effects so far.
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

/// Removes cgroups whose owners were killed.
pub(crate) fn remove_left() {
    // Without cgroups there are none to remove.
    if let Ok(hierarchy) = Hierarchy::mounted() {
        remove_left_in(&hierarchy);
    }
}

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

/// Owner named in a cgroup's name: process id and start time.
fn owner(name: &str) -> Option<(i32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?;
    Some(owner)
}

/// Moves all processes to another cgroup and removes this one; returns whether it is gone.
fn empty_and_remove(dir: &Path, home: &Path) -> bool {
    // The cgroup contains the process, if it lives, and its children.
    for _ in 0..100 {
        for pid in fs::read_to_string(dir.join(PROCS)).unwrap_or_default().lines() {
            let _ = fs::write(home, pid);
        }
        // A process occupies its cgroup until it is reaped.
        if fs::remove_dir(dir).is_ok() || !dir.exists() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Prefix of cgroup names.
const PREFIX: &str = "ff-lab-";

/// File that lists a cgroup's processes.
const PROCS: &str = "cgroup.procs";

/// Number of cgroups created by this process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Writes a cgroup file.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| failed(&format!("write {text:?} to"), path, &error))
}

/// Error about a cgroup file.
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
