//! The hidden command `generate`: files of a package in addition to the two programs.
//!
//! All of them are derived from the programs, so they are made during packaging and are not kept in
//! the repository.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use ff_operator::pages::{ConfigPage, Program};

use super::service;
use crate::cli::{Cli, GenerateArgs, STATE_DIR};

/// Keys of `bwauth.toml` that a new config does not have.
const MORE_KEYS: &[(&str, &str)] = &[
    (
        "watch.figures_per_relay",
        "Whether the figures for Prometheus name relays; false by default.",
    ),
    (
        "network.private_network",
        "The directory of a private network, as chutney and ff-lab up make it, whose authorities are used.",
    ),
    (
        "network.authority",
        "Tables of the directory authorities of another network than Tor's or private_network's.",
    ),
    ("network.fallback", "Tables of the directories to ask first; by default the authorities."),
    (
        "network.allow_private_addresses",
        "Whether directories may be at private addresses; false by default.",
    ),
    (
        "network.state_dir",
        "The directory where Arti keeps its directory guards; by default cache_dir.",
    ),
    (
        "network.limits",
        "A table: consensuses (how many are kept, 3), cache_bytes (268435456), parallel (requests at a time, 4), \
         answer_secs (60).",
    ),
    (
        "network.consensus, network.descriptors",
        "A consensus file and a list of descriptor files, kept up to date by another program. They exclude all other keys \
         of this table.",
    ),
    (
        "period.consensus_lead_secs",
        "How long before a period its consensus must have become valid, in seconds: by default 1800. It must be the same for \
         all coordinators.",
    ),
    ("period.refresh_secs", "How often documents are fetched, in seconds: 900 by default."),
];

