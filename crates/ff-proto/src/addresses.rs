//! Whether addresses are on the public Internet or in private networks.
//!
//! Some addresses are neither: documentation, multicast, tunnels such as 6to4. Code that needs a
//! public address refuses them, and code that exempts private addresses does not exempt them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public Internet, by IANA's registries of special-purpose
/// addresses.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => !is_private_v4(v4) && !is_special_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Whether an address belongs to this host, a private network or a test network (198.18.0.0/15, RFC
/// 2544).
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// The same for an IPv4 address.
fn is_private_v4(v4: Ipv4Addr) -> bool {
    let [a, b, ..] = v4.octets();
    let is_for_tests = a == 198 && (b == 18 || b == 19);
    v4.is_loopback() || v4.is_private() || v4.is_link_local() || is_for_tests
}

/// Whether an address is in a special range, neither public nor private.
fn is_special_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    v4.is_documentation()
        || a == 0
        || a >= 224
        || (a == 100 && (64..128).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
}

/// Only 2000::/3 is allocated, and parts of it are special: 2001::/23 (Teredo among it),
/// 2001:db8::/32, 2002::/16 (6to4), 3fff::/20.
fn is_public_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.segments();
    let is_special = (first == 0x2001 && (second < 0x200 || second == 0xdb8))
        || first == 0x2002
        || (first == 0x3fff && second < 0x1000);
    first & 0xe000 == 0x2000 && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails unless each address is public and private as expected.
    fn assert_all(addresses: &[&str], expected: (bool, bool)) {
        for text in addresses {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!((is_public(address), is_private(address)), expected, "{text}");
        }
    }

    #[test]
    fn public_and_private_addresses_are_distinguished() {
        assert_all(
            &[
                "1.1.1.1",
                "198.17.255.255",
                "198.20.0.1",
                "198.51.99.1",
                "100.128.0.1",
                "172.32.0.1",
            ],
            (true, false),
        );
        assert_all(&["2a00::1", "2001:470::1", "::ffff:1.1.1.1"], (true, false));
        assert_all(
            &["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.31.0.1", "169.254.169.254"],
            (false, true),
        );
        assert_all(&["198.18.0.0", "198.19.255.255", "::ffff:198.18.0.1"], (false, true));
        assert_all(&["::1", "fe80::1", "fc00::1", "fd00::1", "::ffff:10.0.0.1"], (false, true));
    }

    #[test]
    fn special_addresses_are_neither_public_nor_private() {
        assert_all(
            &[
                "0.0.0.0",
                "0.1.2.3",
                "100.64.0.1",
                "192.0.0.1",
                "192.0.2.1",
                "192.88.99.1",
                "198.51.100.1",
            ],
            (false, false),
        );
        assert_all(&["224.0.0.1", "255.255.255.255", "::ffff:192.0.2.1"], (false, false));
        assert_all(
            &[
                "::",
                "ff02::1",
                "2001:db8::1",
                "2002:7f00:1::",
                "64:ff9b::7f00:1",
                "2001::1",
                "3fff::1",
            ],
            (false, false),
        );
    }
}
