//! Tests of the command and its library from outside. They are one program, so that tests, most of
//! which wait, run at the same time.

mod arbitrary;
mod cli;
mod export_cli;
mod live_network;
mod measurers_cli;
mod network_demo;
mod output_files;
mod publishing;
mod samples;
mod schedule_cli;
mod store;
mod told;
mod v3bw_cli;
mod watch_cli;

use std::fs;
use std::path::Path;

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort_unstable();
    names
}
