//! A coordinator's store: data are read as they were written, even if the process is killed or the
//! disk fails.
//!
//! `FF_TEST_PYTHON` names a Python with `duckdb`, which then reads the exports; `.ci/test` sets it.

mod damage;
mod exports;
mod killed;
mod plans;
mod round_trip;
mod size;

use std::path::PathBuf;

use ff_plan::outcome::{Method, Outcome};
use ff_proto::units::BytesPerSec;
use ff_store::{AttemptId, Begin, Kind, Period, Share, Store, StoreError, ToPlan};
use tempfile::TempDir;

use crate::samples::{NOW, outcome};

/// The coordinator that owns the store.
const COORDINATOR: [u8; 32] = [7; 32];

/// A store in its own temporary directory.
struct Temporary {
    /// The directory.
    dir: TempDir,
    /// The store.
    store: Store,
}

impl Temporary {
    /// An empty one.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("store.sqlite"), COORDINATOR).expect("a store");
        Self { dir, store }
    }

    /// The path of the store.
    fn path(&self) -> PathBuf {
        self.dir.path().join("store.sqlite")
    }

    /// Begins and finishes an attempt with this outcome; returns its id.
    fn put(&mut self, outcome: &Outcome) -> AttemptId {
        let id = self.store.begin_attempt(&begin(outcome)).expect("begun");
        self.store.finish_attempt(id, outcome, outcome.started_unix_secs + 60).expect("finished");
        id
    }
}

/// The data with which an outcome's attempt began.
pub(crate) fn begin(outcome: &Outcome) -> Begin {
    Begin {
        fingerprint: outcome.target.rsa_fingerprint.unwrap_or([0xEE; 20]),
        target: outcome.target.clone(),
        plan: None,
        started_unix_secs: outcome.started_unix_secs,
        method: Method::Echo,
        asked_secs: outcome.asked_secs,
        ratio: outcome.ratio,
        allocated: outcome.allocated,
        shares: [1, 2]
            .map(|byte| Share {
                measurer: [byte; 32],
                rate: Some(BytesPerSec::from_mbit(500)),
                links: 80,
            })
            .to_vec(),
    }
}

/// The data with which an attempt on relay number `relay` begins.
fn begin_relay(relay: u8) -> Begin {
    begin(&outcome(relay, 100))
}

/// A period that began a while ago.
fn period(number: u64) -> Period {
    Period {
        number,
        start_unix_secs: NOW - 3600,
        length_secs: 86_400,
        slot_secs: 40,
        slots: 2160,
        consensus_valid_after_unix_secs: NOW - 7200,
        seed_sha256: [9; 32],
        planned_unix_secs: NOW - 3600,
        finished_unix_secs: None,
    }
}

/// A row for relay number `relay`.
fn to_plan(relay: u8, slot: u32, kind: Kind) -> ToPlan {
    let demand = BytesPerSec::from_mbit(u64::from(relay) * 3);
    ToPlan { fingerprint: [relay; 20], slot, kind, group: slot, demand }
}

/// The message of an error.
fn message<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    result.expect_err("an error").to_string()
}
