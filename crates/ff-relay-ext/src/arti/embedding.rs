//! FlashFlow in an Arti relay, from its configuration to its circuits.
//!
//! A relay does four things with an [`Embedding`]: it makes one from its configuration, wraps its
//! runtime, makes its [`CreateRequestHandler`](tor_proto::relay::CreateRequestHandler) with the
//! provider that it returns, and passes on the parameters of each consensus.
//!
//! ```
//! # use std::path::Path;
//! # use std::sync::Arc;
//! # use ff_relay_ext::arti::embedding::{Embedding, Provider};
//! # use ff_relay_ext::arti::section::Section;
//! # use tor_chanmgr::{ChanMgr, ChanMgrConfig, Dormancy};
//! # use tor_memquota::MemoryQuotaTracker;
//! # use tor_netdir::params::NetParameters;
//! # use tor_rtcompat::Runtime;
//! fn start<R: Runtime>(runtime: R, section: &Section, state: &Path) -> Result<(), Box<dyn std::error::Error>> {
//!     let flashflow = Embedding::new(section, state);
//!     let runtime = flashflow.wrap(runtime);
//!
//!     let memory = MemoryQuotaTracker::new_noop();
//!     let net = NetParameters::default();
//!     let config = ChanMgrConfig::default(); // and the relay's keys
//!     let channels = ChanMgr::new(runtime.clone(), config, Dormancy::Active, &net, memory.clone())?;
//!     let provider: Provider = flashflow.provide(Arc::new(channels), runtime, memory)?;
//!     // CreateRequestHandler::new(Arc::downgrade(&provider), …)
//!
//!     flashflow.set_consensus("params FFBackgroundTrafficPercent=10\n"); // and each new document
//!     Ok(())
//! }
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tor_linkspec::OwnedChanTarget;
use tor_proto::memquota::ToplevelAccount;
use tor_proto::relay::channel_provider::ChannelProvider;
use tor_rtcompat::{CompoundRuntime, Runtime, SpawnExt as _};
use tracing::warn;

use super::consensus;
use super::extension::Extension;
use super::keys::KeyError;
use super::provider::MeasuringProvider;
use super::section::Section;
use super::tls::MeasuringTls;
use crate::ingress::{IngressOptions, Resolved};
use crate::memory::{self, MemoryError};
use crate::options::TargetOptions;

/// The name of the file in the relay's state directory with the earlier measurements.
pub const MEMORY_FILE: &str = "flashflow-measurements";

/// The source of links for circuits that are extended.
pub type Provider = Arc<dyn ChannelProvider<BuildSpec = OwnedChanTarget> + Send + Sync>;

/// A runtime whose TLS has the extension.
pub type Wrapped<R> = CompoundRuntime<R, R, R, R, R, MeasuringTls<R>, R>;

