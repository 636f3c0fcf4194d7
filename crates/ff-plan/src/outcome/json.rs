//! The JSON objects of `--json`.

use std::path::PathBuf;

use ff_proto::failure::FailureKind;
use serde_json::{Value, json};

use super::{Asked, AttemptRow, Failure, Outcome, TargetInfo};

/// Keys of a row that `--json` leaves out: the user's own options, and values that follow from
/// others.
const LEFT_OUT: [&str; 11] = [
    "address",
    "nickname",
    "ed25519_base64",
    "fingerprint_hex",
    "started_unix_secs",
    "started_utc",
    "duration_secs",
    "ratio_percent",
    "allocated_bytes_per_sec",
    "error_percent",
    "publishable",
];
/// Keys that are unknown for a measurement that did not take place.
const NOT_KNOWN: [&str; 3] = ["method", "asked_secs", "settle_secs"];

impl Outcome {
    /// The JSON object of `--json`; `files` are the files written.
    #[must_use]
    pub fn to_json(&self, files: &[PathBuf]) -> Value {
        let mut json = json!(AttemptRow::from(self));
        if let Some(object) = json.as_object_mut() {
            object.retain(|key, _| !LEFT_OUT.contains(&key.as_str()));
        }
        json["seconds"] = json!(self.second_rows());
        json["files"] = files.iter().map(|path| path.display().to_string()).collect();
        json
    }
}

/// The JSON object of a measurement that did not take place.
#[must_use]
pub fn failed_json(message: &str) -> Value {
    let failure =
        Failure { kind: FailureKind::SetupFailed, relay_code: None, message: message.to_owned() };
    let target = TargetInfo {
        address: String::new(),
        ed_identity: [0; 32],
        rsa_fingerprint: None,
        nickname: None,
    };
    let mut json = Outcome::failed(Asked::nothing(target), failure).to_json(&[]);
    for key in NOT_KNOWN {
        json[key] = Value::Null;
    }
    json
}
