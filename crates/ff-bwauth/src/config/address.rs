//! Checks the addresses of measurers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail};

/// The placeholder for a measurer's name or address in what `ff-measurer init` prints.
const TO_REPLACE: &str = "HOST";

/// Fails unless the addresses of these measurers, each with its name, are valid and all different.
pub(super) fn check_addresses<'a>(
    measurers: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    let mut names = HashMap::new();
    for (name, address) in measurers {
        check_address(address).with_context(|| format!("the measurer {name:?}"))?;
        if let Some(other) = names.insert(address.to_ascii_lowercase(), name) {
            bail!("the measurers {other:?} and {name:?} have the same address {address:?}");
        }
    }
    Ok(())
}

/// Fails unless it is `HOST:PORT`, with an address that one host can have or a valid host name.
fn check_address(address: &str) -> Result<()> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    if host == TO_REPLACE {
        bail!("the address is {address:?}: write the measurer's name or address for {TO_REPLACE}");
    }
    let is_literal = match address.parse::<SocketAddr>() {
        Ok(literal) if !is_one_hosts(literal) => {
            bail!("no host can be reached at the address {address:?}")
        }
        literal => literal.is_ok(),
    };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if !(is_literal || is_port && is_name(host)) {
        bail!(
            "the address {address:?} is not HOST:PORT, as 192.0.2.1:9230, [2001:db8::1]:9230 or m1.example:9230"
        );
    }
    Ok(())
}

/// Whether this is a valid host name.
fn is_name(host: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || "-_".contains(c);
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(is_of_name);
    let labels = host.strip_suffix('.').unwrap_or(host);
    labels.split('.').all(is_label) && labels.chars().any(char::is_alphabetic)
}

/// Whether one host can be reached there: not at port 0, at an address of many hosts, or on an
/// unnamed link.
fn is_one_hosts(addr: SocketAddr) -> bool {
    let ip = addr.ip().to_canonical();
    let is_many = ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    let has_link = match addr {
        SocketAddr::V6(v6) => v6.scope_id() > 0 || !v6.ip().is_unicast_link_local(),
        SocketAddr::V4(_) => true,
    };
    addr.port() > 0 && !is_many && has_link
}