/// Why measurements cannot use a relay's circuits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddingError {
    /// The next hop of measurements' circuits has no identity.
    #[error("cannot lead measurements through circuits")]
    NextHop(#[from] KeyError),
    /// The extension's timers could not be started.
    #[error("the relay's runtime takes no task")]
    Runtime(#[from] futures::task::SpawnError),
}

/// FlashFlow in one relay; it does nothing if the configuration has no `[flashflow]`.
#[derive(Debug)]
pub struct Embedding {
    /// `None` without the section, or if grants cannot be stored.
    on: Option<On>,
    /// The last consensus's parameters; `None` before the first.
    params: Mutex<Option<String>>,
}

/// The operator's options and the extension.
#[derive(Debug)]
struct On {
    options: TargetOptions,
    ingress: IngressOptions,
    extension: Arc<Extension>,
}

impl Embedding {
    /// FlashFlow with this configuration, in a relay with this state directory.
    ///
    /// If grants cannot be stored, the relay is not measured, which is logged.
    #[must_use]
    pub fn new(section: &Section, state: &Path) -> Self {
        let on = section.options().and_then(|options| match extension(options, state) {
            Ok(extension) => {
                let ingress = section.ingress().clone();
                extension.set_ingress(ingress.resolve(&BTreeMap::new()).rules);
                Some(On { options: options.clone(), ingress, extension })
            }
            Err(error) => {
                warn!("FlashFlow: {error}; this relay will not be measured until that is mended and it is started again");
                None
            }
        });
        Self { on, params: Mutex::default() }
    }

    /// The extension, if it is on.
    #[must_use]
    pub fn extension(&self) -> Option<&Arc<Extension>> {
        self.on.as_ref().map(|on| &on.extension)
    }

    /// The runtime with the extension in its TLS; the relay must make its channel manager with it.
    #[must_use]
    pub fn wrap<R: Runtime>(&self, runtime: R) -> Wrapped<R> {
        let part = || runtime.clone();
        let tls = MeasuringTls::new(part(), self.extension().cloned());
        CompoundRuntime::new(part(), part(), part(), part(), part(), tls, part())
    }

    /// The source of links for the relay's circuits, made from its own provider; also starts the
    /// extension. It must be kept as long as the relay runs.
    ///
    /// # Errors
    /// [`EmbeddingError`]; the relay then uses its own provider.
    pub fn provide<R: Runtime>(
        &self,
        own: Provider,
        runtime: R,
        memory: ToplevelAccount,
    ) -> Result<Provider, EmbeddingError> {
        let Some(extension) = self.extension() else { return Ok(own) };
        let timers = Arc::clone(extension).run(runtime.clone());
        let weak = Arc::downgrade(&own);
        // First of all: nothing may be granted without timers, and the provider makes grants
        // possible.
        if let Err(error) = runtime.spawn(timers) {
            // Nothing would refill the links' buckets, or end a measurement.
            extension.turn_off();
            return Err(error.into());
        }
        Ok(MeasuringProvider::new(weak, Arc::clone(extension), runtime, memory)?)
    }

    /// Takes a microdesc consensus: its parameters and, while links are limited, its relays. That
    /// takes some 50 ms with ten thousand relays.
    pub fn set_consensus(&self, document: &str) {
        let Some(On { options, ingress, extension }) = &self.on else { return };
        let params = consensus::params(document);
        let Ok(mut last) = self.params.lock() else { return };
        if last.as_deref() != Some(params) {
            let numbers = numbers(params);
            extension.set_policy(options.resolve(&numbers));
            let Resolved { rules, ignored } = ingress.resolve(&numbers);
            ignored.iter().for_each(|text| warn!("FlashFlow: {text}"));
            extension.set_ingress(rules);
            *last = Some(params.to_owned());
        }
        if extension.limits_links() {
            match consensus::listings(document) {
                Ok(listings) => extension.set_listings(listings),
                Err(error) => warn!("FlashFlow: cannot read the consensus's relays: {error}"),
            }
        }
    }
}

/// The extension of a relay with these options, which stores grants in this directory.
fn extension(options: &TargetOptions, state: &Path) -> Result<Arc<Extension>, MemoryError> {
    let path = state.join(MEMORY_FILE);
    let grants = memory::load(&path)?.grants;
    // This tells the operator of damaged lines, so it must come before they are replaced.
    let extension = Extension::new(options.resolve(&BTreeMap::new()), Some(path.clone()), None)?;
    // So the operator learns now, and not at the first measurement, if the relay may not write
    // there.
    memory::store(&path, &grants)?;
    Ok(extension)
}

/// The numbers in a consensus's parameters; other values are left out.
fn numbers(params: &str) -> BTreeMap<String, i64> {
    let number = |param: &str| {
        let (name, value) = param.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    params.split_ascii_whitespace().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Counts warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            if *event.metadata().level() == Level::WARN {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn the_operator_is_told_of_damaged_lines_once() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(MEMORY_FILE);
        let grant = format!("{} 1800000000\n", "07".repeat(32));
        std::fs::write(&file, format!("nonsense\n{grant}")).unwrap();
        let section = section("measurements_allowed = true");
        for expected in [1, 0] {
            let warnings = Arc::new(AtomicUsize::new(0));
            tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
                assert!(Embedding::new(&section, state.path()).extension().is_some());
            });
            assert_eq!(warnings.load(Ordering::Relaxed), expected);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), grant);
        }
    }

    /// A section with these lines.
    fn section(lines: &str) -> Section {
        toml::from_str(lines).expect("a section")
    }

    #[test]
    fn without_a_section_there_is_nothing() {
        let state = tempfile::tempdir().unwrap();
        let embedding = Embedding::new(&Section::default(), state.path());
        embedding.set_consensus("params FFMeasurementsAllowed=1\n");
        assert!(embedding.extension().is_none());
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_remembered_is_not_measured() {
        let state = tempfile::tempdir().unwrap();
        let section = section("measurements_allowed = true");
        assert!(Embedding::new(&section, &state.path().join("nowhere")).extension().is_none());
        assert!(Embedding::new(&section, state.path()).extension().is_some());
        assert!(state.path().join(MEMORY_FILE).exists());
    }

    #[test]
    fn each_consensus_has_its_say_where_the_operator_has_none() {
        let state = tempfile::tempdir().unwrap();
        let embedding = Embedding::new(&section("background_traffic_percent = 20"), state.path());
        let policy = || embedding.extension().unwrap().policy().unwrap();
        let says =
            || (policy().enabled, policy().ratio.percent(), policy().max_duration_secs.get());
        assert_eq!(says(), (false, 20, 45));
        let all =
            "FFBackgroundTrafficPercent=5 FFMaxMeasurementDuration=30 FFMeasurementsAllowed=1";
        embedding
            .set_consensus(&format!("params CircuitPriorityHalflifeMsec=30000 {all} broken=x"));
        assert_eq!(says(), (true, 20, 30));
        embedding.set_consensus("");
        assert_eq!(says(), (false, 20, 45));
    }
}
