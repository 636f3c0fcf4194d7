//! The hidden command `generate`: man pages and completions for a package.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use ff_operator::pages::Program;

use crate::cli::Cli;

/// Writes the man pages and completions of ff-perf, ff-sim and ff-lab.
pub(super) fn run(dir: &Path) -> Result<ExitCode> {
    for program in programs() {
        program.write(dir)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn programs() -> [Program<'static>; 3] {
    let perf = Program {
        command: Cli::command(),
        files: &[
            ("/usr/share/doc/ff-tools/circuits-serve.md", "The guide to circuits serve."),
            ("/usr/share/doc/ff-tools/circuits-analyze.md", "How to read circuits analyze."),
            ("/usr/share/doc/ff-tools/downloads.md", "The guide to downloads."),
            ("/usr/share/doc/ff-tools/downloads-serve.md", "The guide to downloads serve."),
        ],
        examples: &[
            (
                "ff-perf-circuits-run",
                "Measure circuits in a network that ff-lab up has started in DIR:",
                "ff-perf circuits run --network DIR --out circuits",
            ),
            (
                "ff-perf-circuits-analyze",
                "Analyse them, with tables and figures in a directory:",
                "ff-perf circuits analyze circuits --out analysis",
            ),
        ],
        see_also: &["ff-lab(1)", "ff-sim(1)", "ff-bwauth(1)"],
        config: None,
    };
    let sim = Program {
        command: ff_sim::cli::Cli::command(),
        files: &[("/usr/share/doc/ff-tools/sim-store.md", "The contents of a store of archives.")],
        examples: &[(
            "ff-sim-ingest",
            "Put a folder of CollecTor's archives into a store:",
            "ff-sim ingest --collector archives --store store",
        )],
        see_also: &["ff-perf(1)", "ff-bwauth(1)"],
        config: None,
    };
    let lab = Program {
        command: ff_lab::cli::Cli::command(),
        files: &[],
        examples: &[
            ("ff-lab-up", "Start a private network until Ctrl-C:", "ff-lab up"),
            (
                "ff-lab-link-run",
                "Run a command with 50 ms to this host and back:",
                "ff-lab link run --delay-ms 25 -- sh -c 'ping -c 3 $FF_LAB_PEER'",
            ),
        ],
        see_also: &["ff-perf(1)", "tor(1)"],
        config: None,
    };
    [perf, sim, lab]
}

#[cfg(test)]
mod tests {
    use ff_operator::pages::without_exit_status;

    use super::*;

    #[test]
    fn each_program_has_pages_and_each_command_says_its_exit_status() {
        let dir = tempfile::tempdir().expect("a directory");
        run(dir.path()).expect("written");
        for program in programs() {
            let name = program.command.get_name();
            let man = dir.path().join(name).join("man");
            let pages = [name].into_iter().chain(program.examples.iter().map(|(page, ..)| *page));
            for page in pages {
                let text = std::fs::read_to_string(man.join(format!("{page}.1"))).expect(page);
                let is_examples = page != name;
                assert_eq!(text.contains(".SH EXAMPLES\n"), is_examples, "{page}");
                assert!(text.contains(".SH EXIT STATUS\n"), "{page}");
            }
            assert_eq!(without_exit_status(&program.command), [""; 0], "{name}");
        }
    }
}
