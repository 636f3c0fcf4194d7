//! The figures of each analysis, drawn by [`ff_report::figure`].

pub mod attacks;
pub mod errors;
pub mod schedule;
