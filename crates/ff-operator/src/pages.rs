//! Man pages and completions, generated from the command lines of programs.
//!
//! The page of a command has its help, then EXIT STATUS, FILES, EXAMPLES and SEE ALSO. A config has
//! a page in section 5, its example with comments.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The exit statuses of a command whose help does not list them.
const EXIT_STATUS: &str =
    "  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line";

/// A program, and what its pages contain in addition to its help.
#[derive(Debug)]
pub struct Program<'a> {
    /// The command line.
    pub command: Command,
    /// Files that it reads and writes, each with a description.
    pub files: &'a [(&'a str, &'a str)],
    /// Examples: the page, a description, and the lines.
    pub examples: &'a [(&'a str, &'a str, &'a str)],
    /// Pages of other programs, as `tor(1)`.
    pub see_also: &'a [&'a str],
    /// Its config, if it has one.
    pub config: Option<ConfigPage<'a>>,
}

/// A config.
#[derive(Debug)]
pub struct ConfigPage<'a> {
    /// Its file's name.
    pub name: &'a str,
    /// A description for the section NAME.
    pub about: &'a str,
    /// An example with comments.
    pub text: String,
    /// Keys that the example lacks, each with a description.
    pub more_keys: &'a [(&'a str, &'a str)],
}

impl Program<'_> {
    /// Writes the directories man, completions and examples of the program into a directory of its
    /// name.
    ///
    /// # Errors
    /// When a file or directory cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let dir = dir.join(self.command.get_name());
        let man = directory(&dir, "man")?;
        let mut command = self.command.clone().disable_help_subcommand(true);
        command.build();
        self.write_pages(&command, &man)?;
        self.write_completions(&directory(&dir, "completions")?)?;
        let Some(config) = &self.config else { return Ok(()) };
        write(&man.join(format!("{}.5", config.name)), self.config_page(config).as_bytes())?;
        write(&directory(&dir, "examples")?.join(config.name), config.text.as_bytes())
    }

    /// Writes the page of a command and those of its subcommands.
    fn write_pages(&self, command: &Command, dir: &Path) -> Result<()> {
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            self.write_pages(command, dir)?;
        }
        let man = Man::new(command.clone());
        let page = self.page(&man, command).context("Failed to make a man page")?;
        write(&dir.join(man.get_filename()), &page)
    }

    /// The page of a command.
    fn page(&self, man: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
        let mut page = Vec::new();
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        if command.get_arguments().any(|argument| !argument.is_hide_set()) {
            man.render_options_section(&mut page)?;
        }
        if command.get_subcommands().any(|command| !command.is_hide_set()) {
            man.render_subcommands_section(&mut page)?;
        }
        let name = display_name(command);
        let (notes, status) = notes_and_exit_status(command);
        let mut more = section("NOTES", &notes) + &section("EXIT STATUS", &status);
        more += &section("FILES", &files(self.files));
        let examples = self.examples.iter().filter(|(page, ..)| *page == name);
        let examples: String = examples.map(|(_, what, lines)| example(what, lines)).collect();
        more += &section("EXAMPLES", &examples);
        more += &section("SEE ALSO", &self.see_also(name));
        page.extend_from_slice(more.as_bytes());
        Ok(page)
    }

    /// The section SEE ALSO of a page.
    fn see_also(&self, page: &str) -> String {
        let mut command = self.command.clone();
        command.build();
        let mut names = vec![format!("{}(1)", command.get_name())];
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let visible = visible.filter(|command| command.get_name() != "help");
        names.extend(visible.map(|command| format!("{}(1)", display_name(command))));
        names.extend(self.config.as_ref().map(|config| format!("{}(5)", config.name)));
        names.extend(self.see_also.iter().map(|&name| name.to_owned()));
        names.retain(|name| name.split('(').next() != Some(page));
        names.join(", ")
    }

    /// The page of the config.
    fn config_page(&self, config: &ConfigPage<'_>) -> String {
        let ConfigPage { name, about, text, more_keys } = config;
        let program = self.command.get_name();
        let mut page = format!(".TH {name} 5 \"\" \"FlashFlow\"\n");
        page += &section("NAME", &format!("{name} \\- {about}"));
        page += &section("SYNOPSIS", &format!("/etc/flashflow/{name}"));
        let check = format!(
            "A TOML file, made by {program}(1) init. Check it with {program} run --check. systemctl reload {program} makes the \
             service read it again; an invalid config is logged and ignored."
        );
        page += &section("DESCRIPTION", &check);
        page += ".SH EXAMPLE\nThe config that init makes, with comments.\n";
        page += &verbatim(text);
        page += &section("MORE KEYS", &files(more_keys));
        page += &section("FILES", &files(self.files));
        page += &section("SEE ALSO", &self.see_also(name));
        page
    }

    /// Writes a file for each shell, under the name by which the shell finds it.
    fn write_completions(&self, dir: &Path) -> Result<()> {
        let name = self.command.get_name();
        let mut command = self.command.clone();
        for (shell, file) in [
            (Shell::Bash, name.to_owned()),
            (Shell::Zsh, format!("_{name}")),
            (Shell::Fish, format!("{name}.fish")),
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, name, &mut text);
            write(&dir.join(file), &text)?;
        }
        Ok(())
    }
}

