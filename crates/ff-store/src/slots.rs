//! The state of the slots of a period.

use ff_proto::failure::FailureKind;

use super::value::Number;
use super::{Reader, StoreError};

/// The state of the relays of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SlotCount {
    /// The slot.
    pub slot: u32,
    /// Relays that are or were to be measured in it.
    pub planned: u32,
    /// Of these, those that are being measured.
    pub begun: u32,
    /// Of these, those with a conclusive result.
    pub conclusive: u32,
    /// Of these, those with another result.
    pub inconclusive: u32,
    /// Of these, those that failed, except those without FlashFlow.
    pub failed: u32,
    /// Of these, those without FlashFlow; they are not counted in `failed`.
    pub unsupported: u32,
    /// Other relays, which were left out.
    pub left_out: u32,
}

impl Reader {
    /// The states of a period's slots in order, without slots that have no relay.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn slots(&self, period: u64) -> Result<Vec<SlotCount>, StoreError> {
        let without = FailureKind::NotSupported.code();
        let sql = format!(
            "SELECT min(plan.id), slot, sum(left_out IS NULL),
                   sum(attempts.id IS NOT NULL AND verdict IS NULL), sum(verdict IS 'conclusive'),
                   sum(verdict IS NOT NULL AND verdict NOT IN ('conclusive', 'failed')),
                   sum(verdict IS 'failed' AND failure IS NOT '{without}'), sum(failure IS '{without}'),
                   sum(left_out IS NOT NULL)
                   FROM plan LEFT JOIN attempts ON attempts.plan = plan.id WHERE period = ?1
                   GROUP BY slot ORDER BY slot"
        );
        self.all("plan", &sql, [Number(period)], |columns| {
            let _id: i64 = columns.take()?;
            Ok(SlotCount {
                slot: columns.of()?,
                planned: columns.of()?,
                begun: columns.of()?,
                conclusive: columns.of()?,
                inconclusive: columns.of()?,
                failed: columns.of()?,
                unsupported: columns.of()?,
                left_out: columns.of()?,
            })
        })
    }
}
