//! The fields of a server descriptor that matter here, scanned as bytes.
