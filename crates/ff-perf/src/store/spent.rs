//! The file of a budget, written before a download begins and after it has ended.

use std::path::Path;

use ff_base::utc::Utc;

use super::error::StoreError;
use super::state::StateFile;
use crate::budget::{SCHEMA, Spent};

/// Name of the file in the folder of lines.
pub const FILE: &str = "budget.json";
const BUDGET: StateFile = StateFile {
    name: FILE,
    schema: SCHEMA,
    wrong: "this is not a budget",
    remedy: "delete the file to start the month with an unused budget",
};

/// Reads the file; `None` if there is none yet.
///
/// # Errors
/// [`StoreError`] with the file's name.
pub fn read(dir: &Path) -> Result<Option<Spent>, StoreError> {
    let Some(spent) = BUDGET.read::<Spent>(dir)? else { return Ok(None) };
    if format!("{}-01", spent.month).parse::<Utc>().is_err() {
        let reason = format!("{:?} is not a month such as 2026-11", spent.month);
        return Err(BUDGET.refused(dir, 1, &reason));
    }
    Ok(Some(spent))
}

/// Writes the file, whole or not at all.
///
/// # Errors
/// [`StoreError`] with the file's name.
pub fn write(dir: &Path, spent: &Spent) -> Result<(), StoreError> {
    BUDGET.write(dir, spent)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_spent_is_kept_and_odd_files_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(read(dir.path()).expect("nothing"), None);
        let spent =
            Spent { schema: SCHEMA, month: "2026-11".to_owned(), bytes: 7, ..Spent::default() };
        write(dir.path(), &spent).expect("written");
        assert_eq!(read(dir.path()).expect("a budget"), Some(spent));
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "and nothing else");
        for (odd, part) in [
            ("", "line 1: this is not a budget"),
            ("{\"schema\":1,\n\"month\":7,\"bytes\":1}", "line 2: this is not a budget"),
            ("{\"schema\":1,\"month\":\"2026-11\",\"bytes\":-1}", "not a budget"),
            ("{\"schema\":1,\"month\":\"2026-11\",\"bytes\":1,\"bytes\":2}", "duplicate"),
            ("{\"schema\":2,\"month\":\"2026-11\",\"bytes\":1}", "schema 2 is newer"),
            ("{\"schema\":1,\"month\":\"zzz\",\"bytes\":1}", "\"zzz\" is not a month"),
            ("{\"schema\":1,\"month\":\"2026-13\",\"bytes\":1}", "is not a month"),
        ] {
            fs::write(dir.path().join(FILE), odd).expect("a file");
            let error = read(dir.path()).expect_err("odd").to_string();
            assert!(error.contains("budget.json, line") && error.contains(part), "{error}");
            assert!(error.contains("delete the file"), "{error}");
        }
    }
}
