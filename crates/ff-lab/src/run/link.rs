//! `ff-lab link run` and `ff-lab link profiles`.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, getpgrp, kill_process, set_parent_process_death_signal};
use rustix::termios::tcgetpgrp;

use super::DOES_NOT_COUNT;
use crate::cli::link::{GuardedArgs, LinkRunArgs, ProfilesArgs};
use crate::console::print;
use crate::ending::Ending;
use crate::error::Error;
use crate::files::{check_writable, write_whole};
use crate::link::{Direction, HostId, MAX_DELAY, PairDelays};
use crate::net::{Emulation, EmulationPlan, HostPlace, HostPlan, Report};
use crate::profile::{self, Profile};

/// Most commands on links at a time, by the third number of their addresses, 198.18.N.0/30. The
/// network is reserved for tests of devices (RFC 2544), so real networks do not use it.
const RUNS: u8 = 255;

/// Time for a command to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Time after which a command seems not to have received the terminal's signal.
const HEARD: Duration = Duration::from_millis(2500);
/// Interval of checks whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a command over a link.
pub(super) fn run(args: &LinkRunArgs) -> anyhow::Result<ExitCode> {
    let mut profile = Profile::find(&args.profile)?;
    for (key, rate, direction) in
        [("--up", &args.up, &mut profile.up), ("--down", &args.down, &mut profile.down)]
    {
        if let Some(rate) = rate {
            direction.rate = profile::rate(key, rate)?;
            direction.timetable.keep_rate();
        }
    }
    if !(0.0..=MAX_DELAY.as_secs_f64() * 1e3).contains(&args.delay_ms) {
        bail!("--delay-ms: {} is not a time from 0 to 60000 ms", args.delay_ms);
    }
    if let Some(path) = &args.json {
        check_writable(path).with_context(|| unwritable(path))?;
    }
    let ending = Ending::of_signals().context("Failed to wait for signals")?;
    let (emulation, number) = start(args, &profile)?;
    // This thread stays inside; it lives as long as the command.
    let mut command = Command::new(std::env::current_exe().context("Failed to find ff-lab")?);
    command.args(["link", "guarded", "--"]).args(&args.command);
    command.env("FF_LAB_PEER", here(number).to_string());
    command.env("FF_LAB_ADDRESS", inside(number).to_string());
    emulation.namespace(0).enter()?;
    let mut child = emulation.namespace(0).start(&mut command)?;
    let status = wait(&mut child, &ending).context("Failed to wait for the command")?;
    // Processes that the command left running would lose their link.
    emulation.namespace(0).remove_own();
    let report = emulation.stop()?;
    let text = serde_json::to_string_pretty(&report)? + "\n";
    let written =
        args.json.as_ref().map(|path| write_whole(path, &text).with_context(|| unwritable(path)));
    // Print it even if the file could not be written: the link's counts are nowhere else. Standard
    // error may be closed.
    let _ = say(&report, status);
    written.unwrap_or(Ok(()))?;
    Ok(match (ending.signal(), report.lateness.is_too_late) {
        (Some(signal), _) => Ending::exit_code(signal),
        (None, true) => ExitCode::from(DOES_NOT_COUNT),
        (None, false) => exit_code(status),
    })
}

/// Waits for the command. Forwards signals that ask this process to end: at once, or, if the
/// command may have received it from the terminal, only when it has not ended for a while, as a
/// second signal would be too many. Kills the command in the end.
fn wait(child: &mut Child, ending: &Ending) -> io::Result<ExitStatus> {
    let (mut told_at, mut killed_at) = (None, None);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match (ending.signal().and_then(|signal| Signal::from_named_raw(signal.into())), killed_at)
        {
            (None, _) => {}
            (Some(signal), None) => {
                let wait = if may_be_of_terminal(signal) { HEARD } else { Duration::ZERO };
                told_at = Some(Instant::now() + wait);
                killed_at = Some(Instant::now() + GRACE);
            }
            (Some(_), Some(at)) if at < Instant::now() => child.kill()?,
            (Some(signal), Some(_)) => {
                if told_at.take_if(|at| *at <= Instant::now()).is_some() {
                    kill_process(Pid::from_child(child), signal)?;
                }
            }
        }
        thread::sleep(LOOK);
    }
}

/// Whether a signal may come from Ctrl-C in a terminal, which sends it to the command too.
fn may_be_of_terminal(signal: Signal) -> bool {
    let foreground = || tcgetpgrp(File::open("/dev/tty").ok()?).ok();
    signal == Signal::INT && foreground() == Some(getpgrp())
}

