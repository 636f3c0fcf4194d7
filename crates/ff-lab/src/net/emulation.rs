//! Creates namespaces and starts the emulator between them, from a plan.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use super::driver::{Report, Running};
use super::namespace::Namespace;
use super::tun::Tun;
use crate::error::{Error, Result};
use crate::leftovers::remove_leftovers;
use crate::link::{Direction, PairDelays, Switch};
use crate::quota;

/// Name of the device in each namespace.
const DEVICE: &str = "lab0";

/// Prefix of the device of a host that is this machine; the third number of its address follows.
const OUTER_DEVICE: &str = "fflab";

/// Location of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPlace {
    /// Its own network namespace.
    #[default]
    Namespace,
    /// The namespace of this process. Other labs may be there too, so the third number of the
    /// address must differ.
    Here,
}

/// A host of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPlan {
    /// Name in messages.
    pub name: String,
    /// Location.
    pub place: HostPlace,
    /// Address.
    pub address: Ipv4Addr,
    /// Link from the host to others.
    pub up: Direction,
    /// Link from others to the host.
    pub down: Direction,
}

/// Hosts of a lab, with links and delays between them.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulationPlan {
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// One-way delays between access links.
    pub pairs: PairDelays,
    /// Length of the prefix that all hosts' addresses share, by which they reach each other.
    pub prefix_bits: u8,
    /// TCP congestion control, such as "cubic", in namespaces and for what this machine sends to
    /// its neighbours in the lab. A program may choose another.
    pub congestion_control: String,
    /// Random seed.
    pub seed: u64,
}

/// Joined hosts; dropping it ends the lab.
#[derive(Debug)]
pub struct Emulation {
    /// Namespace and device name by host.
    namespaces: Vec<(Namespace, String)>,
    running: Mutex<Option<Running>>,
}

impl Emulation {
    /// Creates a namespace for each host and starts the emulator. Needs root.
    pub fn start(plan: &EmulationPlan) -> Result<Self> {
        remove_leftovers();
        quota::remove_left();
        let mut namespaces = Vec::new();
        let mut tuns = Vec::new();
        for host in &plan.hosts {
            let (namespace, device) = match host.place {
                HostPlace::Namespace => {
                    (Namespace::new(&host.name, &plan.congestion_control)?, DEVICE.to_owned())
                }
                HostPlace::Here => (Namespace::here(&host.name)?, outer_device(host.address)),
            };
            let open = || Tun::open(&device, host.address, plan.prefix_bits);
            tuns.push(namespace.run(open)?.map_err(|error| no_device(&host.name, &device, error))?);
            if host.place == HostPlace::Here {
                let (address, control) = (host.address, &plan.congestion_control);
                namespace.set_congestion_control(&device, address, plan.prefix_bits, control)?;
            }
            namespaces.push((namespace, device));
        }
        let links = plan.hosts.iter().map(|host| (host.up.clone(), host.down.clone()));
        let switch = Switch::new(&links.collect::<Vec<_>>(), plan.pairs.clone(), plan.seed);
        let running = Running::start(switch, tuns).map_err(Error::io("start the emulator"))?;
        Ok(Self { namespaces, running: Mutex::new(Some(running)) })
    }

    /// Namespace of a host, by its index in the plan.
    ///
    /// # Panics
    ///
    /// If the host does not exist.
    pub fn namespace(&self, host: usize) -> &Namespace {
        &self.namespaces[host].0
    }

    /// Ends the emulator and returns its report.
    ///
    /// # Errors
    /// If it has already ended, or failed.
    pub fn stop(&self) -> Result<Report> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = || Error::Misuse("the emulator has already ended".to_owned());
        let running = running.ok_or_else(ended)?;
        let hosts = self.namespaces.iter();
        let dropped = hosts.map(|(namespace, device)| namespace.send_drops(device));
        let overflowed = dropped.sum::<Result<u64>>()?;
        let mut report = running.stop().map_err(Error::io("run the emulator"))?;
        report.drops.device_overflowed = overflowed;
        Ok(report)
    }
}

/// Device name of a host that is this machine.
fn outer_device(address: Ipv4Addr) -> String {
    format!("{OUTER_DEVICE}{}", address.octets()[2])
}

/// Error of a device that cannot be created.
fn no_device(host: &str, device: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::NotRoot,
        io::ErrorKind::ResourceBusy => Error::DeviceInUse { device: device.to_owned() },
        _ => Error::io(format!("open TUN device {device} of host {host} (/dev/net/tun)"))(error),
    }
}
