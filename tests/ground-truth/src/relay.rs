//! The relay in question: a tor or an arti-relay.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;
use ff_lab::{ArtiRelay, Node};
use ff_measurer::link::TargetAddr;

/// The address of the sinks of an arti-relay, which refuses loopback.
const ARTI_SINK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);

/// A relay that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relay<'a> {
    /// A tor, which counts its bytes.
    Tor(&'a Node),
    /// An arti-relay, which does not.
    Arti(&'a ArtiRelay),
}

impl Relay<'_> {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tor(node) => node.name(),
            Self::Arti(relay) => relay.name(),
        }
    }

    /// Its address and identity.
    pub(crate) fn target(&self) -> TargetAddr {
        match self {
            Self::Tor(node) => {
                TargetAddr { addr: node.or_addr(), ed_identity: node.ed_identity().into() }
            }
            Self::Arti(relay) => {
                TargetAddr { addr: relay.addr().into(), ed_identity: relay.ed_identity().into() }
            }
        }
    }

    /// Its key for circuits.
    pub(crate) fn onion_key(&self) -> Result<[u8; 32]> {
        Ok(match self {
            Self::Tor(node) => node.ntor_onion_key()?,
            Self::Arti(relay) => relay.ntor_onion_key(),
        })
    }

    /// The address of sinks that it extends circuits to.
    pub(crate) fn sink(&self) -> IpAddr {
        match self {
            Self::Tor(_) => Ipv4Addr::LOCALHOST.into(),
            Self::Arti(_) => ARTI_SINK.into(),
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(match self {
            Self::Tor(node) => node.pid()?,
            Self::Arti(relay) => relay.pid(),
        })
    }

    /// Its CPU time so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        Ok(match self {
            Self::Tor(node) => node.cpu_time()?,
            Self::Arti(relay) => relay.cpu_time()?,
        })
    }

    /// Its resident memory in bytes.
    pub(crate) fn rss_bytes(&self) -> Result<u64> {
        Ok(match self {
            Self::Tor(node) => node.rss_bytes()?,
            Self::Arti(relay) => relay.rss_bytes()?,
        })
    }
}
