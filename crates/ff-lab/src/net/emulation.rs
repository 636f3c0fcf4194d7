//! Namespaces and the emulator between them, from a plan.

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

/// The device in each namespace.
const DEVICE: &str = "lab0";

/// The device of a host that is this machine itself: this and the third number of its address.
const OUTER_DEVICE: &str = "fflab";

/// Where a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostPlace {
    /// In a network namespace of its own.
    #[default]
    Namespace,
    /// Where this process is. Other labs may be there too, so the third number of the address must
    /// differ.
    Here,
}

/// A host of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPlan {
    /// Its name in messages.
    pub name: String,
    /// Where it is.
    pub place: HostPlace,
    /// Its address.
    pub address: Ipv4Addr,
    /// From the host to the others.
    pub up: Direction,
    /// From the others to the host.
    pub down: Direction,
}

/// A lab's hosts and what is between them.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulationPlan {
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// One-way delays between their access links.
    pub pairs: PairDelays,
    /// The bits that the addresses of all hosts have in common; by this prefix they reach each
    /// other.
    pub prefix_bits: u8,
    /// TCP's congestion control, such as "cubic": of namespaces, and of what this machine sends to
    /// its neighbours here. A program may ask for another one.
    pub congestion_control: String,
    /// Where all chance comes from.
    pub seed: u64,
}

/// Hosts that are joined, until this value ends.
#[derive(Debug)]
pub struct Emulation {
    /// A namespace a host and its device, in their order.
    namespaces: Vec<(Namespace, String)>,
    /// The emulator.
    running: Mutex<Option<Running>>,
}

impl Emulation {
    /// Makes a namespace for each host and starts the emulator. Needs root.
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

    /// The namespace of a host, by its place in the plan.
    ///
    /// # Panics
    ///
    /// If the host does not exist.
    pub fn namespace(&self, host: usize) -> &Namespace {
        &self.namespaces[host].0
    }

    /// Ends the emulator and says what it came to.
    ///
    /// # Errors
    /// When it has been ended before, or failed.
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

/// The name of the device of a host that is this machine itself.
fn outer_device(address: Ipv4Addr) -> String {
    format!("{OUTER_DEVICE}{}", address.octets()[2])
}

/// Why a device cannot be made.
fn no_device(host: &str, device: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::NotRoot,
        io::ErrorKind::ResourceBusy => Error::DeviceInUse { device: device.to_owned() },
        _ => Error::io(format!("open TUN device {device} of host {host} (/dev/net/tun)"))(error),
    }
}
