//! The coordinator's config: `bwauth.toml`.

mod address;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ff_live::LiveConfig;
use ff_measurer::config::{check_names, not_readable};
use ff_measurer::exchange::MAX_DURATION;
use ff_measurer::{key, secret_file};
use ff_plan::period::usual_slot_secs;
use ff_plan::publish::PublishRules;
use ff_plan::publish::days::MEMORY_DAYS;
use ff_proto::ids::Ed25519Id;
use ff_proto::params::{DURATION_SECS, PERIOD_SECS, Params};
use ff_proto::units::BytesPerSec;
use ff_team::exchange::{EXCHANGE_SECS, MIN_EXCHANGE_SECS};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use self::address::check_addresses;

/// How long before a period its consensus must be available, so that all coordinators have it.
pub(crate) const CONSENSUS_LEAD_SECS: u64 = 1800;

/// A config as it stands in the file. The kind of network is known while the file is read, so an
/// error in that table names its line.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config<N = NetworkConfig> {
    /// The file of the coordinator's key, as [`secret_file::locate`] finds it.
    pub key: PathBuf,
    /// The directory of the store and the caches.
    pub state_dir: PathBuf,
    /// The directory of the bandwidth files.
    pub publish_dir: PathBuf,
    /// The page and the metrics.
    #[serde(default)]
    pub watch: Watch,
    /// The table `network`.
    pub network: N,
    /// The table `period`: who is measured when, and for how long.
    pub period: PeriodTable,
    /// The table `exchange`: when measurers' networks are measured.
    #[serde(default)]
    pub exchange: ExchangeTable,
    /// The table `keep`: how long the store keeps records.
    #[serde(default)]
    pub keep: Keep,
    /// The table `publish`: rules of the bandwidth file.
    #[serde(default)]
    pub publish: Publish,
    /// The tables `measurer`: the team.
    #[serde(default, rename = "measurer")]
    pub measurers: Vec<MeasurerTable>,
    /// The other coordinators of this network.
    #[serde(default, rename = "coordinator")]
    pub coordinators: Vec<CoordinatorTable>,
}

/// The table `watch`: the page and the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watch {
    /// The page's address; `None` for no page.
    pub listen: Option<SocketAddr>,
    /// Names by which the page may be requested, in addition to those of loopback: names of a
    /// reverse proxy.
    pub hosts: Vec<String>,
    /// Whether the metrics name relays.
    pub figures_per_relay: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9231))),
            hosts: Vec::new(),
            figures_per_relay: false,
        }
    }
}

/// The table `network`: the source of the network's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkConfig {
    /// Files that somebody else keeps up to date.
    Files(Files),
    /// The directory authorities.
    Live(LiveConfig),
}

/// Files of the network's documents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The consensus.
    pub consensus: PathBuf,
    /// Server descriptors.
    pub descriptors: Vec<PathBuf>,
}

/// The table `period`. All coordinators of a network need the same one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeriodTable {
    /// The coordinators' common secret: a file of 32 random bytes, which [`secret_file::locate`]
    /// finds.
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
    /// How often the network's documents are fetched, in seconds.
    #[serde(default = "refresh_secs")]
    pub refresh_secs: u32,
}

impl PeriodTable {
    /// The length of a slot in seconds.
    #[must_use]
    pub fn slot_secs(&self) -> u32 {
        self.slot_secs.unwrap_or_else(|| usual_slot_secs(self.measure_secs))
    }

    /// The parameters of a measurement.
    #[must_use]
    pub fn params(&self) -> Params {
        Params { duration_secs: self.measure_secs, ..Params::default() }
    }

    /// The number of slots in a period.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.length_secs / self.slot_secs()
    }
}

/// The table `exchange`: when measurers' networks are measured.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeTable {
    /// The length of an exchange in seconds.
    pub duration_secs: u16,
    /// Whether the coordinator starts an exchange itself, in a gap of the plan, for a measurer that
    /// is new or has another address.
    pub by_itself: bool,
}

impl Default for ExchangeTable {
    fn default() -> Self {
        Self { duration_secs: EXCHANGE_SECS, by_itself: true }
    }
}

/// The table `keep`: how long the store keeps records.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// How many days the seconds of measurements are kept.
    pub samples_days: u32,
    /// How many days results are kept.
    pub results_days: u32,
}

impl Default for Keep {
    fn default() -> Self {
        Self { samples_days: 30, results_days: 400 }
    }
}

