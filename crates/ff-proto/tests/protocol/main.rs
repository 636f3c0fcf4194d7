//! The protocol against itself, against Arti's cells and against vectors of a second
//! implementation.

mod decode_props;
#[cfg(feature = "onion")]
mod onion_props;
#[cfg(all(feature = "tor-cell", feature = "onion"))]
mod onion_torcell;
mod sampling;
mod sessions;
#[cfg(feature = "tor-cell")]
mod torcell;
mod vectors;