/// Writes all files: for each program its man pages, its completions, and an example config.
pub(super) fn run(args: &GenerateArgs) -> Result<ExitCode> {
    for program in [coordinator(), measurer()] {
        program.write(&args.dir)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `ff-bwauth`.
fn coordinator() -> Program<'static> {
    Program {
        command: Cli::command(),
        files: &[
            ("/etc/flashflow/bwauth.toml", "The config; see bwauth.toml(5)."),
            ("/etc/flashflow/coordinator.key", "The coordinator's key, for its user only."),
            ("/etc/flashflow/schedule.secret", "The secret that all coordinators share."),
            ("/var/lib/flashflow/store.sqlite", "Plans and results."),
            (
                "/var/lib/flashflow/v3bw/latest.v3bw",
                "The bandwidth file, for V3BandwidthsFile in the torrc of a directory authority.",
            ),
            ("/usr/share/doc/ff-bwauth/operating.md", "The guide for operators."),
        ],
        examples: &[
            (
                "ff-bwauth-run",
                "Check the config as the service's user:",
                "runuser -u _ff-bwauth -- ff-bwauth run --check",
            ),
            (
                "ff-bwauth-status",
                "Show the coordinator's state as JSON:",
                "ff-bwauth status --json",
            ),
            (
                "ff-bwauth-explain",
                "Explain a relay's number:",
                "runuser -u _ff-bwauth -- ff-bwauth explain NICKNAME",
            ),
            (
                "ff-bwauth-doctor",
                "Check host, files and measurers:",
                "runuser -u _ff-bwauth -- ff-bwauth doctor",
            ),
            (
                "ff-bwauth-v3bw-check",
                "Read the latest file as an authority does:",
                "ff-bwauth v3bw check /var/lib/flashflow/v3bw/latest.v3bw",
            ),
            (
                "ff-bwauth-measure",
                "Measure a relay that lists this coordinator, with 300 Mbit/s:",
                "ff-bwauth measure --target 192.0.2.1:9001 --ed-identity BASE64 --rate 300Mbit",
            ),
        ],
        see_also: &["ff-measurer(1)", "tor(1)"],
        config: Some(ConfigPage {
            name: "bwauth.toml",
            about: "config of a FlashFlow coordinator",
            text: service::template(Path::new(STATE_DIR)),
            more_keys: MORE_KEYS,
        }),
    }
}

/// `ff-measurer`.
fn measurer() -> Program<'static> {
    let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), ff_measurer::cli::PORT);
    Program {
        command: ff_measurer::cli::Cli::command(),
        files: &[
            ("/etc/flashflow/measurer.toml", "The config; see measurer.toml(5)."),
            ("/etc/flashflow/measurer.key", "The measurer's key, for its user only."),
        ],
        examples: &[
            (
                "ff-measurer-run",
                "Check the config as the service's user:",
                "runuser -u _ff-measurer -- ff-measurer run --check",
            ),
            (
                "ff-measurer-bench",
                "Find out what one core of an idle host can measure:",
                "ff-measurer bench",
            ),
        ],
        see_also: &["ff-bwauth(1)", "tor(1)"],
        config: Some(ConfigPage {
            name: "measurer.toml",
            about: "config of a FlashFlow measurer",
            text: ff_measurer::config::template(listen),
            more_keys: &[],
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ff_live::LiveConfig;
    use ff_operator::pages::without_exit_status;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::config::{
        CoordinatorTable, ExchangeTable, Files, Keep, MeasurerTable, PeriodTable, Publish, Watch,
    };

    /// The keys of a table.
    fn keys<T: DeserializeOwned>() -> Vec<String> {
        let error = toml::from_str::<T>("zzz = 1").map(drop).expect_err("another key").to_string();
        let (_, keys) = error.split_once("unknown field `zzz`, expected ").expect("the keys");
        keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_page_of_the_coordinators_config_has_all_keys() {
        let dir = tempfile::tempdir().expect("a directory");
        coordinator().write(dir.path()).expect("written");
        let page = fs::read_to_string(dir.path().join("ff-bwauth/man/bwauth.toml.5"));
        let page = page.expect("a page");
        let all = [
            keys::<Watch>(),
            keys::<Files>(),
            keys::<LiveConfig>(),
            keys::<PeriodTable>(),
            keys::<ExchangeTable>(),
            keys::<Keep>(),
            keys::<Publish>(),
            keys::<MeasurerTable>(),
            keys::<CoordinatorTable>(),
        ];
        for key in all.concat() {
            assert!(page.contains(&key), "{key} in {page}");
        }
    }

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let dir = tempfile::tempdir().expect("a directory");
        run(&GenerateArgs { dir: dir.path().to_owned() }).expect("written");
        for program in [coordinator(), measurer()] {
            let name = program.command.get_name();
            let read = |file: String| {
                let path = dir.path().join(name).join(file);
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
            };
            let visible =
                program.command.get_subcommands().filter(|command| !command.is_hide_set());
            for command in visible {
                let page = read(format!("man/{name}-{}.1", command.get_name()));
                for section in ["SYNOPSIS", "EXIT STATUS", "FILES", "SEE ALSO"] {
                    assert!(page.contains(&format!(".SH {section}\n")), "{section} in {page}");
                }
            }
            for (page, _, lines) in program.examples {
                let first = lines.split_whitespace().next_back().expect("a word");
                assert!(
                    read(format!("man/{page}.1")).contains(&first.replace('-', "\\-")),
                    "{page}"
                );
            }
            let page = read(format!("man/{name}.1"));
            assert!(page.contains("init") && !page.contains("generate"), "{page}");
            for file in [name.to_owned(), format!("_{name}"), format!("{name}.fish")] {
                assert!(read(format!("completions/{file}")).contains("config"), "{file}");
            }
            let config = program.config.as_ref().expect("a config").name;
            toml::from_str::<toml::Table>(&read(format!("examples/{config}"))).expect("TOML");
            assert!(read(format!("man/{config}.5")).contains(".SH EXAMPLE\n"));
            assert_eq!(without_exit_status(&program.command), [""; 0], "{name}");
        }
    }
}
