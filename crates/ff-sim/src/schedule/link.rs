//! The rates of relays that share a host's link and are measured at once (paper App. F, Table 4).
//!
//! TCP flows of many sockets each share a link about evenly. So relays get their own rates or, if
//! the sum is too high, the same share as the others that would have more (max-min). The link's
//! packets, losses and round trips are not modelled: they are included in the ratios of
//! [`super::errors`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;
use std::net::IpAddr;

use ff_archives::read::table;
use ff_proto::units::BytesPerSec;
use ff_report::skipped::Skips;
use serde::Deserialize;

use super::arrivals::believed;
use super::units::bits_per_sec;

/// A row of a table of links.
#[derive(Deserialize)]
struct Row {
    /// The host's address.
    address: String,
    /// The capacity of its link, such as `954M`.
    rate: Option<String>,
    /// The same in bytes per second.
    bytes_per_sec: Option<u64>,
}

impl Row {
    /// The host's address and the capacity of its link.
    fn link(self) -> Result<(IpAddr, BytesPerSec), String> {
        let address = self.address.trim();
        let address = address.parse().map_err(|_| format!("{address:?} is not an address"))?;
        let rate = match (self.rate, self.bytes_per_sec) {
            (Some(rate), None) => bits_per_sec(&rate).map_err(|error| error.to_string())?,
            (None, Some(bytes)) => believed(bytes)?,
            (None, None) => return Err("it has neither rate nor bytes_per_sec".to_owned()),
            (Some(_), Some(_)) => return Err("it has both rate and bytes_per_sec".to_owned()),
        };
        Ok((address, rate))
    }
}

/// Reads a table of links with the columns `address` and either `rate`, in bits per second as on
/// the command line, or `bytes_per_sec`. If a host has several rows, the first is used.
#[must_use]
pub fn read_csv(name: &str, from: impl Read) -> (BTreeMap<IpAddr, BytesPerSec>, Skips) {
    let (mut links, mut skips) = (BTreeMap::new(), Skips::default());
    table::rows(name, from, &mut skips, |row: Row| {
        let (address, rate) = row.link()?;
        let Entry::Vacant(new) = links.entry(address) else {
            return Err("a second row of this host".to_owned());
        };
        new.insert(rate);
        Ok(())
    });
    (links, skips)
}

/// The max-min shares of a link, for relays that could use the rates `wants`.
#[must_use]
pub fn share(link: BytesPerSec, wants: &[BytesPerSec]) -> Vec<BytesPerSec> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|&index| wants[index]);
    let (mut left, mut shares) = (link.get(), vec![BytesPerSec::new(0); wants.len()]);
    for (index, others) in order.into_iter().zip((0..wants.len() as u64).rev()) {
        let given = wants[index].get().min(left / (others + 1));
        left -= given;
        shares[index] = BytesPerSec::new(given);
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_wants_little_has_it_and_the_others_the_same() {
        let rates = |bytes: &[u64]| bytes.iter().copied().map(BytesPerSec::new).collect::<Vec<_>>();
        assert_eq!(share(BytesPerSec::new(100), &rates(&[90, 10, 60])), rates(&[45, 10, 45]));
        assert_eq!(share(BytesPerSec::new(200), &rates(&[90, 10, 60])), rates(&[90, 10, 60]));
        assert_eq!(share(BytesPerSec::new(0), &rates(&[90])), rates(&[0]));
        assert_eq!(share(BytesPerSec::new(9), &[]), []);
    }

    #[test]
    fn links_are_read_and_what_is_odd_is_listed_with_its_line() {
        let text = "address,rate\n192.0.2.1,954M\n\n192.0.2.1,1G\n2001:db8::1,31250kB\n192.0.2,1G\n192.0.2.3,5\n\
                    192.0.2.4\n192.0.2.5,\n";
        let (links, skips) = read_csv("l.csv", text.as_bytes());
        let found: Vec<_> =
            links.iter().map(|(host, link)| (host.to_string(), link.get())).collect();
        let expected = [("192.0.2.1", 119_250_000), ("2001:db8::1", 31_250_000)];
        assert_eq!(found, expected.map(|(host, link)| (host.to_owned(), link)));
        let lines: Vec<_> = skips.all.iter().filter_map(|one| one.line).collect();
        assert_eq!((lines, skips.read), (vec![4, 6, 7, 8, 9], 2), "{skips:?}");
        let (links, skips) =
            read_csv("l.csv", &b"bytes_per_sec,address\n5,192.0.2.1\n0,192.0.2.2\n"[..]);
        assert_eq!((links.len(), skips.all.len()), (1, 1), "{skips:?}");
        for odd in [
            "",
            "address\n192.0.2.1\n",
            "address,rate,bytes_per_sec\n192.0.2.1,1G,5\n",
            "\u{0}\"\n\u{0}",
        ] {
            assert!(read_csv("odd", odd.as_bytes()).0.is_empty(), "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn no_table_panics(text: String) {
            let _ = read_csv("odd", text.as_bytes());
            let _ = read_csv("odd", format!("address,rate\n{text}").as_bytes());
        }

        #[test]
        fn the_link_is_full_or_everybody_has_enough(
            link in any::<u64>(), wants in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            let wants: Vec<_> = wants.into_iter().map(BytesPerSec::new).collect();
            let shares = share(BytesPerSec::new(link), &wants);
            let sum: u128 = shares.iter().map(|share| u128::from(share.get())).sum();
            let wanted: u128 = wants.iter().map(|want| u128::from(want.get())).sum();
            prop_assert_eq!(sum, wanted.min(link.into()));
            // A relay with less than it could use has as much as any other, except for a byte.
            let most = shares.iter().map(|share| share.get()).max().unwrap_or(0);
            for (share, want) in shares.iter().zip(&wants) {
                prop_assert!(share <= want);
                prop_assert!(share == want || share.get() + 20 >= most);
            }
        }
    }
}
