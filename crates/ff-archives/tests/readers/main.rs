//! Tests of the readers with real documents. They are one program, so that tests run in parallel.

mod full;
mod netdoc;
mod stem;
mod weights;
