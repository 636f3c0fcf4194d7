//! The operator's options in an Arti relay's configuration.
//!
//! ```toml
//! [flashflow]
//! measurements_allowed = true
//! allowed_coordinators = ["BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"]
//! background_traffic_percent = 25
//! measurement_period = "1 day"
//! ```
//!
//! The names are those of torrc (see [`crate::options`] and [`crate::ingress::options`]) without
//! `FF`, in lower case, with underscores between words; bounds, defaults and units are the same.
//! There are no exempt addresses: TLS does not know the peer's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ingress::options::{BURST, EXEMPT, LIMIT, RATE, SHARE};
use crate::ingress::{IngressError, IngressOptions};
use crate::options::{self, OptionError, TargetOptions};

/// The options of the limit where clients enter.
const INGRESS: [&str; 5] = [LIMIT, EXEMPT, SHARE, RATE, BURST];

/// The section `[flashflow]`; without it, the relay works as without FlashFlow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Texts", into = "Texts")]
pub struct Section {
    /// The values in the file.
    texts: Texts,
    /// The parsed options; `None` without the section.
    options: Option<TargetOptions>,
    /// Those of the limit where clients enter.
    ingress: IngressOptions,
}

/// The keys of a section with their values.
type Texts = BTreeMap<String, Value>;

/// A value of the section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    /// `true` or `false`: 1 or 0.
    Flag(bool),
    Number(i64),
    /// A text, as in torrc.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

impl Value {
    /// The value as in torrc, for the option of this name; the error is the required type.
    fn text(&self, name: &str) -> Result<String, &'static str> {
        let is_flag =
            matches!(name, options::MEASUREMENTS_ALLOWED | options::TESTING_NETWORK | LIMIT);
        let is_word = name == EXEMPT;
        let is_list = name == options::ALLOWED_COORDINATORS;
        match self {
            Self::Flag(flag) if is_flag => Ok(u8::from(*flag).to_string()),
            Self::List(texts) if is_list => Ok(texts.join(",")),
            Self::Text(text) => Ok(text.clone()),
            Self::Number(number) if !is_list && !is_word => Ok(number.to_string()),
            _ if is_word => Err("a word"),
            _ if is_flag => Err("true or false"),
            _ if is_list => Err("a list of identities"),
            _ => Err("a number"),
        }
    }
}

/// A key of the section that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// The section has no such key.
    #[error("[flashflow] has no key {0:?}; there are {keys}", keys = keys().collect::<Vec<_>>().join(", "))]
    Unknown(String),
    /// The value of a key has the wrong type.
    #[error("[flashflow] {key} must be {wanted}")]
    Type {
        /// The key.
        key: String,
        /// The required type.
        wanted: &'static str,
    },
    /// The value of a key is out of bounds or cannot be parsed.
    #[error("[flashflow] {key}: {error}")]
    Bad {
        /// The key.
        key: String,
        /// The error, with torrc's name of the option.
        error: OptionError,
    },
    /// The same for the limit where clients enter.
    #[error("[flashflow] {key}: {error}")]
    BadIngress {
        /// The key.
        key: String,
        /// The error, with torrc's name of the option.
        error: IngressError,
    },
    /// Options of that limit do not fit together.
    #[error("[flashflow]: {0}")]
    Ingress(IngressError),
}

impl TryFrom<Texts> for Section {
    type Error = SectionError;

    fn try_from(texts: Texts) -> Result<Self, SectionError> {
        if let Some(key) = texts.keys().find(|key| !keys().any(|known| known == **key)) {
            return Err(SectionError::Unknown(key.clone()));
        }
        let mut options = TargetOptions::default();
        // In the order of the list: the bounds of some options depend on earlier ones.
        for (name, key) in options::names().zip(keys()) {
            let Some(value) = texts.get(&key) else { continue };
            let text = match value.text(name) {
                Ok(text) => text,
                Err(wanted) => return Err(SectionError::Type { key, wanted }),
            };
            options.set(name, &text).map_err(|error| SectionError::Bad { key, error })?;
        }
        let ingress = ingress(&texts)?;
        Ok(Self { texts, options: Some(options), ingress })
    }
}

/// The options of the limit where clients enter.
fn ingress(texts: &Texts) -> Result<IngressOptions, SectionError> {
    let mut options = IngressOptions::default();
    for name in INGRESS {
        let key = key(name);
        let Some(value) = texts.get(&key) else { continue };
        let text = match value.text(name) {
            Ok(text) => text,
            Err(wanted) => return Err(SectionError::Type { key, wanted }),
        };
        options.set(name, &text).map_err(|error| SectionError::BadIngress { key, error })?;
    }
    options.check().map_err(SectionError::Ingress)?;
    Ok(options)
}

impl From<Section> for Texts {
    fn from(section: Section) -> Self {
        section.texts
    }
}

