//! The hidden command `generate`: what a package has beside the two programs.
//!
//! All of it follows from what the programs know of themselves, so it is made when they are packaged and
//! stands in no repository.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use super::service;
use crate::cli::{Cli, GenerateArgs, STATE_DIR};

/// Writes all of it: for each program its man pages, its completions, and a config to begin with.
pub(super) fn run(args: &GenerateArgs) -> Result<ExitCode> {
    let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), ff_measurer::cli::PORT);
    let programs = [
        (Cli::command(), "bwauth.toml", service::template(Path::new(STATE_DIR))),
        (ff_measurer::cli::Cli::command(), "measurer.toml", ff_measurer::config::template(listen)),
    ];
    for (program, config, text) in programs {
        let dir = args.dir.join(program.get_name());
        man_pages(&program, &directory(&dir, "man")?)?;
        completions(program, &directory(&dir, "completions")?)?;
        write(&directory(&dir, "examples")?.join(config), text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a directory in another one.
fn directory(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    fs::create_dir_all(&path).with_context(|| format!("Failed to make {}", path.display()))?;
    Ok(path)
}

/// Writes a file.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("Failed to write {}", path.display()))
}

/// A page for the program and one for each of its commands.
fn man_pages(program: &clap::Command, dir: &Path) -> Result<()> {
    clap_mangen::generate_to(program.clone(), dir)
        .with_context(|| format!("Failed to write man pages into {}", dir.display()))
}

/// A file for each shell, under the name by which the shell finds it.
fn completions(mut program: clap::Command, dir: &Path) -> Result<()> {
    let name = program.get_name().to_owned();
    for (shell, file) in [
        (Shell::Bash, name.clone()),
        (Shell::Zsh, format!("_{name}")),
        (Shell::Fish, format!("{name}.fish")),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program, &name, &mut text);
        write(&dir.join(file), &text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let dir = tempfile::tempdir().expect("a directory");
        run(&GenerateArgs { dir: dir.path().to_owned() }).expect("written");
        for program in [Cli::command(), ff_measurer::cli::Cli::command()] {
            let name = program.get_name();
            let read = |file: String| {
                let path = dir.path().join(name).join(file);
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
            };
            for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
                let page = read(format!("man/{name}-{}.1", command.get_name()));
                assert!(page.contains(".SH SYNOPSIS"), "{page}");
            }
            let page = read(format!("man/{name}.1"));
            assert!(page.contains("init") && !page.contains("generate"), "{page}");
            for file in [name.to_owned(), format!("_{name}"), format!("{name}.fish")] {
                assert!(read(format!("completions/{file}")).contains("config"), "{file}");
            }
        }
        for config in ["ff-bwauth/examples/bwauth.toml", "ff-measurer/examples/measurer.toml"] {
            let text = fs::read_to_string(dir.path().join(config)).expect("a config");
            toml::from_str::<toml::Table>(&text).expect("TOML");
        }
    }
}