/// Executes a program that is killed when the parent process ends.
pub(super) fn guarded(args: &GuardedArgs) -> anyhow::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("Failed to bind to ff-lab")?;
    let [program, arguments @ ..] = &args.command[..] else { bail!("give a command to run") };
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("Failed to run {}", program.display()))
}

pub(super) fn profiles(args: &ProfilesArgs) -> anyhow::Result<ExitCode> {
    let profiles = Profile::built_in()?;
    if args.json {
        let row = |profile: &Profile| {
            serde_json::json!({
                "name": profile.name,
                "description": profile.description,
                "up_bytes_per_sec": profile.up.rate.mean().map(|rate| rate.get()),
                "down_bytes_per_sec": profile.down.rate.mean().map(|rate| rate.get()),
                "up_delay_ms": profile.up.delay.base.as_secs_f64() * 1e3,
                "down_delay_ms": profile.down.delay.base.as_secs_f64() * 1e3,
                "up_loss": profile.up.loss.mean(),
                "down_loss": profile.down.loss.mean(),
            })
        };
        let rows = profiles.iter().map(row).collect::<Vec<_>>();
        print(&format!("{}\n", serde_json::to_string_pretty(&rows)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |Profile { name, description, .. }: &Profile| format!("{name:12} {description}\n");
    print(&profiles.iter().map(row).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the link under the first free number.
fn start(args: &LinkRunArgs, profile: &Profile) -> anyhow::Result<(Emulation, u8)> {
    for number in 0..RUNS {
        match Emulation::start(&plan(args, profile, number)) {
            Err(Error::DeviceInUse { .. }) => {}
            Ok(emulation) => return Ok((emulation, number)),
            Err(error) => return Err(chain(error)),
        }
    }
    bail!("{RUNS} commands already run over links")
}

/// Converts an error with its causes.
fn chain(error: Error) -> anyhow::Error {
    anyhow::Error::new(error)
}

/// The command's host and this machine.
fn plan(args: &LinkRunArgs, profile: &Profile, number: u8) -> EmulationPlan {
    let mut pairs = PairDelays::uniform(2, Duration::from_secs_f64(args.delay_ms / 1e3));
    pairs.set(HostId(0), HostId(0), Duration::ZERO);
    let command = HostPlan {
        name: "command".to_owned(),
        place: HostPlace::Namespace,
        address: inside(number),
        up: profile.up.clone(),
        down: profile.down.clone(),
    };
    let peer = HostPlan {
        name: "here".to_owned(),
        place: HostPlace::Here,
        address: here(number),
        up: Direction::default(),
        down: Direction::default(),
    };
    EmulationPlan {
        hosts: vec![command, peer],
        pairs,
        prefix_bits: 30,
        congestion_control: args.congestion_control.clone(),
        seed: args.seed,
    }
}

/// The command's address.
fn inside(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number, 2)
}

/// This machine's address.
fn here(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number, 1)
}

/// Prints a short report on the link, and the command's status if the exit status does not show it.
fn say(report: &Report, status: ExitStatus) -> io::Result<()> {
    let mut err = io::stderr().lock();
    let (late, drops) = (report.lateness, report.drops);
    writeln!(
        err,
        "ff-lab: {} packets ({} bytes) arrived; late by {:.0} µs at the median, {:.0} at p99, {:.0} at most",
        report.delivered_packets, report.delivered_bytes, late.p50_us, late.p99_us, late.max_us,
    )?;
    writeln!(
        err,
        "ff-lab: dropped: queue {}, CoDel {}, loss {}, cut {}, no such host {}, receiver's device {}",
        drops.queue_full,
        drops.codel,
        drops.lost,
        drops.cut,
        drops.no_such_host,
        drops.device_refused,
    )?;
    if drops.device_overflowed > 0 {
        let (unread, percent) = (drops.device_overflowed, report.overflowed_share() * 100.0);
        writeln!(
            err,
            "ff-lab: {unread} packets ({percent:.3} %) were lost before the emulator read them: it read too late, or more \
             arrived at once than the device can hold"
        )?;
    }
    if let Some(why) = &report.not_real_time_because {
        writeln!(err, "ff-lab: the emulator ran without real-time priority ({why})")?;
    }
    if late.is_too_late {
        let bound = late.bound_us;
        writeln!(
            err,
            "ff-lab: INVALID RUN: p99 of lateness is above {bound:.0} µs (the command ended with {status})"
        )?;
    }
    Ok(())
}

/// Context of a failed write.
fn unwritable(path: &Path) -> String {
    format!("Failed to write {}", path.display())
}

/// The command's exit status, or 128 plus its signal as in shells.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