impl Section {
    /// The operator's options; `None` without the section.
    #[must_use]
    pub fn options(&self) -> Option<&TargetOptions> {
        self.options.as_ref()
    }

    /// The operator's options of the limit where clients enter.
    #[must_use]
    pub const fn ingress(&self) -> &IngressOptions {
        &self.ingress
    }
}

/// All keys: first those of [`options::names`], in their order.
fn keys() -> impl Iterator<Item = String> {
    options::names().chain(INGRESS).map(key)
}

/// The key of the option with this name in torrc.
fn key(name: &str) -> String {
    let name = name.strip_prefix("FF").unwrap_or(name);
    let mut key = String::new();
    let mut letters = name.chars().peekable();
    let mut before = 'A';
    while let Some(letter) = letters.next() {
        let is_last = letters.peek().is_none_or(char::is_ascii_uppercase);
        // `PerConnBWRate` is `per_conn_bw_rate`.
        let begins_word = letter.is_ascii_uppercase() && (before.is_ascii_lowercase() || !is_last);
        if begins_word && !key.is_empty() {
            key.push('_');
        }
        key.push(letter.to_ascii_lowercase());
        before = letter;
    }
    key
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn section(text: &str) -> Result<Section, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn it_has_torrcs_options_under_their_keys() {
        let all: Vec<String> = keys().collect();
        assert_eq!(
            all,
            [
                "testing_tor_network",
                "measurements_allowed",
                "measurement_period",
                "background_traffic_percent",
                "max_measurement_duration",
                "max_measurement_sockets",
                "allowed_coordinators",
                "ingress_limit",
                "ingress_exempt",
                "ingress_share",
                "per_conn_bw_rate",
                "per_conn_bw_burst"
            ]
        );
    }

    #[test]
    fn what_it_says_becomes_the_policy() {
        let id = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
        let text = format!(
            "measurement_period = 20\ntesting_tor_network = true\nmeasurements_allowed = true\n\
             allowed_coordinators = [\"{id}\", \"{id}\"]\nmax_measurement_duration = \"1 minute\""
        );
        let section = section(&text).unwrap();
        let policy = section.options().unwrap().resolve(&BTreeMap::new());
        assert!(policy.enabled);
        assert_eq!((policy.coordinators.len(), policy.max_duration_secs.get()), (2, 60));
        assert_eq!(policy.period, Duration::from_secs(20));
        let again: Section = toml::from_str(&toml::to_string(&section).unwrap()).unwrap();
        assert_eq!(again, section);
        assert_eq!(Section::default().options(), None);
    }

    #[test]
    fn clients_links_can_be_limited() {
        let lines = "ingress_limit = true\nper_conn_bw_rate = 100000\ningress_exempt = \"none\"";
        let section = section(lines).unwrap();
        let rules = section.ingress().resolve(&BTreeMap::new()).rules.unwrap();
        let text = "100000 bytes/s each way, burst 3000000 bytes, exempt: none";
        assert_eq!(rules.to_string(), text);
        let again: Section = toml::from_str(&toml::to_string(&section).unwrap()).unwrap();
        assert_eq!(again, section);
        assert_eq!(Section::default().ingress(), &IngressOptions::default());
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        for (text, named) in [
            ("measurement_allowed = true", "has no key \"measurement_allowed\""),
            ("FFMeasurementsAllowed = 1", "there are testing_tor_network, measurements_allowed"),
            ("measurements_allowed = 2", "measurements_allowed: "),
            ("background_traffic_percent = 100", "from 0 to 99"),
            ("background_traffic_percent = -1", "background_traffic_percent"),
            ("allowed_coordinators = [\"AAAA\"]", "allowed_coordinators: "),
            ("measurement_period = \"59 minutes\"", "from 3600 to 2592000 seconds"),
            ("measurement_period = 1.5", ""),
            ("background_traffic_percent = false", "background_traffic_percent must be a number"),
            ("max_measurement_sockets = true", "max_measurement_sockets must be a number"),
            (
                "max_measurement_duration = [\"1 minute\"]",
                "max_measurement_duration must be a number",
            ),
            ("measurements_allowed = [\"1\"]", "measurements_allowed must be true or false"),
            ("allowed_coordinators = 7", "allowed_coordinators must be a list"),
            ("ingress_limit = true", "PerConnBWRate is not set"),
            ("ingress_limit = 2\nper_conn_bw_rate = 100000", "ingress_limit: "),
            ("ingress_exempt = 2", "ingress_exempt must be a word"),
            ("ingress_exempt = \"quick\"", "fast, stable-fast, listed or none"),
            ("ingress_share = 1001", "from 0 to 1000 percent"),
            ("ingress_limit = true\nper_conn_bw_rate = 9999", "from 10000 to 2147483647"),
            (
                "ingress_limit = true\nper_conn_bw_rate = 100000\nper_conn_bw_burst = 19999",
                "PerConnBWBurst",
            ),
        ] {
            let error = section(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
