//! An order for cells in transit, and its checks.

use std::net::SocketAddr;
use std::time::Duration;

use ff_proto::addresses::is_private;
use ff_proto::ids::CryptoKind;
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use crate::link::{LinkOptions, TargetAddr};

/// The largest number of links to a relay with a public address: tor refuses further links of an
/// address that has 100.
pub const MAX_PUBLIC_LINKS: u16 = 90;
/// The default number of links to a relay.
pub const DEFAULT_LINKS: u16 = 20;
/// The default number of circuits of each link.
const CIRCUITS_A_LINK: u32 = 2;
/// The number of links and circuits opened per second at a relay with a public address: it takes
/// more than two or three circuits a second, or about 40 links at once, from one address for an
/// attack.
const PUBLIC_CIRCUITS_PER_SEC: u32 = 2;

/// The direction of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the measurer to the sink: the relay decrypts.
    Forward,
    /// From the sink to the measurer: the relay encrypts.
    Backward,
    /// Both at once.
    Both,
}

impl Direction {
    /// Whether the measurer sends cells.
    pub(super) fn is_forward(self) -> bool {
        self != Self::Backward
    }

    /// Whether the sink sends cells.
    pub(super) fn is_backward(self) -> bool {
        self != Self::Forward
    }
}

/// An order to send cells in transit through a relay.
#[derive(Clone, Debug)]
pub struct TransitOrder {
    /// The relay.
    pub target: TargetAddr,
    /// The relay's key for circuits, `ntor-onion-key` of its descriptor.
    pub onion_key: [u8; 32],
    /// The crypto of the circuits.
    pub crypto: CryptoKind,
    /// The number of links to the relay.
    pub links: u16,
    /// The number of circuits over all links.
    pub circuits: u32,
    /// The number of circuits that always send, the same on each link; the others are quiet.
    pub busy_circuits: u32,
    /// One cell in this number goes over a quiet circuit, in turn; `None` leaves them idle.
    pub quiet_one_in: Option<u32>,
    /// The largest number of links, and of circuits, opened per second; `None` for no limit, but
    /// two at a relay with a public address.
    pub circuits_per_sec: Option<u32>,
    /// Whether the relay's operator has agreed; otherwise only private addresses are measured.
    pub has_consent: bool,
    /// Listening addresses of the sinks, each of which has its own identity: the relay has one link
    /// to each.
    pub sinks: Vec<SocketAddr>,
    /// The direction of cells.
    pub direction: Direction,
    /// The rate in each direction; `None` for no limit.
    pub rate: Option<BytesPerSec>,
    /// How long cells are sent.
    pub duration: Duration,
    /// Cells per TLS record, 1 to 31.
    pub cells_per_record: usize,
    /// The least probability with which a cell is checked.
    pub check_probability: f64,
    /// The processor cores of the measurer and of the sink, as in [`crate::Order::cores`].
    pub cores: [Vec<usize>; 2],
    /// Options for opening links.
    pub link: LinkOptions,
}

impl TransitOrder {
    /// An order for this relay and these sinks: two circuits on each of 20 links, in both
    /// directions, for ten seconds, without a limit of the rate; checks and records as in a
    /// measurement.
    #[must_use]
    pub fn new(target: TargetAddr, onion_key: [u8; 32], sinks: Vec<SocketAddr>) -> Self {
        let params = Params::default();
        Self {
            target,
            onion_key,
            crypto: CryptoKind::CGO_AES128,
            links: DEFAULT_LINKS,
            circuits: Self::circuits_for(DEFAULT_LINKS),
            busy_circuits: u32::MAX,
            quiet_one_in: None,
            circuits_per_sec: None,
            has_consent: false,
            sinks,
            direction: Direction::Both,
            rate: None,
            duration: Duration::from_secs(10),
            cells_per_record: params.cells_per_record,
            check_probability: params.check_probability,
            cores: [Vec::new(), Vec::new()],
            link: LinkOptions::default(),
        }
    }

    /// The default number of circuits for this number of links.
    #[must_use]
    pub fn circuits_for(links: u16) -> u32 {
        CIRCUITS_A_LINK * u32::from(links)
    }

