//! The fields of a consensus that matter here, scanned as bytes.
