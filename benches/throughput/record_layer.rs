//! A record layer without a peer. The allocation test has this file too.

use ff_measurer::link::record::{self, Opener, Sealer};
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};

/// A sealer, and the opener that opens its records. rustls lets nobody make a key of 16 bytes, and
/// so no AES-128, which is what measurements use and a little cheaper.
pub(crate) fn sealer_and_opener() -> (Sealer, Opener) {
    let secrets = || ConnectionTrafficSecrets::Aes256Gcm {
        key: AeadKey::from([7; 32]),
        iv: Iv::from([9; 12]),
    };
    let secrets = ExtractedSecrets { tx: (0, secrets()), rx: (0, secrets()) };
    let (sealer, opener, _) = record::pair(&secrets).expect("the suite is known");
    (sealer, opener)
}
