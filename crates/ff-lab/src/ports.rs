//! Reserves ports on 127.0.0.0/8.
//!
//! The ports of relays and authorities appear in descriptors and in every node's torrc, so they are
//! chosen before the tors start and kept when one is restarted. They are below the system's range
//! for outgoing connections: any connection could take a port in that range while its tor is down.
//!
//! Two networks of one process never get the same port. Two processes can, between the check and
//! the start of a tor; then `NetworkBuilder::start` starts again.

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::{Error, Result};

/// A port reserved within this process while the value exists.
#[derive(Debug)]
pub(crate) struct Port(SocketAddr);

impl Port {
    /// Reserves an unused port of 127.0.0.1.
    pub(crate) fn reserve() -> Result<Self> {
        Self::reserve_at(Ipv4Addr::LOCALHOST)
    }

    /// Reserves an unused port of this address.
    pub(crate) fn reserve_at(address: Ipv4Addr) -> Result<Self> {
        let end = first_ephemeral_port().max(LOWEST + 1000);
        for attempt in 0..10_000_u32 {
            // Each RandomState has its own keys: a random number without a dependency.
            let random = RandomState::new().hash_one(attempt);
            let offset = random % u64::from(end - LOWEST);
            let Ok(port) = u16::try_from(u64::from(LOWEST) + offset) else { continue };
            if let Some(port) = Self::try_reserve(address, port) {
                return Ok(port);
            }
        }
        Err(Error::Misuse(format!("no free port on {address}")))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0
    }

    /// Reserves this port if it is free.
    fn try_reserve(address: Ipv4Addr, port: u16) -> Option<Self> {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !reserved.contains(&port) && TcpListener::bind((address, port)).is_ok();
        is_free.then(|| {
            reserved.insert(port);
            Self((address, port).into())
        })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0.port());
    }
}

/// Lowest port used; daemons tend to have lower ones.
const LOWEST: u16 = 10_500;

/// Ports of this process's networks.
static RESERVED: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// First port of the system's range for outgoing connections; Linux's default if it is hidden.
fn first_ephemeral_port() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_again_only_after_its_drop() {
        // Another test or program may take it in between.
        let is_free_again = |_| {
            let port = Port::reserve().unwrap();
            let number = port.addr().port();
            assert!(Port::try_reserve(Ipv4Addr::LOCALHOST, number).is_none());
            drop(port);
            Port::try_reserve(Ipv4Addr::LOCALHOST, number).is_some()
        };
        assert!((0..20).any(is_free_again));
    }

    #[test]
    fn a_port_in_use_is_not_reserved() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = listener.local_addr().unwrap().port();
        assert!(Port::try_reserve(Ipv4Addr::LOCALHOST, number).is_none());
    }
}
