//! Quotients of sums, rounded once.

/// A quotient of sums; `None` if the denominator is 0.
#[expect(clippy::cast_precision_loss, reason = "each is rounded once")]
pub(super) fn quotient(part: u128, whole: u128) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The share of one unit in a sum; `None` if the sum is 0.
pub(super) fn unit(sum: u128) -> Option<f64> {
    quotient(1, sum)
}
