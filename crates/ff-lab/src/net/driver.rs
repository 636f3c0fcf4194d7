//! The thread that moves packets between TUN devices and the [`Switch`].
//!
//! It reads packets that hosts send, gives them to the switch with the time, writes packets that
//! are due, and sleeps until more are due or sent. Times inside the switch are exact, so lateness
//! does not add up from link to link.
//!
//! To sleep and wake costs more than to move a packet: 15 µs of CPU time against 5 in a virtual
//! machine. So under load the thread works in rounds, and packets that arrive meanwhile wait for
//! the next round; a packet now and then is served at once.
//!
//! Nothing tells the thread when a packet was sent. It waits in its device until it is read, at
//! most since the thread last found the device empty. The part of that time beyond a round and
//! beyond the time for which the link was busy counts as lateness. After a sleep until a packet
//! comes, the time since a timer was due counts instead, if the thread was to wake for it.

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
use super::tun::{MTU_BYTES, QUEUE_PACKETS, Tun, destination};
use crate::link::{HostId, Switch, SwitchCounts};

/// An IP packet in flight.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    bytes: Box<[u8]>,
    /// Upper bound of its time in the sender's device, less a round and the time for which its link
    /// was busy.
    waited: Duration,
}

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Packets read from a device before due packets are written. Reading one takes about 1 µs.
const READ_AT_ONCE: usize = 64;

/// Reads of each device after one poll; enough for all packets that it held then.
const TURNS: usize = QUEUE_PACKETS.div_ceil(READ_AT_ONCE);

/// Length of a round under load, and so a packet's lateness due to rounds. At 300 Mbit/s, five
/// packets of 1,500 bytes arrive in it.
const ROUND: Duration = Duration::from_micros(200);

/// Events per poll; further hosts are served in the next round.
const EVENTS: usize = 64;

/// Epoll data of the timer and of the stop signal; other values are hosts.
const TIMER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// Lost packets by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Full queues of links.
    pub queue_full: u64,
    /// CoDel.
    pub codel: u64,
    /// Random loss.
    pub lost: u64,
    /// Cuts while packets waited.
    pub cut: u64,
    /// Not IPv4, or for no host of the lab.
    pub no_such_host: u64,
    /// Refused by the receiver's device.
    pub device_refused: u64,
    /// Dropped by the sender's device before the emulator read them, not by a link: either the
    /// emulator was late, which its lateness shows, or more packets were sent in a round than the
    /// device holds (10,240).
    pub device_overflowed: u64,
}

/// Report on a run of the emulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether the thread had SCHED_FIFO.
    pub is_real_time: bool,
    /// The system's error if it had not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_real_time_because: Option<String>,
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Their bytes, including IP headers.
    pub delivered_bytes: u64,
    /// Lateness of these packets: time unread beyond a round, at most, plus time after they were
    /// due.
    pub lateness: LatenessReport,
    /// Packets lost.
    pub drops: Drops,
    /// Counts of each host's links, in order of the hosts.
    pub hosts: Vec<SwitchCounts>,
    /// CPU time of the thread in seconds, including the receivers' kernel work on a packet.
    pub cpu_s: f64,
}

impl Report {
    /// Share of sent packets that overflowed devices; 0 if none were sent.
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    pub fn overflowed_share(&self) -> f64 {
        let read: u64 = self.hosts.iter().map(|host| host.up.packets).sum();
        let unread = self.drops.device_overflowed;
        unread as f64 / (read + unread).max(1) as f64
    }

    /// CPU seconds per 10^9 bytes that arrived; `None` if none did.
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        (self.delivered_bytes > 0).then(|| self.cpu_s / (self.delivered_bytes as f64 / 1e9))
    }
}

