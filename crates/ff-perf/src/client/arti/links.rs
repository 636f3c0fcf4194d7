//! Keeps links to guards open for the next circuit, and renews them now and then.
//!
//! tor-proto keeps every circuit that it has destroyed in its link's map until the relay destroys
//! it too (`channel/circmap.rs`), which tor never does: about 0.2 kB per circuit while the link
//! exists. So after [`CIRCUITS`] circuits new links are opened, and the old ones end with their
//! last circuits.
//!
//! Decisions: doc/decisions.md, "Links are opened anew after 5,000 circuits".

use std::sync::{Arc, Mutex, PoisonError};

use tor_chanmgr::{ChanMgr, ChanMgrConfig, Dormancy};
use tor_memquota::MemoryQuotaTracker;
use tor_netdir::params::NetParameters;
use tor_rtcompat::PreferredRuntime;

/// Circuits per set of links: at most about 2 MB of dead circuits, and one new link per guard in
/// hundreds of circuits.
const CIRCUITS: u32 = 5_000;

/// Arti's channel managers.
pub(super) struct Links {
    runtime: PreferredRuntime,
    /// Parameters of links.
    net: NetParameters,
    /// Current manager, and the number of circuits that it may still get.
    current: Mutex<(Arc<ChanMgr<PreferredRuntime>>, u32)>,
}

impl Links {
    /// No links are open.
    ///
    /// # Errors
    /// Arti's message.
    pub(super) fn new(runtime: PreferredRuntime, net: NetParameters) -> Result<Self, String> {
        let current = Mutex::new((manager(&runtime, &net)?, CIRCUITS));
        Ok(Self { runtime, net, current })
    }

    /// The manager for the next circuit.
    ///
    /// # Errors
    /// Arti's message.
    pub(super) fn for_circuit(&self) -> Result<Arc<ChanMgr<PreferredRuntime>>, String> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.1 == 0 {
            *current = (manager(&self.runtime, &self.net)?, CIRCUITS);
        }
        current.1 -= 1;
        Ok(Arc::clone(&current.0))
    }
}

/// A manager without links.
fn manager(
    runtime: &PreferredRuntime,
    net: &NetParameters,
) -> Result<Arc<ChanMgr<PreferredRuntime>>, String> {
    let (config, quota) = (ChanMgrConfig::default(), MemoryQuotaTracker::new_noop());
    let manager = ChanMgr::new(runtime.clone(), config, Dormancy::Active, net, quota);
    manager.map(Arc::new).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn after_so_many_circuits_the_old_links_are_left_to_their_circuits() {
        let runtime = PreferredRuntime::current().expect("a runtime");
        let links = Links::new(runtime, NetParameters::default()).expect("links");
        let first = links.for_circuit().expect("a manager");
        for _ in 1..CIRCUITS {
            assert!(Arc::ptr_eq(&first, &links.for_circuit().expect("a manager")));
        }
        let second = links.for_circuit().expect("a manager");
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &links.for_circuit().expect("a manager")));
        assert_eq!(Arc::strong_count(&first), 1, "nothing else keeps the old links");
    }
}
