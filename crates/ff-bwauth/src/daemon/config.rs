//! The coordinator's config: `bwauth.toml`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ff_measurer::exchange::MAX_DURATION;
use ff_measurer::key;
use ff_proto::ids::Ed25519Id;
use ff_proto::params::{DURATION_SECS, PERIOD_SECS};
use ff_proto::units::BytesPerSec;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::network::live::LiveConfig;
use crate::team::exchange::{EXCHANGE_SECS, MIN_EXCHANGE_SECS};

/// Seconds that a slot has beside the measurement itself, for opening links.
const SLOT_MARGIN_SECS: u32 = 15;
/// How long before a period its consensus must have been there, so that all coordinators have it.
const CONSENSUS_LEAD_SECS: u64 = 1800;

/// A config as it stands in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file of the coordinator's key.
    pub key: PathBuf,
    /// The directory of the store and the caches.
    pub state_dir: PathBuf,
    /// The directory of the bandwidth files.
    pub publish_dir: PathBuf,
    /// The page and the figures.
    #[serde(default)]
    pub watch: Watch,
    /// Which network.
    pub network: Network,
    /// When who is measured.
    pub period: PeriodTable,
    /// How the measurers are measured.
    #[serde(default)]
    pub exchange: ExchangeTable,
    /// What is kept for how long.
    #[serde(default)]
    pub keep: Keep,
    /// The bandwidth file.
    #[serde(default)]
    pub publish: Publish,
    /// The team.
    #[serde(rename = "measurer")]
    pub measurers: Vec<MeasurerTable>,
    /// The other coordinators of this network.
    #[serde(default, rename = "coordinator")]
    pub coordinators: Vec<CoordinatorTable>,
}

/// The table `watch`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watch {
    /// Where the page is; none if it is not to be.
    pub listen: Option<SocketAddr>,
    /// Whether the figures name relays.
    pub figures_per_relay: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::from(([127, 0, 0, 1], 9231))), figures_per_relay: false }
    }
}

/// The table `network`: where its documents come from.
#[derive(Clone, Debug)]
pub enum Network {
    /// Files that somebody else keeps up to date.
    Files(Files),
    /// The directory authorities.
    Live(LiveConfig),
}

impl<'de> Deserialize<'de> for Network {
    /// A table that names a consensus is about files. An untagged enumeration would not say what is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        let read = if table.contains_key("consensus") {
            table.try_into().map(Self::Files)
        } else {
            table.try_into().map(Self::Live)
        };
        read.map_err(|error: toml::de::Error| D::Error::custom(error.message()))
    }
}

/// Documents on disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The consensus.
    pub consensus: PathBuf,
    /// Server descriptors.
    pub descriptors: Vec<PathBuf>,
}

/// The table `period`. All coordinators of a network have the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeriodTable {
    /// The coordinators' common secret: a file of 32 random bytes.
    pub secret: PathBuf,
    /// The length of a period in seconds.
    #[serde(default = "period_secs")]
    pub length_secs: u32,
    /// How long a relay is measured, in seconds.
    #[serde(default = "measure_secs")]
    pub measure_secs: u16,
    /// The length of a slot in seconds.
    pub slot_secs: Option<u32>,
    /// How long before a period its consensus must have become valid, in seconds.
    #[serde(default = "consensus_lead_secs")]
    pub consensus_lead_secs: u64,
    /// How often the network's documents are asked for, in seconds.
    #[serde(default = "refresh_secs")]
    pub refresh_secs: u32,
}

impl PeriodTable {
    /// The length of a slot in seconds.
    #[must_use]
    pub fn slot_secs(&self) -> u32 {
        self.slot_secs.unwrap_or(u32::from(self.measure_secs) + SLOT_MARGIN_SECS)
    }

    /// How many slots a period has.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.length_secs / self.slot_secs()
    }
}

/// The table `exchange`: when the measurers are measured.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeTable {
    /// For how long all exchange with all others, in seconds.
    pub duration_secs: u16,
    /// Whether they do when one is new or has another address, as soon as the plan has a gap.
    pub by_itself: bool,
}

impl Default for ExchangeTable {
    fn default() -> Self {
        Self { duration_secs: EXCHANGE_SECS, by_itself: true }
    }
}

/// The table `keep`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// For how many days the seconds of measurements are kept.
    pub samples_days: u32,
    /// For how many days results are kept.
    pub results_days: u32,
}

impl Default for Keep {
    fn default() -> Self {
        Self { samples_days: 30, results_days: 400 }
    }
}

/// The table `publish`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Publish {
    /// How often a bandwidth file is written, in seconds.
    pub every_secs: u32,
    /// The nickname of the authority that votes with it.
    pub dirauth_nickname: Option<String>,
    /// How many relays there must be at least.
    pub min_relays: u64,
    /// By which factor the total may change.
    pub max_total_factor: f64,
    /// By which factor a relay may change.
    pub max_relay_factor: f64,
}

