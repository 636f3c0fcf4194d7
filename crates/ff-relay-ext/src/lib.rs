//! The target side of FlashFlow: what a relay needs to be measured.
#[cfg(feature = "arti")]
pub mod arti;
