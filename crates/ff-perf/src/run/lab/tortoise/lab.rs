//! A private network as ff-sim draws it: relays, clients, and clients that run a relay, each a tor.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ff_circuits::lab::tortoise::STOCK;
use ff_flow::tortoise::experiment::Cell;
use ff_flow::tortoise::world::{TortoiseClient, World};
use ff_lab::net::Namespace;
use ff_lab::{Ending, Network, NetworkBuilder, Node, RelayConfig};

use super::timers::Timers;
use super::users::User;

/// The networks' address range, and its first address.
const ADDRESSES: (&str, Ipv4Addr) = ("10.9.0.0/16", Ipv4Addr::new(10, 9, 0, 1));
/// Longest packet in bytes: with loopback's 64 KiB, queues in a link would not show.
const MTU: u16 = 1500;
/// Number of authorities: the consensus uses the weights of a bandwidth file if three vote for
/// them.
const AUTHORITIES: usize = 3;
/// Time between consensuses, so long that there is no second one.
const VOTING_INTERVAL: Duration = Duration::from_secs(1800);
/// Lowest rate of a relay that tor accepts, in bytes per second.
const LEAST_RATE: u64 = 76_800;
/// Parameters of the public network's consensus on scheduling, queues and congestion control.
const PARAMS: [(&str, i64); 6] = [
    ("KISTSchedRunInterval", 2),
    ("circ_max_cell_queue_size", 2000),
    ("cc_alg", 2),
    ("cc_cwnd_inc_rate", 31),
    ("cc_cwnd_min", 124),
    ("cc_sscap_exit", 600),
];

/// Kind of tor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tor {
    /// Without FlashFlow; token buckets are refilled every 100 ms.
    Stock,
    /// Without FlashFlow; token buckets are refilled once a second.
    Slow,
    /// With FlashFlow's limit.
    Ours,
}

impl Tor {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stock => STOCK,
            Self::Slow => "stock 1 s",
            Self::Ours => "ours",
        }
    }

    /// Refill interval of its token buckets, in ms. SETCONF cannot change it.
    const fn refill_ms(self) -> u32 {
        match self {
            Self::Slow => 1000,
            Self::Stock | Self::Ours => 100,
        }
    }

    /// Command that sets the limit of a relay's links: bytes per second, and burst in bytes.
    pub(super) fn limit_command(self, limit: Option<(u64, u64)>) -> String {
        let (rate, burst) = limit.unwrap_or((0, 0));
        let ours = match (self, limit) {
            (Self::Ours, Some(_)) => " FFIngressLimit=1 FFIngressExempt=fast",
            (Self::Ours, None) => " FFIngressLimit=0",
            (Self::Stock | Self::Slow, _) => "",
        };
        format!("SETCONF PerConnBWRate={rate} PerConnBWBurst={burst}{ours}")
    }
}

/// Moves the calling thread, and all processes that it starts, into a namespace in which nodes have
/// their own addresses.
///
/// # Errors
/// Without root.
pub(super) fn enter_namespace() -> ff_lab::Result<Namespace> {
    let namespace = Namespace::new("tortoise", "cubic")?;
    namespace.own_network(ADDRESSES.0)?;
    namespace.set_loopback_mtu(MTU)?;
    namespace.enter()?;
    Ok(namespace)
}

/// Starts the configuration of a network in that namespace.
pub(super) fn builder(tor: Option<&Path>, ending: &Ending) -> NetworkBuilder {
    let mut builder = Network::builder()
        .authorities(AUTHORITIES)
        .addresses_from(ADDRESSES.1)
        .voting_interval(VOTING_INTERVAL)
        .ending(ending);
    if let Some(tor) = tor {
        builder = builder.tor(tor);
    }
    PARAMS.into_iter().fold(builder, |builder, (name, value)| builder.consensus_param(name, value))
}

/// Address of a client's node; numbers count authorities, relays, clients.
pub(super) fn address(relays: usize, client: usize) -> Ipv4Addr {
    let number = u32::try_from(AUTHORITIES + relays + client).unwrap_or(0);
    Ipv4Addr::from_bits(ADDRESSES.1.to_bits() + number)
}

