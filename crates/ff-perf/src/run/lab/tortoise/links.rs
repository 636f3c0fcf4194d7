//! Limited links of real tors: what they carry, how long other circuits of the client wait for its
//! bulk, and what the limit costs a relay.
//!
//! There are guards with the limit and guards of a stock tor, and each client enters at one of
//! them. The bytes of a link are those that TCP counts at the guard.

mod cost;
mod crowd;
mod delays;
mod ewma;
mod figure;
mod rates;
mod socket;
mod tors;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ff_lab::console::note;
use ff_lab::{DownloadPlan, Ending, Network, Node, RunningDownloads};

pub(super) use self::figure::LinkFigure;
use self::socket::LinkBytes;
use self::tors::{MOST_RATE, Size, client_name, guard_name, start};
use super::lab::Tor;
use super::timers::Timers;
use crate::cli::lab::{LabTortoiseArgs, TortoiseGroup};

/// Time for downloads to reach their rate and use up their links' bursts of a second.
const SETTLE: Duration = Duration::from_secs(5);

/// Results, as far as they were measured.
pub(super) struct Measured {
    pub(super) figures: Vec<LinkFigure>,
    /// Groups of figures that failed, with the reason.
    pub(super) errors: Vec<String>,
    /// Mean lateness of timers.
    pub(super) late: Duration,
}

/// Settings of the part.
#[derive(Clone, Copy)]
pub(super) struct Links<'a> {
    pub(super) args: &'a LabTortoiseArgs,
    /// Interrupts the run.
    pub(super) ending: &'a Ending,
}

/// A function that measures a group of figures.
type Group = fn(&mut Bench<'_>, is_short: bool) -> Result<()>;

/// Groups of figures that need a guard for each client, and those that are measured in a crowd.
const OF_FEW: [(TortoiseGroup, Group); 4] = [
    (TortoiseGroup::Rates, rates::run),
    (TortoiseGroup::Delays, delays::run),
    (TortoiseGroup::Cpu, cost::run),
    (TortoiseGroup::Ewma, ewma::run),
];
const OF_CROWDS: [(TortoiseGroup, Group); 1] = [(TortoiseGroup::Crowd, crowd::run)];
/// Groups of a short run.
const SHORT: [TortoiseGroup; 2] = [TortoiseGroup::Rates, TortoiseGroup::Delays];

impl Links<'_> {
    /// Measures all figures. A group that fails costs its own figures only.
    pub(super) fn run(&self) -> Measured {
        let timers = Timers::new(self.ending);
        let mut measured =
            Measured { figures: Vec::new(), errors: Vec::new(), late: Duration::ZERO };
        self.in_networks(&Size::FEW, &OF_FEW, &timers, &mut measured);
        self.in_networks(&Size::crowd(self.args.scale), &OF_CROWDS, &timers, &mut measured);
        measured.late = timers.late();
        measured
    }

    /// Measures those of the groups that are asked for, two in each network: circuits of earlier
    /// groups must not weigh on later ones.
    fn in_networks(
        &self,
        size: &Size,
        groups: &[(TortoiseGroup, Group)],
        timers: &Timers<'_>,
        measured: &mut Measured,
    ) {
        let args = self.args;
        let is_asked = |group| args.has_group(group) && (!args.short || SHORT.contains(&group));
        let groups: Vec<_> = groups.iter().copied().filter(|(group, _)| is_asked(*group)).collect();
        for two in groups.chunks(2) {
            if !self.ending.is_asked() {
                self.in_a_network(size, two, timers, measured);
            }
        }
    }

    /// Starts a network and measures these groups of figures in it.
    fn in_a_network(
        &self,
        size: &Size,
        groups: &[(TortoiseGroup, Group)],
        timers: &Timers<'_>,
        measured: &mut Measured,
    ) {
        note(&format!("ff-perf: starting a network with {} clients", size.clients));
        let name = |group: TortoiseGroup| format!("{group:?}").to_lowercase();
        let network = match start(self, size) {
            Ok(network) => network,
            Err(error) => {
                let names: Vec<_> = groups.iter().map(|(group, _)| name(*group)).collect();
                let error = anyhow::Error::from(error).context("Failed to start the network");
                let error = format!("{}: {error:#}", names.join(", "));
                note(&format!("ff-perf: {error}"));
                return measured.errors.push(error);
            }
        };
        let mut bench = Bench { network: &network, size, timers, figures: Vec::new() };
        for (group, measure) in groups {
            let ended = measure(&mut bench, self.args.short);
            if self.ending.is_asked() {
                break;
            }
            if let Err(error) = ended {
                let error = format!("{}: {error:#}", name(*group));
                note(&format!("ff-perf: {error}"));
                measured.errors.push(error);
            }
        }
        measured.figures.append(&mut bench.figures);
    }
}

