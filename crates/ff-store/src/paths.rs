//! The known properties of the paths to relays, in the coordinator's encoding.

use ff_base::identity::Fingerprint;
use rusqlite::params;

use super::{Reader, StoreError, Writing};

/// Stores the known properties of the path to a relay, which replace earlier ones. They are deleted
/// with the relay's last attempt.
pub(super) fn put(
    writing: &Writing<'_>,
    relay: &Fingerprint,
    known: &str,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO paths (fingerprint, known) VALUES (?1, ?2)
               ON CONFLICT (fingerprint) DO UPDATE SET known = ?2";
    writing.execute(sql, params![relay, known]).map(drop)
}

impl Reader {
    /// The known properties of the paths to relays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn paths(&self) -> Result<Vec<(Fingerprint, String)>, StoreError> {
        self.all("paths", "SELECT id, fingerprint, known FROM paths", [], |columns| {
            let _id: i64 = columns.take()?;
            Ok((columns.take()?, columns.take()?))
        })
    }
}
