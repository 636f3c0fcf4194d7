//! The token bucket of a client's link.

/// A bucket with less than the tokens of this time counts as empty, in seconds.
const EMPTY_SECS: f64 = 1e-3;

/// The limit of each client's link, in bytes of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkLimit {
    /// Fill rate of the bucket, in bytes per second.
    pub rate: f64,
    /// Size of the bucket, in bytes.
    pub burst: f64,
}

/// A token bucket: initially full, filled evenly, and each byte that passes takes one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    limit: LinkLimit,
    /// Tokens in bytes, from 0 to the burst.
    tokens: f64,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub const fn full(limit: LinkLimit) -> Self {
        Self { limit, tokens: limit.burst }
    }

    /// Advances by `secs` seconds in which `bytes` pass, at most [`Bucket::most`].
    pub fn pass(&mut self, bytes: f64, secs: f64) {
        let tokens = self.tokens + self.limit.rate * secs - bytes;
        self.tokens = tokens.clamp(0.0, self.limit.burst);
    }

    /// The tokens in it, in bytes.
    #[must_use]
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Whether it is empty, except for tokens that arrived just now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens <= self.limit.rate * EMPTY_SECS
    }

    /// The rate at which bytes can pass now, in bytes per second, over a link of `line` bytes per
    /// second.
    #[must_use]
    pub fn cap(&self, line: f64) -> f64 {
        if self.is_empty() { line.min(self.limit.rate) } else { line }
    }

    /// The most bytes that can pass in `secs` seconds.
    #[must_use]
    pub fn most(&self, secs: f64) -> f64 {
        self.tokens + self.limit.rate * secs
    }

    /// Seconds until it is empty if bytes pass at this rate; infinite if it never is.
    #[must_use]
    pub fn lasts_secs(&self, rate: f64) -> f64 {
        let drain = rate - self.limit.rate;
        if drain > 0.0 && !self.is_empty() { self.tokens / drain } else { f64::INFINITY }
    }

    /// Seconds until `bytes` have passed at this rate, or later if the bucket delays them.
    #[must_use]
    pub fn passes_secs(&self, bytes: f64, rate: f64) -> f64 {
        (bytes / rate).max((bytes - self.tokens) / self.limit.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_burst_and_then_passes_its_rate() {
        let mut bucket = Bucket::full(LinkLimit { rate: 100.0, burst: 300.0 });
        assert_eq!((bucket.cap(400.0), bucket.lasts_secs(400.0)), (400.0, 1.0));
        assert_eq!((bucket.lasts_secs(100.0), bucket.most(2.0)), (f64::INFINITY, 500.0));
        // 700 bytes: 300 have tokens, the other 400 take 4 s; 100 bytes pass in a quarter of a
        // second.
        assert_eq!(
            (bucket.passes_secs(700.0, 400.0), bucket.passes_secs(100.0, 400.0)),
            (4.0, 0.25)
        );
        bucket.pass(400.0, 1.0);
        assert!(bucket.is_empty());
        assert_eq!((bucket.tokens(), bucket.cap(400.0), bucket.cap(60.0)), (0.0, 100.0, 60.0));
        bucket.pass(60.0, 1.0);
        assert_eq!(bucket.tokens(), 40.0);
        bucket.pass(0.0, 1e9);
        assert_eq!(bucket.tokens(), 300.0, "it never holds more than the burst");
        bucket.pass(1e9, 1.0);
        assert_eq!(bucket.tokens(), 0.0, "and never less than nothing");
    }
}
