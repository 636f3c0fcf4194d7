//! What the command says on its two outputs.

pub(crate) use ff_measurer::console::{note, print};
