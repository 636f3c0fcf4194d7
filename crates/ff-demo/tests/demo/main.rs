//! The built `ff-demo`, as its users run it.

mod demo;
mod demo_tor;