    /// Checks the values, and whether the order is allowed without the operator's consent.
    ///
    /// # Errors
    /// A text with the reason.
    pub fn check(&self) -> Result<(), String> {
        let Self { links, circuits, ref sinks, ref target, .. } = *self;
        if links == 0 || sinks.is_empty() || circuits < links.into() {
            return Err(format!(
                "{links} links, {circuits} circuits and {} sinks: use at least one link, one circuit \
                 per link, and one sink",
                sinks.len()
            ));
        }
        if self.quiet_one_in.is_some() && self.busy_circuits < links.into() {
            return Err(format!(
                "{} busy circuits over {links} links: if other circuits carry cells too, each link needs \
                 a busy one",
                self.busy_circuits
            ));
        }
        self.check_bounds()?;
        if let Some(sink) = sinks.iter().find(|sink| sink.ip().is_unspecified()) {
            return Err(format!("the sink {sink}: give an address that the relay can connect to"));
        }
        if is_private(target.addr.ip()) {
            return Ok(());
        }
        if !self.has_consent {
            return Err(format!(
                "{} is a public address: ask the relay's operator, then confirm the consent with \
                 --i-have-the-operators-consent",
                target.addr
            ));
        }
        if let Some(sink) = sinks.iter().find(|sink| is_private(sink.ip())) {
            return Err(format!(
                "the sink {sink} has a private address, to which a relay with a public one cannot connect"
            ));
        }
        if links > MAX_PUBLIC_LINKS {
            return Err(format!(
                "{links} links are too many for a relay with a public address: {MAX_PUBLIC_LINKS} at most"
            ));
        }
        Ok(())
    }

    /// Checks that numbers are within their bounds.
    fn check_bounds(&self) -> Result<(), String> {
        let params = Params {
            sockets: self.links,
            duration_secs: u16::try_from(self.duration.as_secs()).unwrap_or(u16::MAX),
            cells_per_record: self.cells_per_record,
            check_probability: self.check_probability,
            ..Params::default()
        };
        params.validate().map_err(|error| error.to_string())?;
        if self.circuits_per_sec == Some(0) || self.quiet_one_in == Some(0) {
            return Err("circuits_per_sec and quiet_one_in must be at least 1".to_owned());
        }
        Ok(())
    }

    /// The largest number of links and circuits to open per second, if it is limited.
    pub(super) fn pace(&self) -> Option<u32> {
        if is_private(self.target.addr.ip()) {
            return self.circuits_per_sec;
        }
        Some(
            self.circuits_per_sec
                .map_or(PUBLIC_CIRCUITS_PER_SEC, |asked| asked.min(PUBLIC_CIRCUITS_PER_SEC)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An order for a relay at this address.
    fn order(addr: &str) -> TransitOrder {
        let addr: SocketAddr = addr.parse().expect("an address");
        let target = TargetAddr { addr, ed_identity: [3; 32].into() };
        TransitOrder::new(target, [4; 32], vec![([198, 51, 100, 7], 0).into()])
    }

    #[test]
    fn only_private_addresses_are_sent_anything_without_consent() {
        for (addr, is_private) in [
            ("127.0.0.1:1", true),
            ("10.1.2.3:1", true),
            ("172.31.0.1:1", true),
            ("192.168.0.1:1", true),
            ("169.254.0.1:1", true),
            ("198.18.0.1:1", true),
            ("198.19.255.255:1", true),
            ("198.20.0.1:1", false),
            ("[::1]:1", true),
            ("[fd00::1]:1", true),
            ("[fe80::1]:1", true),
            ("[::ffff:10.0.0.1]:1", true),
            ("[::ffff:192.0.2.1]:1", false),
            ("192.0.2.1:1", false),
            ("172.32.0.1:1", false),
            ("0.0.0.0:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            let mut order = order(addr);
            assert_eq!(order.check().is_ok(), is_private, "{addr}");
            order.has_consent = true;
            assert_eq!(order.check(), Ok(()), "{addr}");
            let pace = |asked| TransitOrder { circuits_per_sec: asked, ..order.clone() }.pace();
            let expected =
                if is_private { [None, Some(50), Some(1)] } else { [Some(2), Some(2), Some(1)] };
            assert_eq!([pace(None), pace(Some(50)), pace(Some(1))], expected, "{addr}");
            (order.links, order.circuits) = (MAX_PUBLIC_LINKS, 200);
            assert_eq!(order.check(), Ok(()), "{addr} with just so many links");
            order.links = MAX_PUBLIC_LINKS + 1;
            assert_eq!(order.check().is_ok(), is_private, "{addr} with many links");
            let sinks = vec![([10, 0, 0, 1], 9001).into()];
            let local = TransitOrder { sinks, links: 1, ..order };
            assert_eq!(local.check().is_ok(), is_private, "{addr} to a private sink");
        }
    }

    #[test]
    fn a_link_a_circuit_for_each_and_a_sink_are_the_least() {
        let good = order("127.0.0.1:1");
        for bad in [
            TransitOrder { links: 0, ..good.clone() },
            TransitOrder { circuits: 19, ..good.clone() },
            TransitOrder { sinks: Vec::new(), ..good.clone() },
            TransitOrder { sinks: vec![([0, 0, 0, 0], 9001).into()], ..good.clone() },
            TransitOrder { circuits_per_sec: Some(0), ..good.clone() },
            TransitOrder { quiet_one_in: Some(0), ..good.clone() },
            TransitOrder { quiet_one_in: Some(9), busy_circuits: 19, ..good.clone() },
            TransitOrder { cells_per_record: 0, ..good.clone() },
            TransitOrder { duration: Duration::from_secs(70_000), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert_eq!(good.check(), Ok(()));
    }
}
