//! Tors of the network with limited links.

use ff_lab::{Network, RelayConfig};

use super::super::lab::{Tor, builder};
use super::Links;

/// Number of guards of each kind, and of clients, without a crowd.
const FEW: usize = 4;
/// Links of the crowd that have bulk, and all of them.
const CROWD: [f64; 2] = [100.0, 1000.0];
/// A rate that nothing here reaches, in bytes per second.
pub(super) const MOST_RATE: u64 = 1_000_000_000;

/// Size of a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) clients: usize,
    /// Clients that have bulk.
    pub(super) busy: usize,
    /// Guards of each kind.
    guards: usize,
}

impl Size {
    pub(super) const FEW: Self = Self { clients: FEW, busy: FEW, guards: FEW };

    /// The crowd, or a fraction of it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "twice a thousand at most"
    )]
    pub(super) fn crowd(scale: f64) -> Self {
        let [busy, clients] = CROWD.map(|count| (count * scale).ceil() as usize);
        Self { clients, busy, guards: 1 }
    }
}

pub(super) fn guard_name(tor: Tor, number: usize) -> String {
    debug_assert!(tor != Tor::Slow, "it has no guards here");
    format!("{}{number}", tor.name())
}

pub(super) fn client_name(number: usize) -> String {
    format!("client{number}")
}

/// Starts a network of this size.
pub(super) fn start(links: &Links<'_>, size: &Size) -> ff_lab::Result<Network> {
    let ours = links.args.tor.as_path();
    let stock = links.args.stock.as_deref().unwrap_or_else(|| "tor".as_ref());
    let mut builder = builder(Some(ours), links.ending).clients(size.clients);
    for (tor, program) in [(Tor::Ours, ours), (Tor::Stock, stock)] {
        for number in 0..size.guards {
            let guard = RelayConfig::middle(guard_name(tor, number)).tor(program);
            builder = builder.relay(guard.measured(2000));
        }
    }
    for inner in [RelayConfig::middle("middle0"), RelayConfig::exit("exit0")] {
        builder = builder.relay(inner.measured(2000));
    }
    builder.client_torrc("ConfluxEnabled 0").client_torrc("NumCPUs 1").start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_scales() {
        let size = |scale: f64| (Size::crowd(scale).busy, Size::crowd(scale).clients);
        assert_eq!([size(1.0), size(0.33), size(0.01)], [(100, 1000), (33, 330), (1, 10)]);
    }
}
