#![doc = include_str!("../README.md")]

pub mod deliver;
pub mod measure;
pub mod options;
mod progress;
pub mod report;
mod samples;
pub mod screen;
pub mod team;
