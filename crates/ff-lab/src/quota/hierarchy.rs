//! Paths and file names of both versions of cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{PROCS, QuotaStats, failed};
use crate::error::{Error, Result};

/// A mounted cgroup hierarchy that can limit CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hierarchy {
    /// Version 1, with the `cpu` controller.
    V1(PathBuf),
    /// Version 2.
    V2(PathBuf),
}

impl Hierarchy {
    /// Finds the mounted hierarchy and enables its CPU controller.
    pub(super) fn find() -> Result<Self> {
        let found = Self::mounted()?;
        found.enable()?;
        Ok(found)
    }

    /// Finds the mounted hierarchy.
    pub(super) fn mounted() -> Result<Self> {
        let path = Path::new("/proc/self/mounts");
        let mounts = fs::read_to_string(path).map_err(|error| failed("read", path, &error))?;
        Self::among(&mounts).ok_or_else(|| Error::Quota("neither is mounted".to_owned()))
    }

    /// Version 1 if it has the controller, as version 2 cannot have it then; otherwise version 2.
    fn among(mounts: &str) -> Option<Self> {
        let mounts = || mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let v1 = mounts().find_map(|fields| match fields[..] {
            [_, dir, "cgroup", options, ..] => {
                options.split(',').any(|option| option == "cpu").then(|| Self::V1(dir.into()))
            }
            _ => None,
        });
        let v2 = || {
            mounts().find_map(|fields| match fields[..] {
                [_, dir, "cgroup2", ..] => Some(Self::V2(dir.into())),
                _ => None,
            })
        };
        v1.or_else(v2)
    }

    /// Enables the controller for cgroups below the root.
    fn enable(&self) -> Result<()> {
        let Self::V2(root) = self else { return Ok(()) };
        let path = root.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
        if enabled.split_whitespace().any(|controller| controller == "cpu") {
            return Ok(());
        }
        super::write(&path, "+cpu")
    }

    /// Directory in which cgroups are created.
    pub(super) fn root(&self) -> &Path {
        match self {
            Self::V1(root) | Self::V2(root) => root,
        }
    }

    /// Path of `cgroup.procs` of a process's cgroup; the root's if the cgroup is not visible.
    pub(super) fn home_of(&self, pid: u32) -> Result<PathBuf> {
        let file = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let text = fs::read_to_string(&file).map_err(|error| failed("read", &file, &error))?;
        let dir = text.lines().find_map(|line| self.dir_in(line)).unwrap_or_default();
        let procs = self.root().join(dir.trim_start_matches('/')).join(PROCS);
        Ok(if procs.exists() { procs } else { self.root().join(PROCS) })
    }

    /// Path in a line `number:controllers:path`, if it belongs to this hierarchy.
    fn dir_in<'a>(&self, line: &'a str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_ours = match self {
            Self::V1(_) => controllers.split(',').any(|controller| controller == "cpu"),
            Self::V2(_) => controllers.is_empty(),
        };
        is_ours.then_some(path)
    }

    /// Files and contents for a period and its quota, both in µs.
    pub(super) fn settings(&self, period: u128, quota: Option<u128>) -> Vec<(&str, String)> {
        match self {
            Self::V1(_) => vec![
                ("cpu.cfs_period_us", period.to_string()),
                ("cpu.cfs_quota_us", quota.map_or("-1".to_owned(), |quota| quota.to_string())),
            ],
            Self::V2(_) => {
                let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
                vec![("cpu.max", format!("{quota} {period}"))]
            }
        }
    }

    /// Parses `cpu.stat`, except the usage.
    pub(super) fn parse_stats(&self, text: &str) -> QuotaStats {
        let value = |key| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        QuotaStats {
            periods: value("nr_periods"),
            throttled_periods: value("nr_throttled"),
            throttled_time: match self {
                Self::V1(_) => Duration::from_nanos(value("throttled_time")),
                Self::V2(_) => Duration::from_micros(value("throttled_usec")),
            },
            usage: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_the_controller_is_taken() {
        let both = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let v1 = Hierarchy::V1("/sys/fs/cgroup/cpu,cpuacct".into());
        assert_eq!(Hierarchy::among(both), Some(v1.clone()));
        let v2 = Hierarchy::V2("/sys/fs/cgroup".into());
        let one = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(Hierarchy::among(one), Some(v2.clone()));
        assert_eq!(Hierarchy::among("proc /proc proc rw 0 0\n"), None);
        assert_eq!(v1.dir_in("4:cpu,cpuacct:/a:b"), Some("/a:b"));
        assert_eq!(v1.dir_in("3:cpuset:/a"), None);
        assert_eq!(v2.dir_in("0::/user.slice"), Some("/user.slice"));
    }

    #[test]
    fn both_versions_have_their_files() {
        let v1 = Hierarchy::V1(PathBuf::new());
        let [period, quota] = &v1.settings(100_000, None)[..] else { panic!("two files") };
        assert_eq!((period.1.as_str(), quota.1.as_str()), ("100000", "-1"));
        let v2 = Hierarchy::V2(PathBuf::new());
        assert_eq!(v2.settings(100_000, Some(5000)), [("cpu.max", "5000 100000".to_owned())]);
        assert_eq!(v2.settings(100_000, None), [("cpu.max", "max 100000".to_owned())]);
    }

    #[test]
    fn both_versions_have_their_units() {
        let v1 = Hierarchy::V1(PathBuf::new());
        let stats = v1.parse_stats("nr_periods 7\nnr_throttled 5\nthrottled_time 3000000\n");
        assert_eq!((stats.periods, stats.throttled_periods), (7, 5));
        assert_eq!(stats.throttled_time, Duration::from_millis(3));
        let v2 = Hierarchy::V2(PathBuf::new());
        let stats = v2.parse_stats("usage_usec 9\nnr_periods 7\nthrottled_usec 3000\n");
        assert_eq!(stats.throttled_time, Duration::from_millis(3));
    }
}
