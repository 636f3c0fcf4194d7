//! The demo network's relays.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZero;
use std::time::Duration;

use anyhow::Result;
use ff_proto::ids::Ed25519Id;
use ff_proto::session::target::Policy;
use ff_proto::units::{BytesPerSec, Ratio};
use ff_relay_ext::arti::host::RelayHost;

use crate::cli::DemoArgs;

/// The rate limit of the slowest relay, and the difference between each relay's limit and the next.
const LIMIT_STEP: BytesPerSec = BytesPerSec::new(500_000);

/// A relay of the network.
pub(super) struct Relay {
    /// Its nickname.
    pub(super) nickname: String,
    /// Its rate limit.
    pub(super) limit: BytesPerSec,
    /// The running relay.
    pub(super) host: RelayHost,
}

/// Starts the relays.
pub(super) fn start(options: &DemoArgs, coordinators: &[Ed25519Id]) -> Result<Vec<Relay>> {
    let policy = Policy {
        enabled: true,
        coordinators: coordinators.to_vec(),
        period: Duration::from_secs(options.period_secs.into()),
        ratio: Ratio::from_percent(25).unwrap_or(Ratio::ZERO),
        max_duration_secs: NonZero::new(options.duration).unwrap_or(NonZero::<u16>::MIN),
        max_sockets: 512,
    };
    let relay = |number: u8| {
        let limit = LIMIT_STEP.scale(f64::from(number));
        // Relays at one address are taken for one machine, and measured at the same time.
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1, number));
        let host = RelayHost::start_at(address, policy.clone(), Some(limit), None)?;
        Ok(Relay { nickname: format!("demo{number}"), limit, host })
    };
    (1..=options.relays).map(relay).collect()
}
