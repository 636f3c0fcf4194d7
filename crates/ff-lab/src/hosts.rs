//! Nodes of a network in their own namespaces, joined by emulated links.

mod delays;

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::link::{Direction, HostId, PairDelays};
use crate::net::{Awake, Emulation, EmulationPlan, HostPlace, HostPlan, Namespace};
use crate::profile::Profile;

pub use delays::Delays;

/// Name of the host of the download server.
pub(crate) const SOURCE: &str = "source";

/// Most hosts of a lab: each has its own network.
const MAX_HOSTS: usize = 250;

/// Address range of a lab's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// 10.0.0.0/8, a /16 for each host, as relays of different operators have.
    Private,
    /// [`NETWORK`](crate::NETWORK), which arti-relay accepts, a /24 for each host.
    ForTests,
}

impl Addresses {
    /// Address of the host of this number, from 1. The first network stays free, as 10.0.0.1 is an
    /// address of many other networks.
    fn of(self, number: u8) -> Ipv4Addr {
        match self {
            Self::Private => Ipv4Addr::new(10, number, 0, 1),
            Self::ForTests => Ipv4Addr::new(198, 18, number, 1),
        }
    }

    /// Length of the prefix that all hosts share.
    fn prefix_bits(self) -> u8 {
        match self {
            Self::Private => 8,
            Self::ForTests => 15,
        }
    }
}

/// Links and delays between a network's nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct HostsPlan {
    /// Access links by node name (`auth0`, a relay's nickname, `client0`, `source`).
    pub links: BTreeMap<String, Profile>,
    /// Access link of all other nodes; default: no limits.
    pub link: Option<Profile>,
    /// One-way delays between access links.
    pub delays: Delays,
    /// Names of more hosts, without a node, for programs that use the network from their own host.
    pub extra: Vec<String>,
    /// TCP congestion control on all hosts.
    pub congestion_control: String,
    /// Keeps this machine's cores from sleeping: waking them adds up to 1 ms to a round trip over
    /// three relays of an idle network in a virtual machine. Threads of the lowest priority do it
    /// (SCHED_IDLE). They cost power, but no time of the lab. As the kernel shares cores among
    /// sessions and control groups first, other programs may lose up to half of each core.
    pub is_awake: bool,
    /// Random seed.
    pub seed: u64,
}

impl Default for HostsPlan {
    /// Links without limits, no delays, CUBIC, and cores that may sleep.
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            link: None,
            delays: Delays::Uniform(Duration::ZERO),
            extra: Vec::new(),
            congestion_control: "cubic".to_owned(),
            is_awake: false,
            seed: 1,
        }
    }
}

impl HostsPlan {
    /// The emulator's plan for hosts of these names.
    fn plan(&self, names: &[String], addresses: Addresses) -> Result<EmulationPlan> {
        if names.len() > MAX_HOSTS {
            let what = format!("{} hosts: use at most {MAX_HOSTS}", names.len());
            return Err(Error::Misuse(what));
        }
        let mut known = HashSet::new();
        if let Some(name) = names.iter().find(|name| !known.insert(*name)) {
            return Err(Error::Misuse(format!("there are two hosts named {name}")));
        }
        if let Some(name) = self.links.keys().find(|name| !names.contains(name)) {
            return Err(Error::Misuse(format!("links: {}", no_host(name, names))));
        }
        let host = |(number, name): (u8, &String)| {
            let link = self.links.get(name).or(self.link.as_ref());
            let free = || (Direction::default(), Direction::default());
            let (up, down) = link.map_or_else(free, |link| (link.up.clone(), link.down.clone()));
            let address = addresses.of(number);
            HostPlan { name: name.clone(), place: HostPlace::Namespace, address, up, down }
        };
        Ok(EmulationPlan {
            hosts: (1..).zip(names).map(host).collect(),
            pairs: self.delays.pairs(names, self.seed)?,
            prefix_bits: addresses.prefix_bits(),
            congestion_control: self.congestion_control.clone(),
            seed: self.seed,
        })
    }
}

/// Says that none of the hosts with these names has this name.
fn no_host(name: &str, names: &[String]) -> String {
    format!("no host is named {name}; the hosts are {}", names.join(", "))
}