/// Closes a client's links, so that it gets new ones with full buckets.
///
/// # Errors
/// If the client does not obey, or the end is asked for.
pub(super) fn renew_links(client: &Node, timers: &Timers<'_>) -> Result<()> {
    let mut control = client.control()?;
    control.setconf("DisableNetwork", "1")?;
    // By then its relays have noticed.
    timers.sleep(Duration::from_secs(1))?;
    control.setconf("DisableNetwork", "0")?;
    Ok(client.wait_for_enough_documents()?)
}

/// A running network.
pub(super) struct Lab {
    network: Network,
    tor: Tor,
    /// Each client's number in the sequence, and the name of its node.
    clients: Vec<(u64, String)>,
}

impl Lab {
    /// Starts a network and waits until all clients know enough to build circuits.
    ///
    /// # Errors
    /// If a tor does not start.
    pub(super) fn start(
        tor: Tor,
        program: Option<&Path>,
        world: &World,
        ending: &Ending,
    ) -> Result<Self> {
        let mut builder = builder(program, ending);
        for (number, rate) in world.capacities.iter().take(world.dedicated()).enumerate() {
            builder = builder.relay(relay(format!("relay{number}"), tor, *rate));
        }
        let (mut clients, mut tors) = (Vec::new(), 0);
        for client in &world.clients {
            let name = match client.relay {
                Some(place) => {
                    let forwards = forwards(world, place);
                    builder = builder.relay(client_relay(client, tor, forwards));
                    relay_name(client)
                }
                None => {
                    let (rate, number) = (whole(client.down), tors);
                    builder = builder
                        .torrc_of_client(number, format!("BandwidthRate {rate} bytes"))
                        .torrc_of_client(number, format!("BandwidthBurst {rate} bytes"));
                    tors += 1;
                    format!("client{number}")
                }
            };
            clients.push((client.stream, name));
        }
        // The paper's clients had no conflux, and a client needs no extra threads for a few
        // circuits.
        let builder = builder.clients(tors).client_torrc("ConfluxEnabled 0");
        let network = builder.client_torrc("NumCPUs 1").start()?;
        network.relays().try_for_each(Node::wait_for_enough_documents)?;
        Ok(Self { network, tor, clients })
    }

    pub(super) const fn network(&self) -> &Network {
        &self.network
    }

    /// Sets the limit of an experiment at its relays.
    ///
    /// # Errors
    /// If a relay refuses it.
    pub(super) fn limit(&self, world: &World) -> Result<()> {
        for (number, name) in self.relay_names(world).iter().enumerate() {
            let limits = world.relays.get(number).is_some_and(|relay| relay.limits);
            let limit = world.limit.filter(|_| limits);
            let limit = limit.map(|limit| (whole(limit.rate), whole(limit.burst)));
            let command = self.tor.limit_command(limit);
            let set = self.network.node(name).control()?.command(&command);
            set.with_context(|| format!("Failed to set the limit of {name}"))?;
        }
        Ok(())
    }

    /// Sets the rates of the relays with their own machines.
    ///
    /// # Errors
    /// If a relay refuses it.
    pub(super) fn set_capacity(&self, world: &World) -> Result<()> {
        for (number, rate) in world.capacities.iter().take(world.dedicated()).enumerate() {
            let (name, rate) = (format!("relay{number}"), whole(*rate).max(LEAST_RATE));
            let command = format!("SETCONF BandwidthRate={rate} BandwidthBurst={rate}");
            let set = self.network.node(&name).control()?.command(&command);
            set.with_context(|| format!("Failed to set the rate of {name}"))?;
        }
        Ok(())
    }

    /// Bytes written so far by the relays with their own machines.
    ///
    /// # Errors
    /// If one of them does not report it.
    pub(super) fn written(&self, world: &World) -> Result<u64> {
        let of = |number: usize| {
            let node = self.network.node(&format!("relay{number}"));
            let text = node.control()?.getinfo("traffic/written")?;
            text.parse::<u64>().with_context(|| format!("traffic/written is {text:?}"))
        };
        (0..world.dedicated()).map(of).sum()
    }

