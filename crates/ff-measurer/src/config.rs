//! The measurer's config: `measurer.toml`.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ff_proto::ids::Ed25519Id;
use ff_proto::units::BytesPerSec;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::key;
use crate::secret_file;
use crate::service::admission::AdmissionLimits;
use crate::service::server::{Coordinator, Settings};

/// The content of a config file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address at which coordinators reach this host.
    pub listen: SocketAddr,
    /// The file of the host's key, as [`secret_file::locate`] finds it from the config's directory.
    pub key: PathBuf,
    /// The processor cores to measure with; empty for all.
    #[serde(default)]
    pub cores: Vec<usize>,
    /// The operator's limits.
    #[serde(default)]
    limits: LimitsTable,
    /// The coordinators that may request measurements.
    #[serde(default, rename = "coordinator")]
    coordinators: Vec<CoordinatorTable>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    /// The highest rate of all measurements together.
    #[serde(default, deserialize_with = "parsed")]
    rate: Option<BytesPerSec>,
    /// The largest number of relays at once.
    relays_at_once: Option<u16>,
    /// The largest number of links at once.
    links: Option<u32>,
    /// The hours in which measurements may begin.
    #[serde(default, deserialize_with = "parsed")]
    hours: Option<crate::service::admission::Hours>,
    /// Whether relays may have addresses that are not public.
    #[serde(default)]
    private_targets: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoordinatorTable {
    /// The operator's name for it.
    name: String,
    identity: String,
}

/// Parses a value from its text.
fn parsed<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

impl Config {
    /// Reads a config.
    ///
    /// # Errors
    /// Names the file, the line and the problem.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("Failed to read {}", path.display()))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|error| not_readable(path, &text, &error))?;
        let failed = || path.display().to_string();
        let dir = path.parent().unwrap_or(Path::new("."));
        config.key = secret_file::locate(&config.key, dir).context("key").with_context(failed)?;
        config.settings().with_context(failed)?;
        Ok(config)
    }

    /// The settings that may change while the service runs.
    ///
    /// # Errors
    /// When the port is random, a coordinator has an invalid key or no name, two coordinators have
    /// the same name or key, or a limit is 0.
    pub fn settings(&self) -> Result<Settings> {
        if self.listen.port() == 0 && !self.listen.ip().is_loopback() {
            bail!(
                "listen is {}, a port that changes with each start: coordinators need a fixed one, such as 9230",
                self.listen
            );
        }
        let mut coordinators = Vec::new();
        for CoordinatorTable { name, identity } in &self.coordinators {
            let id = key::parse_identity(identity)
                .map_err(|error| anyhow::anyhow!("the coordinator {name:?}: {error}"))?;
            coordinators.push(Coordinator { name: name.clone(), id });
        }
        check_names("coordinator", coordinators.iter().map(|one| (one.name.as_str(), one.id)))?;
        let numbers = [
            ("links", self.limits.links.map(u64::from)),
            ("relays_at_once", self.limits.relays_at_once.map(u64::from)),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, number)| *number == Some(0)) {
            bail!("limits.{name} is 0, so nothing could be measured: it must be at least 1");
        }
        let default = AdmissionLimits::default();
        let limits = AdmissionLimits {
            rate: self.limits.rate,
            relays_at_once: self.limits.relays_at_once.unwrap_or(default.relays_at_once),
            links: self.limits.links.unwrap_or(default.links),
            hours: self.limits.hours,
            private_targets: self.limits.private_targets,
        };
        Ok(Settings { coordinators, limits })
    }
}

/// Why a config cannot be read, in one sentence: the file, the line, and the invalid or missing
/// value.
#[must_use]
pub fn not_readable(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let (file, message) = (path.display(), error.message().replace('\n', " "));
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count();
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    // A key that is missing in a table is reported at the table's first line, and one that is
    // missing in the file at the file's.
    let table = text.lines().nth(line).map(str::trim).filter(|line| line.starts_with('['));
    let number = line + 1;
    match (missing, table) {
        (Some(missing), Some(table)) if !before.is_empty() => anyhow::anyhow!(
            "{file}, line {number}: the table {table} has no `{missing}`; the config that `init` makes shows how to write it"
        ),
        (Some(missing), _) => anyhow::anyhow!(
            "{file} has no `{missing}`; the config that `init` makes shows how to write it"
        ),
        (None, _) => anyhow::anyhow!("{file}, line {number}: {message}"),
    }
}

