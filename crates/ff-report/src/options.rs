//! What a command was run with, as its results name it.

use std::collections::BTreeMap;

use clap::Command as Clap;
use serde_json::Value;

/// What a command was run with, by the names of its options: as it was given, or what holds if
/// nothing is.
pub type CommandOptions = BTreeMap<String, Value>;

/// Options that change nothing of the results.
const OF_NO_MATTER: [&str; 3] = ["jobs", "json", "out"];

/// What a command was run with, by its arguments, without those that do not change the results.
#[must_use]
pub fn options(command: &Clap, matches: &clap::ArgMatches) -> CommandOptions {
    let of_matter = |arg: &&clap::Arg| !OF_NO_MATTER.contains(&arg.get_id().as_str());
    let option = |arg: &clap::Arg| {
        let name = arg.get_id().as_str();
        let raw = matches.try_get_raw(name).ok().flatten()?;
        let mut values: Vec<Value> = raw.map(|one| one.to_string_lossy().into()).collect();
        let value = if !arg.get_action().takes_values() {
            Value::from(values.last().is_some_and(|value| value == "true"))
        } else if arg.get_value_delimiter().is_some() || is_repeated(arg) {
            Value::from(values)
        } else {
            values.pop()?
        };
        Some((name.to_owned(), value))
    };
    command.get_arguments().filter(of_matter).filter_map(option).collect()
}

/// Whether an argument may be given several times.
fn is_repeated(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::Append)
}