/// The name of a command's page.
fn display_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The end of a command's help in roff: notes, if any, and the exit statuses.
fn notes_and_exit_status(command: &Command) -> (String, String) {
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(after) = after.map(ToString::to_string) {
        return match after.rsplit_once("\n\n") {
            Some((notes, status)) => (verbatim(notes), verbatim(status)),
            None => (String::new(), verbatim(&after)),
        };
    }
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let status = match about.split_once("Exit status: ") {
        Some((_, text)) => format!("{}\n", escaped(text)),
        None => verbatim(EXIT_STATUS),
    };
    (String::new(), status)
}

/// Files or keys with their descriptions, in roff.
fn files(files: &[(&str, &str)]) -> String {
    let row = |(name, what): &(&str, &str)| format!(".TP\n{}\n{}\n", escaped(name), escaped(what));
    files.iter().map(row).collect()
}

/// An example, in roff.
fn example(what: &str, lines: &str) -> String {
    format!("{}\n{}", escaped(what), verbatim(lines))
}

/// A section, unless it is empty.
fn section(title: &str, roff: &str) -> String {
    if roff.is_empty() { String::new() } else { format!(".SH {title}\n{}\n", roff.trim_end()) }
}

/// Lines as they are, in roff.
fn verbatim(text: &str) -> String {
    format!(".PP\n.nf\n{}\n.fi\n", escaped(text))
}

/// Text in which roff finds no commands.
fn escaped(text: &str) -> String {
    let mut roff = String::new();
    for line in text.trim_end().lines() {
        let start = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(roff, "{start}{}", line.replace('\\', "\\e").replace('-', "\\-"));
    }
    roff.trim_end_matches('\n').to_owned()
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

/// The commands of a program whose help does not list exit statuses.
#[must_use]
pub fn without_exit_status(command: &Command) -> Vec<String> {
    let visible = || command.get_subcommands().filter(|command| !command.is_hide_set());
    if visible().next().is_some() {
        return visible().flat_map(without_exit_status).collect();
    }
    let help = command.clone().render_long_help().to_string().to_lowercase();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.contains("exit status") { Vec::new() } else { vec![command.get_name().to_owned()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_sections_and_text_stays_text() {
        let run =
            Command::new("run").about("Run").after_help("Careful.\n\nExit status:\n  0  \\ -x");
        let stop = Command::new("stop").long_about("Stop.\n\nExit status: 0 always.");
        let command = Command::new("prog").about("A program").subcommand(run).subcommand(stop);
        let program = Program {
            command,
            files: &[("/etc/prog", "The config.")],
            examples: &[("prog-run", "Run it.", ".hidden 'x'")],
            see_also: &["tor(1)"],
            config: Some(ConfigPage {
                name: "prog.toml",
                about: "a config",
                text: "a = 1\n".into(),
                more_keys: &[("b", "Another one.")],
            }),
        };
        let dir = tempfile::tempdir().expect("a directory");
        program.write(dir.path()).expect("written");
        let read = |file: &str| fs::read_to_string(dir.path().join("prog").join(file)).expect(file);
        let page = read("man/prog-run.1");
        for part in [
            ".SH NOTES\n.PP\n.nf\nCareful.\n.fi\n",
            ".SH EXIT STATUS\n.PP\n.nf\nExit status:\n  0  \\e \\-x\n.fi\n",
            ".SH FILES\n.TP\n/etc/prog\nThe config.\n",
            ".SH EXAMPLES\nRun it.\n.PP\n.nf\n\\&.hidden 'x'\n.fi\n",
            ".SH SEE ALSO\nprog(1), prog-stop(1), prog.toml(5), tor(1)\n",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(read("man/prog-stop.1").contains(".SH EXIT STATUS\n0 always.\n"));
        assert!(!read("man/prog.1").contains(".SH EXAMPLES"));
        let config = read("man/prog.toml.5");
        assert!(config.starts_with(".TH prog.toml 5 ") && config.contains("\na = 1\n"), "{config}");
        assert!(config.contains(".SH MORE KEYS\n.TP\nb\nAnother one.\n"), "{config}");
        assert_eq!(read("examples/prog.toml"), "a = 1\n");
        assert!(read("completions/_prog").contains("run"));
        assert_eq!(without_exit_status(&program.command), [""; 0]);
        assert_eq!(without_exit_status(&Command::new("x")), ["x"]);
    }
}
