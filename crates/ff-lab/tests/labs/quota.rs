//! A CPU quota on a process that would use a whole core.
//!
//! Needs root and a writable `cpu` cgroup; fails without one, with an error that says so.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ff_lab::{CpuQuota, QuotaStats};

/// A process in a busy loop; dropping it ends it.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Share of a core used during `time`, and the quota's statistics.
fn watch(quota: &CpuQuota, time: Duration) -> (f64, QuotaStats) {
    let stats = || quota.stats().expect("the process is there");
    let (begin, before) = (Instant::now(), stats());
    std::thread::sleep(time);
    let after = stats();
    let used = (after.usage - before.usage).as_secs_f64() / begin.elapsed().as_secs_f64();
    eprintln!("used {used:.3} of a core: {after:?}");
    (used, after)
}

/// Waits until `is_so`. Other work may keep the process below its quota for long.
fn wait_for(quota: &CpuQuota, is_so: impl Fn(f64, QuotaStats) -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while Instant::now() < end {
        let (used, stats) = watch(quota, Duration::from_secs(1));
        if is_so(used, stats) {
            return;
        }
    }
    panic!("it did not come");
}

#[test]
fn a_quota_holds_changes_and_goes() {
    let busy = Busy::start();
    let pid = busy.0.id();
    let cgroup = || fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let before = cgroup();

    // 2 ms in each period, less than a time slice on a shared core.
    let quota = CpuQuota::set(pid, 2.0, Duration::from_millis(100)).unwrap();
    assert_ne!(cgroup(), before);
    let (used, _) = watch(&quota, Duration::from_secs(2));
    assert!(used < 0.04, "{used}");
    wait_for(&quota, |_, stats| {
        stats.periods >= stats.throttled_periods
            && stats.throttled_periods >= 3
            && !stats.throttled_time.is_zero()
    });

    quota.change(Some(50.0)).unwrap();
    // More than the old quota allowed, and never more than the new one.
    wait_for(&quota, |used, _| {
        assert!(used < 0.58, "{used}");
        used > 0.06
    });

    quota.change(None).unwrap();
    let throttled = quota.stats().unwrap().throttled_periods;
    let (_, stats) = watch(&quota, Duration::from_millis(300));
    assert!(stats.throttled_periods <= throttled + 1, "{stats:?}");

    drop(quota);
    assert_eq!(cgroup(), before);
}

#[test]
fn a_quota_outlives_its_process_and_still_goes() {
    let busy = Busy::start();
    let quota = CpuQuota::set(busy.0.id(), 50.0, Duration::from_millis(100)).unwrap();
    let text = fs::read_to_string(format!("/proc/{}/cgroup", busy.0.id())).unwrap();
    let name = text.split('/').find(|part| part.starts_with("ff-lab-")).unwrap();
    let name = name.lines().next().unwrap();
    let dirs = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let exists = || dirs.iter().any(|dir| Path::new(dir).join(name).exists());
    assert!(exists());
    drop(busy);
    assert!(quota.stats().is_err());
    drop(quota);
    assert!(!exists());
}

/// The next quota removes cgroups of killed processes, and no others.
#[test]
fn cgroups_of_the_living_and_of_others_are_left_alone() {
    let busy = Busy::start();
    let quota = |percent| CpuQuota::set(busy.0.id(), percent, Duration::from_millis(100)).unwrap();
    let first = quota(50.0);
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let text = fs::read_to_string(format!("/proc/{}/cgroup", busy.0.id())).unwrap();
    let name = text.split('/').find(|part| part.starts_with("ff-lab-")).unwrap().lines().next();
    let name = name.unwrap();
    let root = roots.map(Path::new).into_iter().find(|root| root.join(name).exists()).unwrap();
    let own = name.rsplit_once('-').unwrap().0;
    let id = std::process::id();
    // No process has the first id: it is above Linux's largest.
    let names = [
        format!("ff-lab-4194999-{id}-0"),
        format!("{own}-4444"),
        format!("ff-lab-test-of-somebody-{id}"),
    ];
    let [left, alive, other] = names.map(|name| root.join(name));
    for dir in [&left, &alive, &other] {
        fs::create_dir(dir).unwrap();
    }
    drop(quota(60.0));
    let found = [&left, &alive, &other].map(|dir| dir.exists());
    for dir in [&alive, &other] {
        fs::remove_dir(dir).unwrap();
    }
    assert_eq!(found, [false, true, true]);
    drop(first);
}

#[test]
fn a_process_that_is_not_there_has_no_quota() {
    let busy = Busy::start();
    let pid = busy.0.id();
    drop(busy);
    let error = CpuQuota::set(pid, 50.0, Duration::from_millis(100)).unwrap_err();
    assert!(error.to_string().contains("needs root"), "{error}");
}
