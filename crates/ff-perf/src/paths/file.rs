//! Files of paths: one a line, the fingerprints of its relays separated by commas or spaces, the first hop first.
//!
//! Empty lines and what follows a `#` are left out.

use std::fmt::Write as _;

use super::MOST_RELAYS;

/// A line that is no path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct NoPath {
    /// The file.
    pub file: String,
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Reads paths: fingerprints of 40 upper-case hexadecimal digits. `file` is only for errors.
///
/// # Errors
/// [`NoPath`] for the first line that is none: no fingerprint, a relay twice, more than eight.
pub fn parse(file: &str, text: &str) -> Result<Vec<Vec<String>>, NoPath> {
    let mut paths = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        let words = content.split([',', ' ', '\t', '\r']).filter(|word| !word.is_empty());
        let path: Result<Vec<String>, String> = words.map(fingerprint).collect();
        let checked = path.and_then(|path| checked(path, content));
        match checked {
            Ok(path) if path.is_empty() => {}
            Ok(path) => paths.push(path),
            Err(reason) => return Err(NoPath { file: file.to_owned(), line, reason }),
        }
    }
    Ok(paths)
}

/// Writes paths.
#[must_use]
pub fn render<'a>(comment: &str, paths: impl IntoIterator<Item = &'a [String]>) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {line}");
    }
    for path in paths {
        text.push_str(&path.join(","));
        text.push('\n');
    }
    text
}

/// A fingerprint, with or without `$`.
fn fingerprint(word: &str) -> Result<String, String> {
    let id = word.strip_prefix('$').unwrap_or(word);
    let is_one = id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_one {
        return Ok(id.to_ascii_uppercase());
    }
    Err(format!("{word:?} is no fingerprint of 40 hexadecimal digits"))
}

/// A path that can be built, or the empty one of an empty line.
fn checked(path: Vec<String>, content: &str) -> Result<Vec<String>, String> {
    if path.is_empty() && !content.trim().is_empty() {
        return Err("a path without relays".to_owned());
    }
    if path.len() > usize::from(MOST_RELAYS) {
        return Err(format!("{} relays: a circuit has {MOST_RELAYS} at most", path.len()));
    }
    let twice = |(place, id): (usize, &String)| path[..place].contains(id).then(|| id.clone());
    match path.iter().enumerate().find_map(twice) {
        Some(id) => Err(format!("relay {id} comes twice")),
        None => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_mistakes_are_named() {
        let id = |digit: char| digit.to_string().repeat(40);
        let paths = vec![vec![id('A'), id('B'), id('C')], vec![id('D')]];
        let text = render("by hand\nfor a test", paths.iter().map(Vec::as_slice));
        assert_eq!(parse("f", &text), Ok(paths));
        let spaced = format!("\n  ${}\t{} # two\n#{}\n", id('a'), id('b'), id('c'));
        assert_eq!(parse("f", &spaced), Ok(vec![vec![id('A'), id('B')]]));
        let nine: Vec<String> = "123456789".chars().map(id).collect();
        for (line, reason) in [
            (nine.join(","), "9 relays: a circuit has 8 at most"),
            (format!("{},{}", id('A'), id('a')), "comes twice"),
            (",,".to_owned(), "a path without relays"),
            ("middle0".to_owned(), "\"middle0\" is no fingerprint"),
        ] {
            let error = parse("f", &format!("# a path\n{line}\n")).expect_err(&line).to_string();
            assert!(error.starts_with("f, line 2: ") && error.contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fA-F,# $\\n\\PC]{0,200}") {
            let _ = parse("f", &text);
        }
    }
}
