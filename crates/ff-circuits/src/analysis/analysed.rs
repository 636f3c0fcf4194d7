//! The circuits that are analysed, by host, and their values.

use crate::read::{Circuits, Seen};

/// The analysed circuits, by host.
pub(crate) type Hosts<'a> = Vec<(usize, Vec<&'a Seen>)>;

/// The analysed circuits of each host, in the order in which they were read.
pub(crate) fn hosts(circuits: &Circuits, hops: u8) -> Hosts<'_> {
    let mut hosts: Hosts<'_> = (0..circuits.hosts.len()).map(|host| (host, Vec::new())).collect();
    let counts = |seen: &&Seen| seen.build_ms.is_some() && seen.hops == Some(hops);
    for seen in circuits.all.iter().filter(counts) {
        if let Some((_, all)) = hosts.get_mut(seen.host as usize) {
            all.push(seen);
        }
    }
    hosts.retain(|(_, all)| !all.is_empty());
    hosts
}

/// The name of a host.
pub(super) fn host_name(circuits: &Circuits, host: usize) -> String {
    circuits.hosts.get(host).cloned().unwrap_or_default()
}

/// The values of circuits that have one.
pub(super) fn values(all: &[&Seen], of: impl Fn(&Seen) -> Option<f64>) -> Vec<f64> {
    all.iter().filter_map(|seen| of(seen)).collect()
}
