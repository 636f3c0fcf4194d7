//! FlashFlow measures how much traffic a Tor relay can really forward.
//!
//! This package holds nothing but the tests and benchmarks that need several of the
//! workspace's crates at once: `tests/` and `benches/`. The product is in `crates/`.