/// Whether the address at which a service of this host will listen is free. If not, another socket
/// listens there, perhaps the service itself. `name` is the address's key in the config.
///
/// # Errors
/// When this host cannot listen there: the address is not its own, or the port needs more
/// privileges.
pub fn is_free(name: &str, addr: SocketAddr) -> Result<bool> {
    match TcpListener::bind(addr) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error).with_context(|| {
            format!(
                "{name} is {addr}, where this host cannot listen: give it an address of this host"
            )
        }),
    }
}

/// A number with its noun, as `1 measurer` or `2 measurers`.
#[must_use]
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Checks the names and identities of a config's tables of one kind: each exists and is unique,
/// because metrics and commands identify the tables by them.
///
/// # Errors
/// A sentence that names the table.
pub fn check_names<'a>(kind: &str, all: impl Iterator<Item = (&'a str, Ed25519Id)>) -> Result<()> {
    let (mut names, mut identities) = (HashSet::new(), HashSet::new());
    for (name, identity) in all {
        if name.trim().is_empty() {
            bail!("a {kind} has no name: give each table [[{kind}]] a `name` of its own");
        }
        if !names.insert(name) {
            bail!("two {kind}s are called {name:?}: give each a name of its own");
        }
        if !identities.insert(identity) {
            bail!("the {kind} {name:?} has the identity of another one");
        }
    }
    Ok(())
}

