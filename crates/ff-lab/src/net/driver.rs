//! The thread that moves packets between TUN devices and the [`Switch`].
//!
//! It reads what hosts send, hands it to the switch with the time, writes what is due, and sleeps until something more
//! is due or sent. What is due has its own time inside the switch, so lateness does not add up from link to link.
//!
//! To sleep and wake costs more than to move a packet: in a virtual machine 15 µs of CPU time against 5. So while there
//! is much to do the thread works in rounds, and what comes meanwhile waits for the next; who sends now and then is
//! served at once.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::Serialize;

use super::lateness::{Lateness, LatenessReport};
use super::priority::{Priority, become_real_time};
use super::tun::{MTU_BYTES, Tun, destination};
use crate::link::{HostId, Switch, SwitchCounts};

/// A packet of IP.
pub(super) type Packet = Box<[u8]>;

/// So many packets are read from a device before what is due is written. Reading one takes about 1 µs.
const READ_AT_ONCE: usize = 64;

/// The length of a round while there is much to do: what a packet may be late by for that reason. Five packets of 1,500
/// bytes come in it at 300 Mbit/s.
const ROUND: Duration = Duration::from_micros(200);

/// The events of a wait; more hosts than that are served in the next round.
const EVENTS: usize = 64;

/// The event of the timer, and that of the end. Others are hosts.
const TIMER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// Packets by why they did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// A queue was full.
    pub queue_full: u64,
    /// CoDel dropped them.
    pub codel: u64,
    /// A link lost them by chance.
    pub lost: u64,
    /// A link was cut while they waited.
    pub cut: u64,
    /// They were for no host of the lab, or no IPv4.
    pub no_such_host: u64,
    /// The receiver's device took no more.
    pub device_refused: u64,
    /// The sender's device overflowed before the emulator had read them. These are the emulator's fault.
    pub device_overflowed: u64,
}

/// What a run of the emulator came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether the thread had SCHED_FIFO.
    pub is_real_time: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_real_time_because: Option<String>,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Their bytes, with IP's.
    pub delivered_bytes: u64,
    /// How late these were.
    pub lateness: LatenessReport,
    /// What did not arrive.
    pub drops: Drops,
    /// By host, in their order.
    pub hosts: Vec<SwitchCounts>,
    /// CPU time of the thread, in seconds. What the receivers' kernels do with a packet is in it.
    pub cpu_s: f64,
}

impl Report {
    /// CPU seconds for 10^9 bytes that arrived; `None` if none did.
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        (self.delivered_bytes > 0).then(|| self.cpu_s / (self.delivered_bytes as f64 / 1e9))
    }
}