/// The hosts of a running network.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    emulation: Arc<Emulation>,
    plan: Arc<EmulationPlan>,
    _awake: Option<Arc<Awake>>,
}

impl Hosts {
    /// Creates a namespace for each node, the download server and each of the plan's extra hosts.
    pub(crate) fn start(
        plan: &HostsPlan,
        addresses: Addresses,
        nodes: impl Iterator<Item = String>,
    ) -> Result<Self> {
        let further = [SOURCE.to_owned()].into_iter().chain(plan.extra.iter().cloned());
        let names = nodes.chain(further).collect::<Vec<_>>();
        let awake = plan.is_awake.then(Awake::start).transpose().map_err(Error::Misuse)?;
        let plan = plan.plan(&names, addresses)?;
        let emulation = Arc::new(Emulation::start(&plan)?);
        Ok(Self { emulation, plan: Arc::new(plan), _awake: awake.map(Arc::new) })
    }

    pub(crate) fn host(&self, name: &str) -> Result<Host> {
        let names = || self.plan.hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>();
        let index = self.plan.hosts.iter().position(|host| host.name == name);
        let index = index.ok_or_else(|| Error::Misuse(no_host(name, &names())))?;
        Ok(Host { hosts: self.clone(), index })
    }

    pub(crate) fn pairs(&self) -> &PairDelays {
        &self.plan.pairs
    }

    pub(crate) fn emulation(&self) -> &Emulation {
        &self.emulation
    }
}

/// One host of a running network; the lab lives as long as any of its hosts.
#[derive(Clone, Debug)]
pub struct Host {
    hosts: Hosts,
    /// Index among the lab's hosts.
    index: usize,
}

impl Host {
    /// Address, at which other hosts reach it.
    pub fn address(&self) -> Ipv4Addr {
        self.hosts.plan.hosts[self.index].address
    }

    /// Network namespace.
    pub fn namespace(&self) -> &Namespace {
        self.hosts.emulation.namespace(self.index)
    }

    /// Identifier among the lab's hosts.
    pub fn id(&self) -> HostId {
        HostId(self.index)
    }
}

/// Runs `work` in the host's namespace, or here if there is no host.
pub(crate) fn inside<T: Send>(host: Option<&Host>, work: impl FnOnce() -> T + Send) -> Result<T> {
    match host {
        Some(host) => host.namespace().run(work),
        None => Ok(work()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_network_of_its_own() {
        let names = ["auth0", "exit0", "source"].map(str::to_owned);
        let lte = Profile::find("lte").unwrap();
        let links = BTreeMap::from([("exit0".to_owned(), lte.clone())]);
        let plan = HostsPlan { links, ..HostsPlan::default() };
        let for_tests = plan.plan(&names, Addresses::ForTests).unwrap();
        let addresses = for_tests.hosts.iter().map(|host| host.address.to_string());
        assert_eq!(addresses.collect::<Vec<_>>(), ["198.18.1.1", "198.18.2.1", "198.18.3.1"]);
        assert_eq!(for_tests.prefix_bits, 15);
        let plan = plan.plan(&names, Addresses::Private).unwrap();
        let octets = plan.hosts.iter().map(|host| host.address.octets()[1]).collect::<Vec<_>>();
        assert_eq!(octets, [1, 2, 3]);
        assert_eq!((&plan.hosts[1].up, &plan.hosts[2].up), (&lte.up, &Direction::default()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let links = BTreeMap::from([("no".to_owned(), Profile::find("lte").unwrap())]);
        let error = |plan: HostsPlan, names: &[String]| {
            plan.plan(names, Addresses::Private).unwrap_err().to_string()
        };
        let plan = HostsPlan { links, ..HostsPlan::default() };
        assert!(error(plan, &["a".to_owned()]).contains("no host is named no; the hosts are a"));
        let names = (0..251).map(|number| number.to_string()).collect::<Vec<_>>();
        assert!(error(HostsPlan::default(), &names).contains("251 hosts"));
        let twice = ["a", "b", "a"].map(str::to_owned);
        let found = error(HostsPlan::default(), &twice);
        assert!(found.contains("two hosts named a"), "{found}");
    }
}
