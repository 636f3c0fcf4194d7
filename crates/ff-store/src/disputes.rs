//! Disputes: measurers that report more cells than the relay.

use std::ops::Range;

use ff_base::identity::Fingerprint;
use ff_plan::outcome::{Dispute, Outcome};
use ff_proto::ids::Ed25519Id;
use ff_trust::Word;
use rusqlite::params;

use super::id::AttemptId;
use super::team::measurer;
use super::value::Number;
use super::{Reader, Store, StoreError, Writing};

/// A dispute with its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisputeRow {
    /// The attempt.
    pub attempt: AttemptId,
    /// When the attempt began, in seconds since 1970.
    pub started_unix_secs: u64,
    /// The relay.
    pub fingerprint: Fingerprint,
    /// The measurer's Ed25519 identity.
    pub measurer: [u8; 32],
    /// Cells that it received, by its report.
    pub claimed_cells: u64,
    /// Cells that the relay reports as echoed to it.
    pub reported_cells: u64,
}

/// Stores the disputes of an attempt.
pub(super) fn insert(
    writing: &Writing<'_>,
    id: AttemptId,
    outcome: &Outcome,
) -> Result<(), StoreError> {
    for dispute in &outcome.disputes {
        let measurer = measurer(writing, &dispute.measurer_id.0)?;
        let place = Number(dispute.measurer as u64);
        let cells = [dispute.claimed_cells, dispute.reported_cells].map(Number);
        let sql = "INSERT INTO disputes VALUES (?1, ?2, ?3, ?4, ?5)";
        writing.execute(sql, params![id.0, place, measurer, cells[0], cells[1]])?;
        let sql = "UPDATE measurers SET disputes = disputes + 1 WHERE id = ?1";
        writing.execute(sql, [measurer])?;
    }
    Ok(())
}

impl Store {
    /// Ignores relays' reports on a measurer until now.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn trust(&mut self, identity: [u8; 32], now_unix_secs: u64) -> Result<(), StoreError> {
        self.write("trust a measurer", |writing| {
            let id = measurer(writing, &identity)?;
            let sql = "UPDATE measurers SET trusted_unix_secs = ?2 WHERE id = ?1";
            writing.execute(sql, params![id, Number(now_unix_secs)]).map(drop)
        })
    }
}

impl Reader {
    /// Relays' reports on measurers in attempts that began at `since` or later, the oldest first,
    /// each with the relay's address: disputes, accusations, and reports without any. An attempt
    /// that failed by an accusation has that only, and one that failed for another reason has no
    /// report. Disputes with measurers that were trusted again since then do not count.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn words(&self, since_unix_secs: u64) -> Result<Vec<(Word, String)>, StoreError> {
        let sql = "SELECT a.id, a.started_unix_secs, t.fingerprint, t.address, m.identity,
                   d.attempt IS NOT NULL OR a.accuser IS m.identity
                   FROM attempts a JOIN targets t ON t.id = a.target JOIN shares s ON s.attempt = a.id
                   JOIN measurers m ON m.id = s.measurer
                   LEFT JOIN disputes d ON d.attempt = a.id AND d.measurer = s.measurer
                   WHERE a.started_unix_secs >= ?1 AND a.finished_unix_secs IS NOT NULL
                   AND (d.attempt IS NOT NULL OR a.accuser IS m.identity OR a.accuser IS NULL
                        AND (a.failure IS NULL OR EXISTS (SELECT 1 FROM disputes o WHERE o.attempt = a.id)))
                   AND (d.attempt IS NULL AND a.accuser IS NOT m.identity
                        OR a.started_unix_secs >= ifnull(m.trusted_unix_secs, 0))
                   ORDER BY a.started_unix_secs, a.id, s.measurer";
        let last = i64::MAX.cast_unsigned();
        self.all("attempts", sql, [Number(since_unix_secs.min(last))], |columns| {
            let _attempt: i64 = columns.take()?;
            let (unix_secs, relay, address) = (columns.of()?, columns.take()?, columns.take()?);
            let measurer = Ed25519Id(columns.take()?);
            Ok((Word { relay, measurer, is_dispute: columns.take()?, unix_secs }, address))
        })
    }

    /// The disputes of an attempt.
    pub(super) fn disputes_of(&self, id: AttemptId) -> Result<Vec<Dispute>, StoreError> {
        let sql = "SELECT attempt, place, identity, claimed_cells, reported_cells FROM disputes
                   JOIN measurers ON measurers.id = measurer WHERE attempt = ?1 ORDER BY place";
        self.all("disputes", sql, [id.0], |columns| {
            let _attempt: i64 = columns.take()?;
            let place: u64 = columns.of()?;
            Ok(Dispute {
                measurer: usize::try_from(place).unwrap_or(usize::MAX),
                measurer_id: Ed25519Id(columns.take()?),
                claimed_cells: columns.of()?,
                reported_cells: columns.of()?,
            })
        })
    }

    /// Visits the disputes of attempts that began in a span of time, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`], and those of `visit`, which end it.
    pub fn disputes<E: From<StoreError>>(
        &self,
        span: Range<u64>,
        visit: impl FnMut(DisputeRow) -> Result<(), E>,
    ) -> Result<(), E> {
        // There are few attempts in a span of time compared with all disputes in the store.
        let sql = "SELECT a.id, a.started_unix_secs, t.fingerprint, m.identity, d.claimed_cells,
                   d.reported_cells FROM attempts a CROSS JOIN disputes d ON d.attempt = a.id
                   JOIN targets t ON t.id = a.target JOIN measurers m ON m.id = d.measurer
                   WHERE a.started_unix_secs >= ?1 AND a.started_unix_secs < ?2
                   ORDER BY a.started_unix_secs, a.id, d.place";
        let last = i64::MAX.cast_unsigned();
        let span = [Number(span.start.min(last)), Number(span.end.min(last))];
        let read = |columns: &mut super::row::Columns<'_, '_>| {
            Ok(DisputeRow {
                attempt: AttemptId(columns.take()?),
                started_unix_secs: columns.of()?,
                fingerprint: columns.take()?,
                measurer: columns.take()?,
                claimed_cells: columns.of()?,
                reported_cells: columns.of()?,
            })
        };
        self.each("disputes", sql, span, read, visit)
    }
}
