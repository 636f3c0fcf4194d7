//! Checks this host: its clock and its kernel.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use crate::watch::figures::Surroundings;

/// The least value for the maximum of TCP's buffers, in bytes: Linux's default on hosts with a few
/// GB, and the default for sending in the paper's appendix D. With twenty links or more it is
/// enough for 1 Gbit/s over 118 ms, because links share the bytes in flight.
pub(super) const BUFFER_BYTES: u64 = 4 << 20;
/// The value in the paper's appendix D, with which a single link carries 1 Gbit/s over 118 ms.
pub(super) const TUNED_BUFFER_BYTES: u64 = 64 << 20;
/// The least limit of open files for the coordinator: the store, the directory's links, the page, a
/// link to each relay.
const FILES: u64 = 1024;

/// Carries out these checks.
pub(super) fn look() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).ok();
    vec![
        clock(Clock::read()),
        buffers("tcp_wmem", read("/proc/sys/net/ipv4/tcp_wmem").as_deref()),
        buffers("tcp_rmem", read("/proc/sys/net/ipv4/tcp_rmem").as_deref()),
        congestion(
            "congestion control",
            read("/proc/sys/net/ipv4/tcp_congestion_control").as_deref(),
        ),
        files(getrlimit(Resource::Nofile).current),
        memory(),
    ]
}

/// The state of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// Synchronised, with the largest error in microseconds.
    Kept(libc::c_long),
    /// Not synchronised.
    Alone,
    /// The kernel does not report it.
    Unknown,
}

impl Clock {
    /// Asks the kernel.
    #[expect(unsafe_code, reason = "there is no other way to ask for the clock's state")]
    fn read() -> Self {
        // SAFETY: the struct has integers only, for all of which zero is a value.
        let mut state: libc::timex = unsafe { core::mem::zeroed() };
        // SAFETY: the pointer is to a struct of the kernel's own type, which lives on the stack.
        // With no mode set, the kernel fills it and changes nothing.
        let answer = unsafe { libc::adjtimex(&raw mut state) };
        match answer {
            -1 => Self::Unknown,
            _ if answer == libc::TIME_ERROR || state.status & libc::STA_UNSYNC != 0 => Self::Alone,
            _ => Self::Kept(state.maxerror),
        }
    }
}

/// The finding for this state of the clock.
fn clock(clock: Clock) -> Finding {
    const ABOUT: &str = "clock";
    const ADVICE: &str = "install chrony or turn on systemd-timesyncd: periods begin by the clock, and all \
                          coordinators must begin them together";
    match clock {
        Clock::Kept(micros) if micros <= 500_000 => {
            Finding::ok(ABOUT, format!("synchronised, error at most {} ms", micros / 1000))
        }
        Clock::Kept(micros) => Finding::warn(
            ABOUT,
            format!("it may be off by {} ms", micros / 1000),
            "run chronyc tracking",
        ),
        Clock::Alone => Finding::bad(ABOUT, "the clock is not synchronised (adjtimex)", ADVICE),
        Clock::Unknown => {
            Finding::warn(ABOUT, "the kernel does not report whether it is synchronised", ADVICE)
        }
    }
}

/// Checks a setting of three numbers, of which the last is the largest size of a buffer.
fn buffers(name: &str, line: Option<&str>) -> Finding {
    let most = line
        .and_then(|line| line.split_ascii_whitespace().nth(2))
        .and_then(|word| word.parse().ok());
    match most {
        Some(most) => buffer(&format!("net.ipv4.{name}"), most),
        None => Finding::warn(&format!("net.ipv4.{name}"), "cannot be read from the kernel", ""),
    }
}

/// Checks the largest size of a buffer, in bytes.
pub(super) fn buffer(about: &str, most: u64) -> Finding {
    let mib = most >> 20;
    if most >= BUFFER_BYTES {
        return Finding::ok(about, format!("{mib} MiB at most"));
    }
    let advice = format!(
        "set its third value to {TUNED_BUFFER_BYTES} in /etc/sysctl.d: fast relays far away need it"
    );
    Finding::warn(about, format!("{mib} MiB at most, less than Linux's default of 4"), advice)
}

/// Checks the congestion control.
pub(super) fn congestion(about: &str, name: Option<&str>) -> Finding {
    match name.map(str::trim) {
        Some("cubic") => Finding::ok(about, "cubic, like most relays"),
        Some(name @ ("bbr" | "bbr2" | "bbr3")) => Finding::warn(
            about,
            format!("{name}, which gets a larger share of a link than relays' other traffic"),
            "set net.ipv4.tcp_congestion_control to cubic on measurers: then they get the same share as clients, and \
             results of different teams are comparable",
        ),
        Some("") | None => Finding::warn(about, "cannot be read from the kernel", ""),
        Some(name) => Finding::warn(
            about,
            format!("{name}, which has not been tested"),
            "set net.ipv4.tcp_congestion_control to cubic on measurers",
        ),
    }
}

/// Checks a process's limit of open files.
fn files(most: Option<u64>) -> Finding {
    match most {
        Some(most) if most < FILES => Finding::bad(
            "file descriptors",
            format!("{most} at most"),
            format!("set LimitNOFILE= of the unit, or ulimit -n, to at least {FILES}"),
        ),
        Some(most) => Finding::ok("file descriptors", format!("{most} at most")),
        None => Finding::ok("file descriptors", "unlimited"),
    }
}

/// Checks the host's memory.
fn memory() -> Finding {
    const NEEDED: u64 = 512 << 20;
    let about = "memory";
    match Surroundings::available_bytes() {
        Some(bytes) if bytes < NEEDED => Finding::warn(
            about,
            format!("{} MiB are free", bytes >> 20),
            "a coordinator needs 200 MiB, and the system needs memory too",
        ),
        Some(bytes) => Finding::ok(about, format!("{} MiB are free", bytes >> 20)),
        None => Finding::warn(about, "the kernel does not report how much is free", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::doctor::finding::Level;

    #[test]
    fn the_kernel_is_judged_by_what_measurements_need() {
        for (finding, level) in [
            (clock(Clock::Kept(2000)), Level::Ok),
            (clock(Clock::Kept(900_000)), Level::Warn),
            (clock(Clock::Alone), Level::Bad),
            (clock(Clock::Unknown), Level::Warn),
            (buffers("tcp_rmem", Some("4096\t131072\t6291456\n")), Level::Ok),
            (buffers("tcp_wmem", Some("4096 16384 212992")), Level::Warn),
            (buffers("tcp_wmem", Some("x")), Level::Warn),
            (congestion("c", Some("cubic\n")), Level::Ok),
            (congestion("c", Some("bbr\n")), Level::Warn),
            (congestion("c", Some("reno")), Level::Warn),
            (congestion("c", None), Level::Warn),
            (files(Some(256)), Level::Bad),
            (files(Some(65536)), Level::Ok),
            (files(None), Level::Ok),
        ] {
            assert_eq!(finding.level, level, "{finding}");
            assert!(level == Level::Ok || finding.found.len() > 5, "{finding}");
        }
        // Every host has six findings.
        assert_eq!(look().len(), 6);
    }
}
