//! The arti-relays in question: one process for each number of worker threads and each choice of
//! cores.
//!
//! They have no network and need none: circuits of cells in transit name the addresses and keys of
//! their hops. All but the one at work are idle.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_lab::net::Namespace;
use ff_lab::{ArtiRelay, ArtiRelayPlan, NETWORK};
use ff_measurer::measurer_id;

use crate::case::{Case, Limit};

/// The name of this program's namespace in messages.
const NAMESPACE: &str = "ground-truth";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The ORPort of the first.
const FIRST_PORT: u16 = 9001;
/// Coordinators that each relay allows, the most possible. Each may measure twice in the least
/// period, 10 seconds.
const COORDINATORS: usize = 64;

/// How one of them runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    /// Worker threads.
    threads: u16,
    /// The core that it has to itself; `None` if it may use all.
    core: Option<usize>,
}

impl Running {
    /// How it runs in a case; `None` if the case is a tor's.
    fn of(case: &Case, core: usize) -> Option<Self> {
        let core = (case.limit != Limit::AllCores).then_some(core);
        case.arti_threads.map(|threads| Self { threads, core })
    }
}

pub(crate) struct ArtiRelays {
    /// Each with how it runs.
    relays: Vec<(Running, ArtiRelay)>,
    /// The coordinators that all of them allow.
    coordinators: Vec<SigningKey>,
    /// Coordinators that have measured.
    used: AtomicUsize,
    /// The core of those that have one.
    core: usize,
}

impl ArtiRelays {
    /// Starts those that these cases need, from a thread that may use all cores.
    pub(crate) fn start(program: &Path, cases: &[Case], core: usize) -> Result<Self> {
        let namespace = Namespace::here(NAMESPACE)?;
        let coordinators: Vec<_> =
            (0..COORDINATORS).map(|_| SigningKey::from_bytes(&rand::random())).collect();
        let sections = section(&coordinators);
        let mut relays: Vec<(Running, ArtiRelay)> = Vec::new();
        for (running, port) in kinds(cases, core).into_iter().zip(FIRST_PORT..) {
            let plan = ArtiRelayPlan {
                program,
                namespace: &namespace,
                addr: SocketAddrV4::new(ADDRESS, port),
                sections: &sections,
                threads: running.threads.into(),
                core: running.core,
            };
            relays.push((running, ArtiRelay::start(&plan)?));
        }
        Ok(Self { relays, coordinators, used: AtomicUsize::new(0), core })
    }

    pub(crate) fn of(&self, case: &Case) -> Result<&ArtiRelay> {
        let running = Running::of(case, self.core);
        let found = self.relays.iter().find(|(one, _)| Some(*one) == running);
        found.map(|(_, relay)| relay).context("no arti-relay was started for this case")
    }

    /// A coordinator that has not measured for the longest time.
    pub(crate) fn coordinator(&self) -> SigningKey {
        let number = self.used.fetch_add(1, Ordering::Relaxed);
        self.coordinators[number % self.coordinators.len()].clone()
    }
}

/// Gives this program's namespace the addresses that arti-relay takes.
pub(crate) fn prepare() -> Result<()> {
    Ok(Namespace::here(NAMESPACE)?.own_network(NETWORK)?)
}

/// How the relays of these cases run, each once.
fn kinds(cases: &[Case], core: usize) -> Vec<Running> {
    let mut kinds = Vec::new();
    for running in cases.iter().filter_map(|case| Running::of(case, core)) {
        if !kinds.contains(&running) {
            kinds.push(running);
        }
    }
    kinds
}

/// The section by which these coordinators may measure.
fn section(coordinators: &[SigningKey]) -> String {
    let id = |key| format!("{:?}", Base64Unpadded::encode_string(&measurer_id(key).0));
    let listed: Vec<_> = coordinators.iter().map(id).collect();
    format!(
        "[flashflow]\ntesting_tor_network = true\nmeasurement_period = 10\nmeasurements_allowed = true\n\
         allowed_coordinators = [{}]\n",
        listed.join(", ")
    )
}
