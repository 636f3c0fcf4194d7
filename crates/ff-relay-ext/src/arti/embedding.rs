//! FlashFlow in an Arti relay, from its configuration to its circuits.
//!
//! A relay does four things with an [`Embedding`]: it makes one of its configuration, wraps its
//! runtime, makes its [`CreateRequestHandler`](tor_proto::relay::CreateRequestHandler) with the
//! provider that it gets, and passes on the parameters of each consensus.
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
//!     flashflow.set_consensus("FFBackgroundTrafficPercent=10"); // and again for each new one
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

use super::extension::Extension;
use super::keys::KeyError;
use super::provider::MeasuringProvider;
use super::section::Section;
use super::tls::MeasuringTls;
use crate::memory::{self, MemoryError};
use crate::options::TargetOptions;

/// The file in the relay's folder of state that says who has measured it when.
pub const MEMORY_FILE: &str = "flashflow-measurements";

/// Where circuits that extend further get their links.
pub type Provider = Arc<dyn ChannelProvider<BuildSpec = OwnedChanTarget> + Send + Sync>;

/// A runtime whose TLS carries the extension.
pub type Wrapped<R> = CompoundRuntime<R, R, R, R, R, MeasuringTls<R>, R>;

/// Why measurements do not get through a relay's circuits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddingError {
    /// The next hop of measurements' circuits has no identity.
    #[error("cannot lead measurements through circuits")]
    NextHop(#[from] KeyError),
    /// The extension's timers have nobody to run them.
    #[error("the relay's runtime takes no task")]
    Runtime(#[from] futures::task::SpawnError),
}

/// FlashFlow in one relay, or nothing at all if its configuration has no `[flashflow]`.
#[derive(Debug)]
pub struct Embedding {
    /// What the operator has set, and the extension; `None` without a section, or when nothing can be remembered.
    on: Option<(TargetOptions, Arc<Extension>)>,
    /// What the last consensus said.
    consensus: Mutex<String>,
}

impl Embedding {
    /// FlashFlow by this configuration, in a relay that keeps its state in this folder.
    ///
    /// A relay that cannot remember who has measured it is not measured, which is logged.
    #[must_use]
    pub fn new(section: &Section, state: &Path) -> Self {
        let on = section.options().and_then(|options| match extension(options, state) {
            Ok(extension) => Some((options.clone(), extension)),
            Err(error) => {
                warn!("FlashFlow: {error}; this relay will not be measured until that is mended and it is started again");
                None
            }
        });
        Self { on, consensus: Mutex::default() }
    }

    /// The extension, if there is one.
    #[must_use]
    pub fn extension(&self) -> Option<&Arc<Extension>> {
        self.on.as_ref().map(|(_, extension)| extension)
    }

    /// The runtime with the extension on its TLS: what the relay makes its channel manager with.
    #[must_use]
    pub fn wrap<R: Runtime>(&self, runtime: R) -> Wrapped<R> {
        let part = || runtime.clone();
        let tls = MeasuringTls::new(part(), self.extension().cloned());
        CompoundRuntime::new(part(), part(), part(), part(), part(), tls, part())
    }

    /// What the relay's circuits get their links from, made of its own provider, and starts the
    /// extension. It has to be kept for as long as the relay runs.
    ///
    /// # Errors
    /// [`EmbeddingError`], in which case the relay goes on with its own.
    pub fn provide<R: Runtime>(
        &self,
        own: Provider,
        runtime: R,
        memory: ToplevelAccount,
    ) -> Result<Provider, EmbeddingError> {
        let Some(extension) = self.extension() else { return Ok(own) };
        let timers = Arc::clone(extension).run(runtime.clone());
        let weak = Arc::downgrade(&own);
        // First of all: without timers nothing may be granted, and the provider allows that.
        runtime.spawn(timers)?;
        Ok(MeasuringProvider::new(weak, Arc::clone(extension), runtime, memory)?)
    }

    /// Takes the parameters of a consensus: the text after `params`, numbers by name.
    pub fn set_consensus(&self, params: &str) {
        let Some((options, extension)) = &self.on else { return };
        let Ok(mut last) = self.consensus.lock() else { return };
        if *last == params {
            return;
        }
        params.clone_into(&mut last);
        extension.set_policy(options.resolve(&numbers(params)));
    }
}

/// The extension of a relay with these options, which remembers in this folder.
fn extension(options: &TargetOptions, state: &Path) -> Result<Arc<Extension>, MemoryError> {
    let path = state.join(MEMORY_FILE);
    // The operator learns now, and not at the first measurement, that the relay may not write
    // there.
    memory::store(&path, &memory::load(&path)?.grants)?;
    Extension::new(options.resolve(&BTreeMap::new()), Some(path), None)
}

/// The numbers of a consensus' parameters; what is none is left out.
fn numbers(params: &str) -> BTreeMap<String, i64> {
    let number = |param: &str| {
        let (name, value) = param.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    params.split_ascii_whitespace().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section of these lines.
    fn section(lines: &str) -> Section {
        toml::from_str(lines).expect("a section")
    }

    #[test]
    fn without_a_section_there_is_nothing() {
        let state = tempfile::tempdir().unwrap();
        let embedding = Embedding::new(&Section::default(), state.path());
        embedding.set_consensus("FFMeasurementsAllowed=1");
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
        embedding.set_consensus(&format!("CircuitPriorityHalflifeMsec=30000 {all} broken=x"));
        assert_eq!(says(), (true, 20, 30));
        embedding.set_consensus("");
        assert_eq!(says(), (false, 20, 45));
    }
}
