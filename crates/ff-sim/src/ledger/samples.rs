//! Samples of the data that come with the program and are used if there is no folder. ff-archives's
//! `tests/data` gives the source of each.

use std::io::Read as _;

use anyhow::{Context, Result};
use ff_archives::network::{CapacitySource, Network, Relay};
use ff_archives::read::{relayinfo, shadow};
use ff_proto::units::BytesPerSec;
use ff_report::skipped::Skips;
use liblzma::read::XzDecoder;

use super::{ADVERTISED, DAYS, DESCRIPTORS, FEBRUARY, GUARDS, MAY, public};
use crate::attack;

/// A file that comes with the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The content, packed by xz or not.
    bytes: &'static [u8],
    /// A description, if it is only a part of the data that matter in the original file.
    pub(super) of: Option<&'static str>,
}

const fn whole(bytes: &'static [u8]) -> Sample {
    Sample { bytes, of: None }
}

/// A part of a file.
const fn part(of: &'static str, bytes: &'static [u8]) -> Sample {
    Sample { bytes, of: Some(of) }
}

/// The sample of the tables of 2025.
const OF_2025: &str = "some relays of the tables of 2025";
/// The sample of February 2020.
const OF_2020: &str = "22 relays and 9 descriptors of February 2020";
/// The first bytes of files packed by xz.
const XZ: &[u8] = b"\xfd7zXZ\0";

impl Sample {
    pub(super) fn unpacked(self) -> Result<Vec<u8>> {
        if !self.bytes.starts_with(XZ) {
            return Ok(self.bytes.to_vec());
        }
        let mut bytes = Vec::new();
        XzDecoder::new(self.bytes).read_to_end(&mut bytes).context("a sample is broken")?;
        Ok(bytes)
    }
}

/// The sample of a file, if there is one.
pub(super) fn of(name: &str) -> Option<Sample> {
    Some(match name {
        DAYS => {
            whole(include_bytes!("../../../ff-archives/tests/data/analysis-bandwidth-2019.csv"))
        }
        public::STATISTICS => {
            whole(include_bytes!("../../../ff-archives/tests/data/tor-2019-and-shadow-stats.txt"))
        }
        "d-2019/tmodel-packet.json" => {
            whole(include_bytes!("../../../ff-archives/tests/data/flow-tmodel-packet.json"))
        }
        "d-2019/tmodel-stream.json" => {
            whole(include_bytes!("../../../ff-archives/tests/data/flow-tmodel-stream.json"))
        }
        "d-2019/shadow-10pct/01/relays.csv" => {
            whole(include_bytes!("../../../ff-archives/tests/data/flow-relays-01.csv.xz"))
        }
        "d-2019/shadow-10pct/01/load-1.0.json.xz" => {
            whole(include_bytes!("../../../ff-archives/tests/data/flow-load-01.json.xz"))
        }
        ADVERTISED => part(
            OF_2025,
            include_bytes!("../../../ff-archives/tests/data/analysis-advertised.csv.xz"),
        ),
        GUARDS => {
            part(OF_2025, include_bytes!("../../../ff-archives/tests/data/analysis-weights.csv.xz"))
        }
        FEBRUARY => part(
            OF_2020,
            include_bytes!("../../../ff-archives/tests/data/read-2020-02-29-consensus"),
        ),
        DESCRIPTORS => part(
            OF_2020,
            include_bytes!("../../../ff-archives/tests/data/read-2020-02-29-descriptors.xz"),
        ),
        MAY => part(
            "some relays of May 2024",
            include_bytes!("../../../ff-archives/tests/data/relayinfo-2024-05-sample.json.xz"),
        ),
        _ => return None,
    })
}

/// The network in a sample.
pub(super) fn network(name: &str, bytes: &[u8]) -> Result<Network> {
    if name == MAY {
        return Ok(relayinfo::parse(name, bytes).0);
    }
    shadow::parse_network(name, bytes, &mut Skips::default())
}

/// The relays of May 2024 that ran for half of the month: all of them, with capacities only.
pub(super) fn capacities_of_may() -> Result<Network> {
    let file = whole(include_bytes!("../../../ff-archives/tests/data/2024-05-capacities.csv.xz"));
    let text = String::from_utf8(file.unpacked()?).context("a sample is not text")?;
    let relay = |(number, line): (u32, &str)| -> Result<Relay> {
        let bytes_per_sec = line.parse().context("a capacity of the sample is not a number")?;
        let (fingerprint, running) = (attack::sample::name(number), 1.0);
        let capacity = Some(BytesPerSec::new(bytes_per_sec));
        Ok(Relay { fingerprint, capacity, running, ..Relay::default() })
    };
    let relays = (0..).zip(text.lines().skip(1)).map(relay).collect::<Result<_>>()?;
    Ok(Network { relays, capacities: CapacitySource::Given, ..Network::default() })
}