/// The table `publish`: rules of the bandwidth file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Publish {
    /// How often a bandwidth file is written, in seconds.
    pub every_secs: u32,
    /// The nickname of the authority that votes with the file.
    pub dirauth_nickname: Option<String>,
    /// The least number of relays in a file.
    pub min_relays: u64,
    /// The largest factor by which the total may change.
    pub max_total_factor: f64,
    /// The largest factor by which a relay's number may change.
    pub max_relay_factor: f64,
}

impl Default for Publish {
    fn default() -> Self {
        let rules = PublishRules::default();
        Self {
            every_secs: 3600,
            dirauth_nickname: None,
            min_relays: rules.min_relays,
            max_total_factor: rules.max_total_factor,
            max_relay_factor: rules.max_relay_factor,
        }
    }
}

impl Publish {
    /// The rules for bandwidth files.
    #[must_use]
    pub fn rules(&self) -> PublishRules {
        PublishRules {
            min_relays: self.min_relays,
            max_total_factor: self.max_total_factor,
            max_relay_factor: self.max_relay_factor,
            ..PublishRules::default()
        }
    }
}

/// A table `measurer`: a measurer of the team.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurerTable {
    /// The operator's name for it.
    pub name: String,
    /// The measurer's address: `HOST:PORT`.
    pub address: String,
    /// The measurer's identity.
    #[serde(deserialize_with = "identity")]
    pub identity: Ed25519Id,
    /// The capacity of the measurer's network, in both directions at once.
    #[serde(deserialize_with = "parsed")]
    pub capacity: BytesPerSec,
}

/// A table `coordinator`: another coordinator of this network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoordinatorTable {
    /// The operator's name for it.
    pub name: String,
    /// The coordinator's identity.
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

/// Ten seconds.
fn measure_secs() -> u16 {
    Params::default().duration_secs
}

/// Half an hour.
fn consensus_lead_secs() -> u64 {
    CONSENSUS_LEAD_SECS
}

/// A quarter of an hour.
fn refresh_secs() -> u32 {
    900
}