    /// Users of an experiment: all of the network's, or fewer.
    ///
    /// # Errors
    /// If the network does not have such a client.
    pub(super) fn users(&self, world: &World) -> Result<Vec<User>> {
        let user = |client: &TortoiseClient| {
            let found = self.clients.iter().find(|(stream, _)| *stream == client.stream);
            let (_, name) = found.context("the network lacks a client of the experiment")?;
            Ok(User { client: *client, socks: self.network.node(name).socks_addr() })
        };
        world.clients.iter().map(user).collect()
    }

    /// Node names of an experiment's relays.
    fn relay_names(&self, world: &World) -> Vec<String> {
        let dedicated = (0..world.dedicated()).map(|number| format!("relay{number}"));
        let runners = world.clients.iter().filter(|client| client.relay.is_some());
        dedicated.chain(runners.map(relay_name)).collect()
    }
}

/// The experiment that contains all clients of these, which have the same number of client relays.
pub(super) fn largest(cells: &[Cell]) -> Option<Cell> {
    cells.iter().max_by_key(|cell| cell.has_more).copied()
}

/// Nickname of a client's relay.
fn relay_name(client: &TortoiseClient) -> String {
    format!("runner{}", client.stream)
}

/// Rate that a client's relay forwards, in bytes per second.
fn forwards(world: &World, place: usize) -> f64 {
    let hop = world.relays.get(place).and_then(|relay| usize::try_from(relay.hops[0]).ok());
    hop.and_then(|hop| world.capacities.get(hop)).copied().unwrap_or(0.0)
}

/// A relay with this rate in bytes per second, which is also its weight. As in ff-sim, any relay
/// may have any position in a circuit.
fn relay(name: String, tor: Tor, rate: f64) -> RelayConfig {
    let bytes = whole(rate).max(LEAST_RATE);
    let relay = RelayConfig::exit(name)
        .bandwidth_rate(bytes)
        .measured((whole(rate) / 1000).max(1))
        .torrc(format!("TokenBucketRefillInterval {} msec", tor.refill_ms()));
    match tor {
        Tor::Stock | Tor::Slow => relay,
        // Else its buckets would be exact with a limit only, and it would carry more with a limit
        // than without one.
        Tor::Ours => relay.torrc("FFMeasurementsAllowed 1"),
    }
}

/// A client's relay: it forwards what its line carries upwards, and shares the downward direction
/// with the client.
fn client_relay(client: &TortoiseClient, tor: Tor, forwards: f64) -> RelayConfig {
    let bytes = whole(forwards).max(LEAST_RATE);
    let line = whole(client.down).max(bytes);
    relay(relay_name(client), tor, forwards)
        .bandwidth_rate(line)
        .torrc(format!("RelayBandwidthRate {bytes} bytes"))
        .torrc(format!("RelayBandwidthBurst {bytes} bytes"))
        .torrc("ConfluxEnabled 0")
        .socks_port()
}

/// Rounds to whole bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^53"
)]
fn whole(bytes: f64) -> u64 {
    bytes.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_and_taken_back_by_one_command() {
        let limit = Some((100_000, 20_000));
        let stock = "SETCONF PerConnBWRate=100000 PerConnBWBurst=20000";
        assert_eq!(Tor::Slow.limit_command(limit), stock);
        let ours = format!("{stock} FFIngressLimit=1 FFIngressExempt=fast");
        assert_eq!(Tor::Ours.limit_command(limit), ours);
        let none = "SETCONF PerConnBWRate=0 PerConnBWBurst=0";
        assert_eq!(Tor::Stock.limit_command(None), none);
        assert_eq!(Tor::Ours.limit_command(None), format!("{none} FFIngressLimit=0"));
    }

    #[test]
    fn clients_come_after_authorities_and_relays() {
        assert_eq!(address(0, 0), Ipv4Addr::new(10, 9, 0, 4));
        assert_eq!(address(55, 900), Ipv4Addr::new(10, 9, 3, 191));
    }
}