/// Direction of bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

impl Way {
    const BOTH: [Self; 2] = [Self::Down, Self::Up];

    const fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// A network and its figures.
struct Bench<'a> {
    network: &'a Network,
    size: &'a Size,
    timers: &'a Timers<'a>,
    figures: Vec<LinkFigure>,
}

impl Bench<'_> {
    /// Records a figure.
    fn add(&mut self, figure: LinkFigure) {
        note(&format!("ff-perf: {}", figure.line()));
        self.figures.push(figure);
    }

    fn guard(&self, tor: Tor, number: usize) -> &Node {
        self.network.node(&guard_name(tor, number))
    }

    fn client(&self, number: usize) -> &Node {
        self.network.node(&client_name(number))
    }

    /// Relays of circuits that enter at a guard.
    fn path(&self, guard: (Tor, usize)) -> [&Node; 3] {
        [self.guard(guard.0, guard.1), self.network.node("middle0"), self.network.node("exit0")]
    }

    /// Starts bulk streams without end from a client through a guard, on this number of circuits.
    fn bulk(
        &self,
        client: usize,
        guard: (Tor, usize),
        way: Way,
        (streams, circuits): (usize, usize),
    ) -> Result<RunningDownloads> {
        let plan = DownloadPlan::through(&self.path(guard)).streams(streams).circuits(circuits);
        let plan = if way == Way::Up { plan.upload() } else { plan };
        let bulk = self.network.download(self.client(client), &plan);
        bulk.with_context(|| format!("bulk {} of {}", way.name(), client_name(client)))
    }

    /// Sets the limit of a guard's links in bytes per second, with a burst of one second.
    fn limit(&self, (tor, number): (Tor, usize), limit: Option<u64>) -> Result<()> {
        let command = tor.limit_command(limit.map(|limit| (limit, limit)));
        Ok(self.guard(tor, number).control()?.command(&command).map(drop)?)
    }

    /// Sets a client's own rate in bytes per second.
    fn set_rate(&self, client: usize, rate: Option<u64>) -> Result<()> {
        let rate = rate.unwrap_or(MOST_RATE);
        let command = format!("SETCONF BandwidthRate={rate} BandwidthBurst={rate}");
        Ok(self.client(client).control()?.command(&command).map(drop)?)
    }

    /// The bytes of the links between a guard and these clients, as the guard's TCP counts them.
    fn link_bytes(
        &self,
        (tor, number): (Tor, usize),
        clients: std::ops::Range<usize>,
    ) -> Result<LinkBytes> {
        let addresses: Vec<_> =
            clients.map(|client| self.client(client).socks_addr().ip()).collect();
        socket::link_bytes(self.guard(tor, number).or_addr(), &addresses)
    }

    /// What links carry each second in both directions together, and the CPU time of their guard,
    /// during a time.
    fn observe(
        &self,
        guard: (Tor, usize),
        clients: std::ops::Range<usize>,
        time: Duration,
    ) -> Result<Load> {
        let look = || -> Result<(Instant, Duration, LinkBytes)> {
            let cpu = self.guard(guard.0, guard.1).cpu_time()?;
            Ok((Instant::now(), cpu, self.link_bytes(guard, clients.clone())?))
        };
        let (began, cpu_before, before) = look()?;
        self.timers.sleep(time)?;
        let (ended, cpu_after, after) = look()?;
        Ok(Load {
            secs: (ended - began).as_secs_f64(),
            cpu_secs: (cpu_after - cpu_before).as_secs_f64(),
            bytes: after.all().saturating_sub(before.all()) as f64,
        })
    }
}

/// What a guard did for its clients during a time.
#[derive(Clone, Copy, Debug)]
struct Load {
    secs: f64,
    cpu_secs: f64,
    /// Bytes of the clients' links.
    bytes: f64,
}
