//! The three state machines against each other, and each against a peer that breaks the rules.

mod coordinator;
mod happy;
mod measurer;
mod net;
mod states;
mod target;
