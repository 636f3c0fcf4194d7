//! What Tor's clients see of a network: how long circuits take, how good they are, which selection of paths would
//! serve users better and what it would take from their anonymity.
//!
//! [`record::Circuit`] is what is known of one measured circuit: one JSON line. Everything else writes those or
//! reads them.

pub mod record;