/// Parses a rate from its text.
fn parsed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BytesPerSec, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Parses a list of rates.
fn rates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BytesPerSec>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// Parses an identity.
fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ed25519Id, D::Error> {
    key::parse_identity(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

impl<N> Config<N> {
    /// The same config with another type of network.
    fn of<M>(self, kind: impl FnOnce(N) -> M) -> Config<M> {
        Config {
            key: self.key,
            state_dir: self.state_dir,
            publish_dir: self.publish_dir,
            watch: self.watch,
            network: kind(self.network),
            period: self.period,
            exchange: self.exchange,
            keep: self.keep,
            publish: self.publish,
            measurers: self.measurers,
            coordinators: self.coordinators,
        }
    }
}

impl Config {
    /// Reads a config; relative paths in it start in its directory.
    ///
    /// # Errors
    /// Names the file, the line and the problem.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("Failed to read {}", path.display()))?;
        let mut config = Self::parse(&text).map_err(|error| not_readable(path, &text, &error))?;
        let dir = path.parent().unwrap_or(Path::new("."));
        config.make_absolute(dir);
        config.locate_secrets(dir).with_context(|| path.display().to_string())?;
        config.check().with_context(|| path.display().to_string())?;
        Ok(config)
    }

    /// Parses a config. If the `network` table has the key `consensus`, it is one of files.
    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let table: toml::Table = toml::from_str(text)?;
        let network = table.get("network").and_then(toml::Value::as_table);
        if network.is_some_and(|network| network.contains_key("consensus")) {
            toml::from_str(text).map(|config: Config<Files>| config.of(NetworkConfig::Files))
        } else {
            toml::from_str(text).map(|config: Config<LiveConfig>| config.of(NetworkConfig::Live))
        }
    }

    /// Finds the files of the key and the secret, which a service manager may provide.
    fn locate_secrets(&mut self, dir: &Path) -> Result<()> {
        self.key = secret_file::locate(&self.key, dir).context("key")?;
        self.period.secret =
            secret_file::locate(&self.period.secret, dir).context("period.secret")?;
        Ok(())
    }

    /// Makes relative paths start in this directory, except those of secrets.
    fn make_absolute(&mut self, dir: &Path) {
        let mut paths = vec![&mut self.state_dir, &mut self.publish_dir];
        match &mut self.network {
            NetworkConfig::Files(files) => {
                paths.push(&mut files.consensus);
                paths.extend(&mut files.descriptors);
            }
            NetworkConfig::Live(live) => live.make_absolute(dir),
        }
        for path in paths.into_iter().filter(|path| path.is_relative()) {
            *path = dir.join(&path);
        }
    }

    /// Rejects values that contradict each other or cannot work.
    fn check(&self) -> Result<()> {
        let PeriodTable { length_secs, measure_secs, .. } = self.period;
        let slot_secs = self.period.slot_secs();
        if !DURATION_SECS.contains(&measure_secs) {
            bail!(
                "period.measure_secs is {measure_secs}: a relay is measured for 1 to 120 seconds"
            );
        }
        if slot_secs <= u32::from(measure_secs) {
            bail!("period.slot_secs is {slot_secs}, but must be greater than measure_secs");
        }
        if length_secs / 2 < slot_secs {
            bail!("period.length_secs is {length_secs}: not even two slots of {slot_secs} s");
        }
        if self.period.refresh_secs == 0 || self.publish.every_secs == 0 {
            bail!("period.refresh_secs and publish.every_secs must be at least 1");
        }
        if let Some(addr) = self.watch.listen.filter(|addr| !addr.ip().is_loopback()) {
            bail!(
                "watch.listen is {addr}, but everybody who can reach the page may read it: use an \
                 address of loopback, such as 127.0.0.1, and a tunnel"
            );
        }
        self.publish.rules().check()?;
        if let Some(name) = &self.publish.dirauth_nickname
            && !((1..20).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            bail!(
                "publish.dirauth_nickname is {name:?}: a nickname has 1 to 19 letters and digits"
            );
        }
        if u64::from(self.keep.results_days) < MEMORY_DAYS {
            bail!(
                "keep.results_days is {}; it must be at least {MEMORY_DAYS}, because published values use that many days of results",
                self.keep.results_days
            );
        }
        let longest = u16::try_from(MAX_DURATION.as_secs()).unwrap_or(u16::MAX);
        if !(MIN_EXCHANGE_SECS..=longest).contains(&self.exchange.duration_secs) {
            bail!(
                "exchange.duration_secs is {}: measurers exchange for {MIN_EXCHANGE_SECS} to {longest} seconds",
                self.exchange.duration_secs
            );
        }
        if self.measurers.is_empty() {
            bail!(
                "there is no [[measurer]] table: add the lines that `ff-measurer init` prints on each measurer's host"
            );
        }
        let measurers = self.measurers.iter().map(|one| (one.name.as_str(), one.identity));
        check_names("measurer", measurers)?;
        let addresses = self.measurers.iter().map(|one| (one.name.as_str(), one.address.as_str()));
        check_addresses(addresses)?;
        let coordinators = self.coordinators.iter().map(|one| (one.name.as_str(), one.identity));
        check_names("coordinator", coordinators)?;
        if let Some(other) = self.coordinators.iter().find(|other| other.team.is_empty()) {
            bail!(
                "the coordinator {:?} has an empty `team`: write the capacities of its measurers there",
                other.name
            );
        }
        Ok(())
    }

    /// This config with the new one's values that a running coordinator can adopt, and the names of
    /// other changed parts, which need a restart.
    #[must_use]
    pub fn with(&self, new: &Self) -> (Self, Vec<&'static str>) {
        let refresh_secs = new.period.refresh_secs;
        let period = PeriodTable { refresh_secs, ..self.period.clone() };
        let fixed = [
            ("key", self.key != new.key),
            ("state_dir", self.state_dir != new.state_dir),
            ("publish_dir", self.publish_dir != new.publish_dir),
            ("[watch]", self.watch != new.watch),
            ("[network]", self.network != new.network),
            ("[period]", period != new.period),
        ];
        let merged = Self {
            period,
            exchange: new.exchange,
            keep: new.keep,
            publish: new.publish.clone(),
            measurers: new.measurers.clone(),
            coordinators: new.coordinators.clone(),
            ..self.clone()
        };
        let changed = fixed.into_iter().filter(|(_, has_changed)| *has_changed);
        (merged, changed.map(|(name, _)| name).collect())
    }

    /// The store's file.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.state_dir.join("store.sqlite")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A config with this `network` table.
    fn text(network: &str) -> String {
        let identity = key::identity_text(&Ed25519Id([7; 32]));
        format!(
            "key = 'k'\nstate_dir = 's'\npublish_dir = 'p'\n[watch]\nhosts = ['bwauth.example']\n[network]\n\
             {network}\n[period]\nsecret = 'x'\n[[measurer]]\nname = 'm'\naddress = '127.0.0.1:1'\n\
             identity = '{identity}'\ncapacity = '1Gbit'\n"
        )
    }

    /// Parses this text as a config.
    fn load(text: &str) -> Result<Config> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bwauth.toml");
        std::fs::write(&path, text).expect("written");
        Config::load(&path)
    }

    #[test]
    fn what_is_wrong_with_the_network_is_found_in_its_line() {
        for (network, line, part) in [
            ("consensus = 'c'\ndescriptors = 'd'", 8, "sequence"),
            ("consensus = 'c'\ndescriptors = []\nwrong = 1", 9, "wrong"),
            ("cache_dir = 'c'\ncache = 3", 8, "cache"),
            ("cache_dir = 'c'\n[[network.authority]]\nname = 5", 9, "string"),
            ("cache_dir = 'c'\n[network.limits]\nconsensuses = 'x'", 9, "usize"),
        ] {
            let error = format!("{:#}", load(&text(network)).expect_err(network));
            let place = format!("bwauth.toml, line {line}: ");
            assert!(error.contains(&place) && error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_said_where_it_belongs() {
        let good = text("cache_dir = 'c'");
        for (from, to, said) in [
            ("key = 'k'\n", "", " has no `key`; the config"),
            ("state_dir = 's'\n", "", " has no `state_dir`; the config"),
            ("publish_dir = 'p'\n", "", " has no `publish_dir`; the config"),
            ("[network]\n", "[keep]\n", ", line 7: unknown field `cache_dir`"),
            ("cache_dir = 'c'\n", "", ", line 6: the table [network] has no `cache_dir`; the"),
            ("secret = 'x'\n", "", ", line 8: the table [period] has no `secret`; the"),
            ("name = 'm'\n", "", ", line 10: the table [[measurer]] has no `name`; the"),
            ("capacity = '1Gbit'", "", ", line 10: the table [[measurer]] has no `capacity`; the"),
            ("'1Gbit'", "'fast'", ", line 14: \"fast\" is not a rate"),
            ("'127.0.0.1:1'", "5", ", line 12: invalid type"),
            ("[[measurer]]", "[[measurers]]", ", line 10: unknown field `measurers`"),
            ("[[measurer]]", "[measurer]", ", line 10: invalid type"),
        ] {
            let error = format!("{:#}", load(&good.replacen(from, to, 1)).expect_err(said));
            assert!(error.contains(&format!("bwauth.toml{said}")), "{error}, not {said}");
            assert!(!error.contains('\n') && !error.contains("TOML"), "{error}");
        }
        let (without, _) = good.split_once("[[measurer]]").expect("a measurer");
        let error = format!("{:#}", load(without).expect_err("nobody measures"));
        assert!(error.contains("no [[measurer]] table: add the lines that"), "{error}");
    }

    #[test]
    fn each_relative_path_is_from_the_configs_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bwauth.toml");
        let network = "cache_dir = 'c'\nstate_dir = 'a'\nprivate_network = 'n'";
        std::fs::write(&path, text(network)).expect("written");
        let config = Config::load(&path).expect("good");
        let NetworkConfig::Live(live) = &config.network else { panic!("live: {config:?}") };
        let found = [&config.key, &config.state_dir, &config.publish_dir, &config.period.secret];
        assert_eq!(found, ["k", "s", "p", "x"].map(|name| dir.path().join(name)).each_ref());
        let private = live.private_network.clone().expect("one");
        let found = [live.cache_dir.clone(), live.state_dir.clone().expect("one"), private];
        assert_eq!(found, ["c", "a", "n"].map(|name| dir.path().join(name)));
    }

    #[test]
    fn a_measurer_has_a_name_of_its_own_and_an_address() {
        let good = text("cache_dir = 'c'");
        let identity = key::identity_text(&Ed25519Id([8; 32]));
        let second = |name: &str, address: &str| {
            format!(
                "{good}[[measurer]]\nname = '{name}'\naddress = '{address}'\nidentity = '{identity}'\ncapacity = '1Gbit'\n"
            )
        };
        for (name, address) in [
            ("n", "192.0.2.1:9230"),
            ("M", "[2001:db8::1]:1"),
            ("n 2", "m1.example:65535"),
            ("n", "[fe80::1%2]:9230"),
            ("n", "M1_a.example.:1"),
            ("n", "host:9230"),
            ("n", "bücher.example:9230"),
        ] {
            load(&second(name, address)).expect("good");
        }
        for (name, address, part) in [
            ("m", "192.0.2.1:9230", "two measurers are called \"m\""),
            ("", "192.0.2.1:9230", "no name"),
            (" ", "192.0.2.1:9230", "no name"),
            ("n", "192.0.2.1", "the measurer \"n\""),
            ("n", "http://192.0.2.1:9230", "not HOST:PORT"),
            ("n", "192.0.2.1:99999", "not HOST:PORT"),
            ("n", "192.0.2.1:0", "no host can be reached"),
            ("n", "m1.example:0", "not HOST:PORT"),
            ("n", "m1.example:", "not HOST:PORT"),
            ("n", "m1.example", "not HOST:PORT"),
            ("n", "m1..example:9230", "not HOST:PORT"),
            ("n", ".:9230", "not HOST:PORT"),
            ("n", "HOST:9230", "name or address for HOST"),
            ("n", "224.0.0.1:9230", "no host can be reached"),
            ("n", "255.255.255.255:9230", "no host can be reached"),
            ("n", "[ff02::1]:9230", "no host can be reached"),
            ("n", "[fe80::1]:9230", "no host can be reached"),
            ("n", "[::]:9230", "no host can be reached"),
            ("n", "127.0.0.1:1", "the measurers \"m\" and \"n\" have the same address"),
            ("n", ":9230", "not HOST:PORT"),
            ("n", "2001:db8::1:9230", "not HOST:PORT"),
            ("n", "[m1.example]:9230", "not HOST:PORT"),
            ("n", "user@host:1", "not HOST:PORT"),
            ("n", "a b:1", "not HOST:PORT"),
            ("n", "m1.example/x:1", "not HOST:PORT"),
            ("n", "999.1.1.1:9230", "not HOST:PORT"),
            ("n", "0.0.0.0:9230", "no host can be reached"),
        ] {
            let error = format!("{:#}", load(&second(name, address)).expect_err(address));
            assert!(error.contains(part), "{address}: {error}");
        }
        let other = |name: &str, number: u8| {
            let identity = key::identity_text(&Ed25519Id([number; 32]));
            format!("[[coordinator]]\nname = '{name}'\nidentity = '{identity}'\nteam = ['1Gbit']\n")
        };
        load(&format!("{good}{}{}", other("a", 1), other("b", 2))).expect("good");
        let error = load(&format!("{good}{}{}", other("a", 1), other("a", 2))).expect_err("names");
        assert!(format!("{error:#}").contains("two coordinators are called \"a\""), "{error:#}");
        let empty = other("a", 1).replace("['1Gbit']", "[]");
        let error = load(&format!("{good}{empty}")).expect_err("it has no team");
        assert!(format!("{error:#}").contains("\"a\" has an empty `team`"), "{error:#}");
    }

    #[test]
    fn either_kind_of_network_is_read_and_so_are_the_names_of_the_page() {
        let files = load(&text("consensus = 'c'\ndescriptors = ['d']")).expect("good");
        assert!(
            matches!(&files.network, NetworkConfig::Files(files) if files.consensus.is_absolute())
        );
        assert_eq!(files.watch.hosts, ["bwauth.example"]);
        let live = load(&text("cache_dir = 'c'")).expect("good");
        assert!(matches!(&live.network, NetworkConfig::Live(live) if live.cache_dir.is_absolute()));
    }

    #[test]
    fn what_takes_a_new_start_stays_and_is_named() {
        let old = load(&text("cache_dir = '/c'")).expect("good");
        let changed =
            text("cache_dir = '/d'").replace("secret = 'x'", "secret = 'y'\nrefresh_secs = 7");
        let changed =
            format!("{}[publish]\nmin_relays = 9\n", changed.replace("key = 'k'", "key = '/k'"));
        let new = load(&changed).expect("good");
        let (merged, fixed) = old.with(&new);
        // The paths in both configs are relative to directories of their own.
        assert_eq!(fixed, ["key", "state_dir", "publish_dir", "[network]", "[period]"]);
        assert_eq!((merged.period.refresh_secs, merged.publish.min_relays), (7, 9));
        assert_eq!((&merged.key, &merged.network), (&old.key, &old.network));
        assert_eq!(merged.period.secret, old.period.secret);
        let (_, same) = merged.with(&merged);
        assert!(same.is_empty(), "{same:?}");
    }
}
