//! Access to the content of a consensus: texts, addresses, weights, and the network that it
//! describes.

use std::net::IpAddr;

use ff_proto::units::BytesPerSec;

use super::{Consensus, ConsensusRelay, Text};
use crate::network::{self, CapacitySource, Network};

impl Consensus {
    /// A relay's nickname or version as text.
    #[must_use]
    pub fn text(&self, text: Text) -> &str {
        let place = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
        self.texts.get(place(text.start)..place(text.end)).unwrap_or_default()
    }

    /// When it became valid, as text: `2019-07-14 00:00:00`, in UTC.
    #[must_use]
    pub fn valid_after(&self) -> &str {
        self.text(self.valid_after)
    }

    /// The parameters of its header as text; empty without such a line.
    #[must_use]
    pub fn params(&self) -> &str {
        self.text(self.params)
    }

    /// The bandwidth-weights of its footer; empty without such a line.
    pub fn bandwidth_weights(&self) -> impl ExactSizeIterator<Item = (&str, i32)> {
        self.weights.iter().map(|(key, value)| (self.text(*key), *value))
    }

    /// A relay's addresses, beginning with the IPv4 address of its line `r`.
    pub fn addresses(&self, relay: &ConsensusRelay) -> impl Iterator<Item = IpAddr> {
        let place = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
        let (start, len) = (place(relay.others_start), place(relay.others_len));
        let others = self.others.get(start..start.saturating_add(len)).unwrap_or_default();
        std::iter::once(IpAddr::V4(relay.address)).chain(others.iter().copied())
    }

    /// The network that it describes, equal to the result of [`Network::from`] for `ff_dir`'s
    /// reader: measured weights are used as capacities.
    #[must_use]
    pub fn to_network(&self) -> Network {
        Network {
            name: self.valid_after().to_owned(),
            unix_secs: Some(self.valid_after_unix_secs),
            capacities: CapacitySource::Weights,
            relays: self.relays.iter().map(|relay| self.network_relay(relay)).collect(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "weights do not lie above 2^53")]
    fn network_relay(&self, relay: &ConsensusRelay) -> network::Relay {
        // Without a measured weight there is no value to use as capacity.
        let measured = relay.bandwidth.filter(|weight| !relay.is_unmeasured && *weight > 0);
        network::Relay {
            fingerprint: relay.fingerprint,
            nickname: self.text(relay.nickname).to_owned(),
            addresses: self.addresses(relay).collect(),
            flags: relay.flags.into(),
            capacity: measured.map(|kilobytes| BytesPerSec::new(kilobytes.saturating_mul(1000))),
            weight: relay.bandwidth.map_or(0.0, |bandwidth| bandwidth as f64),
            is_unmeasured: relay.is_unmeasured,
            running: 1.0,
            ..network::Relay::default()
        }
    }
}