/// A new config with comments, for a host that listens here.
#[must_use]
pub fn template(listen: SocketAddr) -> String {
    let AdmissionLimits { relays_at_once, links, .. } = AdmissionLimits::default();
    format!(
        r#"# A measurer of FlashFlow, for `ff-measurer run --config FILE`. On SIGHUP, limits and coordinators are read again.

# The address for coordinators (TCP) and other measurers (UDP, the same port).
listen = "{listen}"

# The host's key, made by `ff-measurer init`: a file in this file's directory. If systemd provides a credential with this
# name (LoadCredential=measurer.key:/its/path, as in the package's unit), it is used instead. Other users must not be able to
# read the file: mode 0600, or 0440 in a directory that nobody else can enter, as for a container's secrets
# ("/run/secrets/measurer.key").
key = "measurer.key"

# The processor cores to measure with; default: all.
# cores = [0, 1]

[limits]
# The limit of all measurements together, such as "750Mbit". Set it to what this host's network can
# spare: it sends as much as it receives. Without it, there is no limit.
# rate = "1Gbit"

# How many relays may be measured at once, and over how many links to all of them.
relays_at_once = {relays_at_once}
links = {links}

# When measurements may begin, in UTC; default: at any time.
# hours = "22:00-06:00"

# Whether relays may be measured at addresses that are not public, as in a test network.
private_targets = false

# A coordinator that may give work: the line that `ff-bwauth init` prints. One table for each.
# [[coordinator]]
# name = "bwauth-1"
# identity = "…"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses this text as a config.
    fn load(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("measurer.toml");
        std::fs::write(&path, text).expect("a file");
        Config::load(&path).map_err(|error| format!("{error:#}"))
    }

    /// Two coordinators.
    fn two(first: u8, second: u8) -> String {
        let table = |name, byte: u8| {
            let identity = key::identity_text(&Ed25519Id([byte; 32]));
            format!("[[coordinator]]\nname = \"{name}\"\nidentity = \"{identity}\"\n")
        };
        format!("{}{}", table("a", first), table("b", second))
    }

    #[test]
    fn what_init_writes_can_be_read() {
        let listen = "127.0.0.1:9230".parse().expect("an address");
        let config = load(&template(listen)).expect("a good config");
        assert_eq!(config.listen, listen);
        assert_eq!(config.settings().expect("good").limits, AdmissionLimits::default());
        let text = template(listen).replace("# rate", "rate").replace("# hours", "hours");
        let text = format!("{text}\n{}", two(1, 2));
        let settings = load(&text).expect("a good config").settings().expect("good");
        assert_eq!(settings.limits.rate, Some(BytesPerSec::from_mbit(1000)));
        assert_eq!(
            settings.limits.hours.map(|hours| hours.to_string()),
            Some("22:00-06:00".into())
        );
        assert_eq!(settings.coordinators.len(), 2);
    }

    #[test]
    fn what_is_missing_is_said_where_it_belongs() {
        let good = template("[::1]:9230".parse().expect("an address"));
        let without = |key: &str| good.replace(&format!("\n{key} = "), &format!("\n# {key} = "));
        let number = good.lines().count() + 1;
        let table = |line: &str| format!("{good}[[coordinator]]\n{line}\n");
        for (bad, said) in [
            (without("listen"), " has no `listen`; the config".to_owned()),
            (without("key"), " has no `key`; the config".to_owned()),
            (String::new(), " has no `listen`; the config".to_owned()),
            ("[limits]\n".to_owned(), " has no `listen`; the config".to_owned()),
            (
                table("name = 'a'"),
                format!(", line {number}: the table [[coordinator]] has no `identity`; the config"),
            ),
            (
                table("identity = 'x'"),
                format!(", line {number}: the table [[coordinator]] has no `name`; the config"),
            ),
            (table("name = 5"), format!(", line {}: invalid type: integer `5`", number + 1)),
            (good.replace("links = ", "links == "), ", line ".to_owned()),
        ] {
            let error = load(&bad).expect_err("a bad config");
            assert!(error.contains(&format!("measurer.toml{said}")), "{error}, not {said}");
            assert!(!error.contains('\n') && !error.contains("TOML"), "{error}");
        }
    }

    #[test]
    fn a_service_listens_where_it_can_be_found() {
        for (listen, is_good) in [
            ("0.0.0.0:9230", true),
            ("192.0.2.1:9230", true),
            ("[::]:9230", true),
            ("127.0.0.1:0", true),
            ("[::1]:0", true),
            ("0.0.0.0:0", false),
            ("192.0.2.1:0", false),
            ("[::]:0", false),
        ] {
            let found = load(&template(listen.parse().expect("an address")));
            assert_eq!(found.is_ok(), is_good, "{listen}: {found:?}");
        }
        for bad in ["192.0.2.1", "host:9230", "192.0.2.1:99999", "http://192.0.2.1:9230", ":9230"] {
            let text = template("[::1]:9230".parse().expect("an address"));
            let error = load(&text.replace("[::1]:9230", bad)).map(drop).expect_err(bad);
            assert!(error.contains("measurer.toml, line "), "{bad}: {error}");
        }
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = taken.local_addr().expect("its address");
        assert!(!is_free("listen", addr).expect("it is this host's"));
        // An address for documentation, which no host has.
        let error = is_free("listen", "192.0.2.1:9230".parse().expect("an address"));
        let error = format!("{:#}", error.map(drop).expect_err("not this host's"));
        assert!(error.starts_with("listen is 192.0.2.1:9230, where this host cannot"), "{error}");
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let good = template("[::1]:9230".parse().expect("an address"));
        let line = |word: &str| {
            let number = good.lines().position(|line| line.contains(word)).expect("it is there");
            format!("line {}", number + 1)
        };
        let (once, rate, listen) = (line("relays_at_once"), line("# rate ="), line("listen ="));
        for (bad, parts) in [
            (good.replace("relays_at_once", "relays_at_onec"), &[&once, "relays_at_onec"][..]),
            (good.replace("# rate = \"1Gbit\"", "rate = \"fast\""), &[&rate, "fast"]),
            (good.replace("listen =", "listen = 1 #"), &[&listen]),
            (format!("{good}{}", two(1, 1)), &["\"b\"", "another"]),
            (
                format!("{good}{}", two(1, 2).replace("\"b\"", "\"a\"")),
                &["two coordinators", "\"a\""],
            ),
            (format!("{good}{}", two(1, 2).replace("\"b\"", "\"\"")), &["no name"]),
            (good.replace("\nlinks = ", "\nlinks = 0 # "), &["limits.links"]),
            (
                good.replace("\nrelays_at_once = ", "\nrelays_at_once = 0 # "),
                &["limits.relays_at_once"],
            ),
            (format!("{good}[[coordinator]]\nname = \"x\"\nidentity = \"AAAA\""), &["\"x\"", "43"]),
        ] {
            let error = load(&bad).expect_err("a bad config");
            let all = parts.iter().chain(&["measurer.toml"]);
            for part in all {
                assert!(error.contains(part), "{part:?} in {error}");
            }
        }
    }
}
