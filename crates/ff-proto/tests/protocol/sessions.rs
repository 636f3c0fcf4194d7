//! The three state machines with each other, and each with a peer that breaks the rules.

mod coordinator;
mod happy;
mod measurer;
mod net;
mod states;
mod target;
