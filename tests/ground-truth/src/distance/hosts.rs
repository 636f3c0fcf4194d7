//! A host with relays and one for each measurer, joined by emulated links.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ed25519_dalek::SigningKey;
use ff_coordinator::team::{LocalMeasurer, TeamMeasurer, cores};
use ff_lab::link::{Direction, HostId, PairDelays};
use ff_lab::net::{Emulation, EmulationPlan, HostPlace, HostPlan, Namespace, Report};
use ff_measurer::service::admission::AdmissionLimits;
use ff_measurer::service::server::{Coordinator, Service, Settings};
use ff_measurer::{Host, measurer_id};
use ff_team::RemoteMeasurer;
use tokio::sync::oneshot;

use super::case::Case;

const RELAYS: HostId = HostId(0);
/// The network device of each host.
const DEVICE: &str = "lab0";
/// Where measurers listen for the coordinator.
const SERVICE_PORT: u16 = 7001;

/// The hosts, until this value ends.
pub(super) struct Hosts {
    /// The emulator.
    emulation: Emulation,
    /// How many measurers there are.
    measurers: usize,
}

impl Hosts {
    /// Makes them; needs root.
    ///
    /// # Errors
    /// When the links of the case cannot be made.
    pub(super) fn start(case: &Case) -> Result<Self> {
        let measurers = case.round_trips_ms.len();
        let hosts = Self { emulation: Emulation::start(&plan(case)?)?, measurers };
        for number in 0..=measurers {
            let namespace = hosts.emulation.namespace(number);
            let prepared = namespace.run(|| prepare(case))?;
            prepared.with_context(|| format!("Failed to prepare host {number}"))?;
        }
        Ok(hosts)
    }

    /// Where relays are.
    pub(super) fn relays(&self) -> &Namespace {
        self.emulation.namespace(RELAYS.0)
    }

    /// Where the coordinator is: at the first measurer.
    pub(super) fn coordinator(&self) -> &Namespace {
        self.emulation.namespace(1)
    }

    /// The address of the host with the relays.
    pub(super) fn relays_address() -> Ipv4Addr {
        address(RELAYS.0)
    }

    /// Measurers: the first where the coordinator is, the others as services on their hosts.
    ///
    /// # Errors
    /// When one cannot be started.
    pub(super) fn team(&self) -> Result<Team> {
        let key = || SigningKey::from_bytes(&rand::random());
        let first: Arc<dyn TeamMeasurer> = Arc::new(LocalMeasurer::new("1", key(), cores()));
        let (mut measurers, mut ends) = (vec![first], Vec::new());
        for number in 2..=self.measurers {
            let (own, coordinator) = (key(), key());
            let addr = SocketAddr::from((address(number), SERVICE_PORT));
            let id = measurer_id(&own);
            let end =
                serve(self.emulation.namespace(number), own, measurer_id(&coordinator), addr)?;
            ends.push(end);
            let remote =
                RemoteMeasurer::new(&number.to_string(), &addr.to_string(), id, &coordinator);
            measurers.push(Arc::new(remote.map_err(anyhow::Error::msg)?));
        }
        Ok(Team { measurers, _ends: ends })
    }

    /// Ends the links and says what they did.
    ///
    /// # Errors
    /// When the emulator failed.
    pub(super) fn stop(self) -> Result<Report> {
        Ok(self.emulation.stop()?)
    }
}

/// A team, whose services end with this value.
pub(super) struct Team {
    /// The team.
    pub(super) measurers: Vec<Arc<dyn TeamMeasurer>>,
    /// Each ends a service when it is dropped.
    _ends: Vec<oneshot::Sender<()>>,
}

/// Starts a measurer's service in a namespace. What ends it is returned.
fn serve(
    namespace: &Namespace,
    key: SigningKey,
    coordinator: ff_proto::ids::Ed25519Id,
    addr: SocketAddr,
) -> Result<oneshot::Sender<()>> {
    let settings = Settings {
        coordinators: vec![Coordinator { name: "lab".to_owned(), id: coordinator }],
        limits: AdmissionLimits { private_targets: true, ..AdmissionLimits::default() },
    };
    let service = Service::new(Host::new(key, cores()), settings);
    let listen = || -> io::Result<_> {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok((listener, runtime))
    };
    let (end, ended) = oneshot::channel();
    // Sockets stay where they were made, and threads where their maker is.
    let start = || -> io::Result<()> {
        let (listener, runtime) = listen()?;
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::select! {
                served = service.serve(listener) => served,
                _ = ended => Ok(()),
            }
        };
        thread::spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                eprintln!("ground-truth: a measurer failed: {error:#}");
            }
        });
        Ok(())
    };
    namespace.run(start)?.with_context(|| format!("Failed to serve at {addr}"))?;
    Ok(end)
}

/// The hosts and links of a case. From one measurer to another it is as far as over the relay.
fn plan(case: &Case) -> Result<EmulationPlan> {
    let (up, down) = case.link()?;
    let host = |number: usize, up: &Direction, down: &Direction| HostPlan {
        name: format!("host{number}"),
        place: HostPlace::Namespace,
        address: address(number),
        up: up.clone(),
        down: down.clone(),
    };
    let line = Case::line();
    let measurers = case.round_trips_ms.len();
    if measurers == 0 || measurers > 8 {
        bail!("{measurers} measurers: use 1 to 8");
    }
    let mut hosts = vec![host(RELAYS.0, &line, &line)];
    hosts.extend((1..=measurers).map(|number| host(number, &up, &down)));
    let one_way = |number: usize| match number {
        0 => Duration::ZERO,
        _ => Duration::from_millis(case.round_trips_ms[number - 1].into()) / 2,
    };
    let mut pairs = PairDelays::uniform(measurers + 1, Duration::ZERO);
    for from in 0..=measurers {
        for to in (0..=measurers).filter(|&to| to != from) {
            pairs.set(HostId(from), HostId(to), one_way(from) + one_way(to));
        }
    }
    Ok(EmulationPlan {
        hosts,
        pairs,
        prefix_bits: 24,
        congestion_control: case.congestion_control.clone(),
        seed: rand::random(),
    })
}

/// A host's address. No real network has it (RFC 2544).
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, u8::try_from(number + 1).unwrap_or(u8::MAX))
}

/// Sets buffers and the longest packet of the namespace that the calling thread is in.
fn prepare(case: &Case) -> io::Result<()> {
    for (name, sizes) in ["tcp_rmem", "tcp_wmem"].into_iter().zip(case.buffers.sizes()) {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), sizes)?;
    }
    let mtu = case.mtu.to_string();
    let status = Command::new("ip").args(["link", "set", DEVICE, "mtu", &mtu]).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("ip cannot set the MTU")) }
}