/// The running thread; [`Running::stop`] or dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Running {
    /// A write to it ends the thread.
    stop: OwnedFd,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Running {
    /// Starts a thread that joins the devices, one for each host of the switch in order.
    pub(super) fn start(switch: Switch<Packet>, tuns: Vec<Tun>) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let driver = Driver::new(switch, tuns, &stop)?;
        let thread = thread::Builder::new().name("ff-lab-links".to_owned());
        let thread = thread.spawn(move || driver.run())?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread; packets in flight are lost.
    pub(super) fn stop(mut self) -> io::Result<Report> {
        self.end().unwrap_or_else(|| Err(io::Error::other("the emulator has already ended")))
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

struct Driver {
    switch: Switch<Packet>,
    /// One device per host.
    tuns: Vec<Tun>,
    hosts: HashMap<Ipv4Addr, HostId>,
    epoll: OwnedFd,
    /// Wakes the thread when the next packet is due.
    timer: OwnedFd,
    /// Time to which the timer is set.
    armed: Option<Duration>,
    /// Time zero of the switch.
    start: Instant,
    /// Packets sent before this time have been read.
    read_until: Duration,
    /// `read_until` of each host.
    host_until: Vec<Duration>,
    lateness: Lateness,
    /// Packets and bytes that arrived.
    delivered: (u64, u64),
    /// Drops outside the links.
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
            host_until: vec![Duration::ZERO; tuns.len()],
            tuns,
            epoll,
            timer,
            armed: None,
            start: Instant::now(),
            read_until: Duration::ZERO,
            lateness: Lateness::new(),
            delivered: (0, 0),
            drops: Drops::default(),
        })
    }

    /// Moves packets until stopped.
    fn run(mut self) -> io::Result<Report> {
        let real_time = become_real_time(Priority::Emulator);
        let mut ready = Vec::with_capacity(EVENTS);
        let (mut blocks, mut last) = (true, Duration::ZERO);
        loop {
            let since = self.wait(&mut ready, blocks)?;
            let begin = self.start.elapsed();
            if ready.contains(&STOP) {
                return Ok(self.report(real_time.err()));
            }
            if ready.contains(&TIMER) {
                self.armed = None;
            }
            ready.retain(|event| ![STOP, TIMER].contains(event));
            let moved = self.serve(&ready, since)?;
            // After a round under load, poll once without blocking, and block if nothing was there.
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

    /// Reads these hosts' packets in turns and writes due packets; returns the number moved.
    fn serve(&mut self, hosts: &[u64], since: Duration) -> io::Result<usize> {
        let mut moved = 0;
        for _ in 0..TURNS {
            let mut is_done = true;
            for host in hosts {
                let read = self.read(usize::try_from(*host).unwrap_or(0), since)?;
                is_done &= read < READ_AT_ONCE;
                moved += read;
            }
            moved += self.deliver();
            if is_done {
                break;
            }
        }
        Ok(moved)
    }

    /// Writes due packets and returns their number.
    fn deliver(&mut self) -> usize {
        let mut moved = 0;
        while let Some(delivery) = self.switch.poll_delivery(self.start.elapsed()) {
            let Packet { bytes, waited } = delivery.packet;
            match self.tuns[delivery.to.0].send(&bytes) {
                Ok(()) => {
                    let late = self.start.elapsed().saturating_sub(delivery.due);
                    self.lateness.record(waited + late);
                    self.delivered.0 += 1;
                    self.delivered.1 += bytes.len() as u64;
                }
                Err(_) => self.drops.device_refused += 1,
            }
            moved += 1;
        }
        moved
    }

    /// Polls for sent packets; if there are none and it may block, sleeps until a packet is due or
    /// sent. Returns the earliest time since which the packets found may have waited.
    ///
    /// It always polls before it sleeps, so a packet that arrives in a sleep has not waited since
    /// before it.
    fn wait(&mut self, ready: &mut Vec<u64>, blocks: bool) -> io::Result<Duration> {
        ready.clear();
        let (since, looked) = (self.read_until, self.start.elapsed());
        if !self.look(ready, Some(&AT_ONCE))? {
            return Ok(since);
        }
        // More devices than fit into the events may have packets.
        if ready.len() < EVENTS {
            self.read_until = looked;
        }
        if !ready.is_empty() || !blocks {
            return Ok(since);
        }
        if let Some(due) = self.switch.poll_timeout().filter(|due| Some(*due) != self.armed) {
            self.arm(due)?;
        }
        if !self.look(ready, None)? {
            // The process was stopped for a while; the next poll finds packets sent meanwhile.
            return Ok(looked);
        }
        let woken = self.start.elapsed();
        if ready.len() < EVENTS {
            self.read_until = woken;
        }
        Ok(self.armed.map_or(woken, |due| due.clamp(looked, woken)))
    }

    /// Polls devices and timer for at most `time`; false if a signal interrupted it.
    fn look(&self, ready: &mut Vec<u64>, time: Option<&Timespec>) -> io::Result<bool> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        match epoll::wait(&self.epoll, &mut events, time) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        Ok(true)
    }

    /// Sets the timer to a time of the switch.
    fn arm(&mut self, due: Duration) -> io::Result<()> {
        // Zero would switch the timer off.
        let left = due.saturating_sub(self.start.elapsed()).max(Duration::from_nanos(1));
        let value = Timespec::try_from(left).map_err(io::Error::other)?;
        // Without an interval the timer fires once.
        let setting = Itimerspec { it_interval: AT_ONCE, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        self.armed = Some(due);
        Ok(())
    }

    /// Reads a host's packets, which may have waited since `since`; returns their number.
    fn read(&mut self, host: usize, since: Duration) -> io::Result<usize> {
        let mut buffer = [0; MTU_BYTES];
        let since = since.max(self.host_until[host]);
        let mut now = since;
        for moved in 0..READ_AT_ONCE {
            let Some(length) = self.tuns[host].recv(&mut buffer)? else {
                self.host_until[host] = now;
                return Ok(moved);
            };
            now = self.start.elapsed();
            let packet = &buffer[..length];
            match destination(packet).and_then(|address| self.hosts.get(&address)) {
                Some(&to) => {
                    let bytes = u32::try_from(length).unwrap_or(u32::MAX);
                    // While the link is busy it does not matter where a packet waits.
                    let busy = self.switch.free_at(HostId(host)).unwrap_or_default();
                    let waited = now.saturating_sub(busy.max(since + ROUND));
                    let packet = Packet { bytes: packet.into(), waited };
                    self.switch.handle_packet(HostId(host), to, packet, bytes, now);
                }
                None => self.drops.no_such_host += 1,
            }
        }
        Ok(READ_AT_ONCE)
    }

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
