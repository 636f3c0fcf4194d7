//! The target side of FlashFlow: what a relay needs to be measured.
//!
//! [`target::RelayTarget`] is the whole of it as one state machine without sockets, clock or
//! thread, for any host. [`options`] are the operator's, [`memory`] outlives a restart,
//! [`background`] holds clients' traffic to its share. With the feature `arti`, [`arti`] embeds
//! it in Arti relays.

#[cfg(feature = "arti")]
pub mod arti;
pub mod background;
pub mod memory;
pub mod options;
pub mod target;