/// The thread at work; [`Running::stop`] ends it, and so does dropping it.
#[derive(Debug)]
pub(super) struct Running {
    /// Ends the thread when written to.
    stop: OwnedFd,
    /// The thread.
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Running {
    /// Starts a thread that joins devices, one a host, in the order of the switch's hosts.
    pub(super) fn start(switch: Switch<Packet>, tuns: Vec<Tun>) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let driver = Driver::new(switch, tuns, &stop)?;
        let thread = thread::Builder::new().name("ff-lab-links".to_owned());
        let thread = thread.spawn(move || driver.run())?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread; what is under way is lost.
    pub(super) fn stop(mut self) -> io::Result<Report> {
        self.end().unwrap_or_else(|| Err(io::Error::other("it has ended before")))
    }

    /// Ends the thread if it runs.
    fn end(&mut self) -> Option<io::Result<Report>> {
        let thread = self.thread.take()?;
        if let Err(errno) = rustix::io::write(&self.stop, &1u64.to_ne_bytes()) {
            return Some(Err(errno.into()));
        }
        Some(thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked"))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What the thread has.
struct Driver {
    /// All links.
    switch: Switch<Packet>,
    /// A device a host.
    tuns: Vec<Tun>,
    /// Hosts by address.
    hosts: HashMap<Ipv4Addr, HostId>,
    /// What is waited for.
    epoll: OwnedFd,
    /// Wakes at the time of what is due next.
    timer: OwnedFd,
    /// What the timer is set to.
    armed: Option<Duration>,
    /// The switch's zero.
    start: Instant,
    /// How late packets were.
    lateness: Lateness,
    /// What arrived: packets, bytes.
    delivered: (u64, u64),
    /// What did not, as far as the links do not know it.
    drops: Drops,
}

impl Driver {
    /// Registers the devices.
    fn new(switch: Switch<Packet>, tuns: Vec<Tun>, stop: &OwnedFd) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, timer)?;
        let (input, edge) = (epoll::EventFlags::IN, epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), edge)?;
        epoll::add(&epoll, stop, epoll::EventData::new_u64(STOP), input)?;
        for (host, tun) in (0u64..).zip(&tuns) {
            epoll::add(&epoll, tun, epoll::EventData::new_u64(host), input)?;
        }
        let hosts = tuns.iter().enumerate().map(|(host, tun)| (tun.address(), HostId(host)));
        Ok(Self {
            hosts: hosts.collect(),
            switch,
            tuns,
            epoll,
            timer,
            armed: None,
            start: Instant::now(),
            lateness: Lateness::new(),
            delivered: (0, 0),
            drops: Drops::default(),
        })
    }

    /// Moves packets until it is told to stop.
    fn run(mut self) -> io::Result<Report> {
        let real_time = become_real_time(Priority::Emulator);
        let mut ready = Vec::with_capacity(EVENTS);
        let (mut blocks, mut last) = (true, Duration::ZERO);
        loop {
            self.wait(&mut ready, blocks)?;
            let begin = self.start.elapsed();
            let mut moved = 0;
            for &event in &ready {
                match event {
                    STOP => return Ok(self.report(real_time.err())),
                    TIMER => self.armed = None,
                    host => moved += self.read(usize::try_from(host).unwrap_or(0))?,
                }
            }
            moved += self.deliver();
            // After a nap it looks once without waiting, and waits if there was nothing.
            let naps = moved > 0 && begin - last < 2 * ROUND;
            if naps {
                thread::sleep((begin + ROUND).saturating_sub(self.start.elapsed()));
            }
            blocks = !naps;
            if moved > 0 {
                last = begin;
            }
        }
    }

    /// Writes what is due; how many packets.
    fn deliver(&mut self) -> usize {
        let mut moved = 0;
        while let Some(delivery) = self.switch.poll_delivery(self.start.elapsed()) {
            match self.tuns[delivery.to.0].send(&delivery.packet) {
                Ok(()) => {
                    self.lateness.record(self.start.elapsed().saturating_sub(delivery.due));
                    self.delivered.0 += 1;
                    self.delivered.1 += delivery.packet.len() as u64;
                }
                Err(_) => self.drops.device_refused += 1,
            }
            moved += 1;
        }
        moved
    }

    /// Looks what was sent; sleeps until something is due or sent if it may block.
    fn wait(&mut self, ready: &mut Vec<u64>, blocks: bool) -> io::Result<()> {
        ready.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let due = self.switch.poll_timeout().filter(|due| blocks && Some(*due) != self.armed);
        if let Some(due) = due {
            self.arm(due)?;
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        match epoll::wait(&self.epoll, &mut events, (!blocks).then_some(&now)) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Sets the timer to a time of the switch.
    fn arm(&mut self, due: Duration) -> io::Result<()> {
        // Zero would switch it off.
        let left = due.saturating_sub(self.start.elapsed()).max(Duration::from_nanos(1));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec::try_from(left).map_err(io::Error::other)?;
        let setting = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        self.armed = Some(due);
        Ok(())
    }

    /// Takes what a host has sent; how many packets.
    fn read(&mut self, host: usize) -> io::Result<usize> {
        let mut buffer = [0; MTU_BYTES];
        for moved in 0..READ_AT_ONCE {
            let Some(length) = self.tuns[host].recv(&mut buffer)? else { return Ok(moved) };
            let packet = &buffer[..length];
            match destination(packet).and_then(|address| self.hosts.get(&address)) {
                Some(&to) => {
                    let bytes = u32::try_from(length).unwrap_or(u32::MAX);
                    let now = self.start.elapsed();
                    self.switch.handle_packet(HostId(host), to, packet.into(), bytes, now);
                }
                None => self.drops.no_such_host += 1,
            }
        }
        Ok(READ_AT_ONCE)
    }

    /// Sums up.
    fn report(&self, not_real_time_because: Option<String>) -> Report {
        let hosts = || (0..self.switch.hosts()).map(HostId);
        let pairs = hosts().flat_map(|from| hosts().map(move |to| (from, to)));
        let delays = pairs.filter(|(from, to)| from != to);
        let one_way = delays.map(|(from, to)| self.switch.base_delay(from, to)).min();
        let counts = hosts().map(|host| self.switch.counts(host)).collect::<Vec<_>>();
        let mut drops = self.drops;
        for link in counts.iter().flat_map(|counts| [counts.up, counts.down]) {
            drops.queue_full += link.queue_full;
            drops.codel += link.codel;
            drops.lost += link.lost;
            drops.cut += link.cut;
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Report {
            is_real_time: not_real_time_because.is_none(),
            not_real_time_because,
            delivered_packets: self.delivered.0,
            delivered_bytes: self.delivered.1,
            lateness: self.lateness.report(one_way.unwrap_or_default()),
            drops,
            hosts: counts,
            cpu_s: Duration::try_from(cpu).unwrap_or_default().as_secs_f64(),
        }
    }
}
