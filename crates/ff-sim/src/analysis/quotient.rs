//! Quotients of sums, rounded once.

/// A quotient of sums; nothing over 0.
#[expect(clippy::cast_precision_loss, reason = "each is rounded once")]
pub(super) fn quotient(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What one is of a sum; nothing of 0.
pub(super) fn unit(sum: u128) -> Option<f64> {
    quotient(1, sum)
}