impl Default for Publish {
    fn default() -> Self {
        let rules = crate::publish::PublishRules::default();
        Self {
            every_secs: 3600,
            dirauth_nickname: None,
            min_relays: rules.min_relays,
            max_total_factor: rules.max_total_factor,
            max_relay_factor: rules.max_relay_factor,
        }
    }
}

/// A table `measurer`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurerTable {
    /// How the operator calls it.
    pub name: String,
    /// Where it is: `HOST:PORT`.
    pub address: String,
    /// Its identity.
    #[serde(deserialize_with = "identity")]
    pub identity: Ed25519Id,
    /// What its network carries both ways at once.
    #[serde(deserialize_with = "parsed")]
    pub capacity: BytesPerSec,
}

/// A table `coordinator`: another one of this network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoordinatorTable {
    /// How people call it.
    pub name: String,
    /// Its identity.
    #[serde(deserialize_with = "identity")]
    pub identity: Ed25519Id,
    /// The capacities of its measurers, in the order of its own config.
    #[serde(deserialize_with = "rates")]
    pub team: Vec<BytesPerSec>,
}

/// A day.
fn period_secs() -> u32 {
    u32::try_from(PERIOD_SECS).unwrap_or(u32::MAX)
}

/// The paper's thirty seconds.
fn measure_secs() -> u16 {
    ff_proto::params::Params::default().duration_secs
}

/// Half an hour.
fn consensus_lead_secs() -> u64 {
    CONSENSUS_LEAD_SECS
}

/// A quarter of an hour.
fn refresh_secs() -> u32 {
    900
}

/// Reads what stands in the file as text.
fn parsed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BytesPerSec, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Reads a list of rates.
fn rates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BytesPerSec>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// Reads an identity.
fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ed25519Id, D::Error> {
    key::parse_identity(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

impl Config {
    /// Reads a config; relative paths in it are from its directory.
    ///
    /// # Errors
    /// Naming the file, the line and what is wrong with it.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("Failed to read {}", path.display()))?;
        let mut config: Self = toml::from_str(&text).map_err(|error| {
            anyhow::anyhow!("{}: {}", path.display(), error.to_string().trim_end())
        })?;
        let dir = path.parent().unwrap_or(Path::new("."));
        config.make_absolute(dir);
        config.check().with_context(|| path.display().to_string())?;
        Ok(config)
    }

    /// Makes relative paths those from this directory.
    fn make_absolute(&mut self, dir: &Path) {
        let mut paths = vec![
            &mut self.key,
            &mut self.state_dir,
            &mut self.publish_dir,
            &mut self.period.secret,
        ];
        match &mut self.network {
            Network::Files(files) => {
                paths.push(&mut files.consensus);
                paths.extend(&mut files.descriptors);
            }
            Network::Live(live) => {
                paths.push(&mut live.cache_dir);
                paths.extend(&mut live.private_network);
            }
        }
        for path in paths.into_iter().filter(|path| path.is_relative()) {
            *path = dir.join(&path);
        }
    }

    /// Finds what cannot be meant.
    fn check(&self) -> Result<()> {
        let PeriodTable { length_secs, measure_secs, .. } = self.period;
        let slot_secs = self.period.slot_secs();
        if !DURATION_SECS.contains(&measure_secs) {
            bail!(
                "period.measure_secs is {measure_secs}: a relay is measured for 1 to 120 seconds"
            );
        }
        if slot_secs <= u32::from(measure_secs) {
            bail!("period.slot_secs is {slot_secs}, which is no more than measure_secs");
        }
        if length_secs < 2 * slot_secs {
            bail!("period.length_secs is {length_secs}: not even two slots of {slot_secs} s");
        }
        if self.period.refresh_secs == 0 || self.publish.every_secs == 0 {
            bail!("period.refresh_secs and publish.every_secs must be 1 at least");
        }
        let longest = u16::try_from(MAX_DURATION.as_secs()).unwrap_or(u16::MAX);
        if !(MIN_EXCHANGE_SECS..=longest).contains(&self.exchange.duration_secs) {
            bail!(
                "exchange.duration_secs is {}: measurers exchange for {MIN_EXCHANGE_SECS} to {longest} seconds",
                self.exchange.duration_secs
            );
        }
        if self.measurers.is_empty() {
            bail!("there is no measurer: `ff-measurer init` prints the lines for one");
        }
        let mut seen = HashSet::new();
        for MeasurerTable { name, identity, .. } in &self.measurers {
            if !seen.insert(*identity) {
                bail!("the measurer {name:?} has the identity of another one");
            }
        }
        let mut seen = HashSet::new();
        for CoordinatorTable { name, identity, .. } in &self.coordinators {
            if !seen.insert(*identity) {
                bail!("the coordinator {name:?} has the identity of another one");
            }
        }
        Ok(())
    }

    /// The store's file.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.state_dir.join("store.sqlite")
    }
}
