//! Files of paths: one path per line, the fingerprints of its relays separated by commas or spaces,
//! the first hop first. Lists of relays have the same format, but their lines have no meaning.
//!
//! Empty lines and text after `#` are ignored.

use std::fmt::Write as _;

use super::MOST_RELAYS;

/// An error in a file of paths or a list of relays.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct NoPath {
    /// The file.
    pub file: String,
    /// The line number, from 1.
    pub line: usize,
    /// The error.
    pub reason: String,
}

/// Reads paths: fingerprints of 40 upper-case hexadecimal digits. `file` is used in errors only.
///
/// # Errors
/// [`NoPath`] for the first line that is not a path: not a fingerprint, a relay twice, more than
/// eight relays; and for a file without paths.
pub fn parse(file: &str, text: &str) -> Result<Vec<Vec<String>>, NoPath> {
    read(file, text, Ok)
}

/// Reads paths of a network's relays: `find` returns the index of a fingerprint.
///
/// # Errors
/// Those of [`parse`], and for a relay that is not in the network.
pub fn find(
    file: &str,
    text: &str,
    find: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<Vec<usize>>, NoPath> {
    read(file, text, |id| known(&id, &find))
}

/// Reads a list of a network's relays: `find` returns the index of a fingerprint. `file` is used in
/// errors only.
///
/// # Errors
/// [`NoPath`] for the first line with an invalid fingerprint, with a relay that is not in the
/// network, or with a duplicate; and for a list without relays.
pub fn list(
    file: &str,
    text: &str,
    find: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<usize>, NoPath> {
    let mut all = Vec::new();
    let failed = |line, reason| NoPath { file: file.to_owned(), line, reason };
    for (line, content) in (1..).zip(text.lines()) {
        for word in words(content) {
            let place = fingerprint(word).and_then(|id| known(&id, &find));
            let place = place.map_err(|reason| failed(line, reason))?;
            if all.contains(&place) {
                return Err(failed(line, format!("relay {word} is listed twice")));
            }
            all.push(place);
        }
    }
    if all.is_empty() {
        return Err(failed(1, "it has no relays".to_owned()));
    }
    Ok(all)
}

/// Reads paths of fingerprints, each converted to a `T`.
fn read<T: PartialEq>(
    file: &str,
    text: &str,
    relay: impl Fn(String) -> Result<T, String>,
) -> Result<Vec<Vec<T>>, NoPath> {
    let mut paths = Vec::new();
    let failed = |line, reason| NoPath { file: file.to_owned(), line, reason };
    for (line, content) in (1..).zip(text.lines()) {
        let path = one(content, &relay).map_err(|reason| failed(line, reason))?;
        if !path.is_empty() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(failed(1, "it has no paths".to_owned()));
    }
    Ok(paths)
}

/// Reads one path, or the empty one of an empty line.
fn one<T: PartialEq>(
    content: &str,
    relay: impl Fn(String) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut path = Vec::new();
    for (hop, word) in (1..).zip(words(content)) {
        let at = |reason: String| format!("hop {hop}: {reason}");
        let relay = fingerprint(word).and_then(&relay).map_err(at)?;
        if path.contains(&relay) {
            return Err(at(format!("relay {word} is in this path already")));
        }
        path.push(relay);
    }
    let is_blank = said(content).trim().is_empty();
    if path.len() > usize::from(MOST_RELAYS) || (path.is_empty() && !is_blank) {
        return Err(format!("a path has 1 to {MOST_RELAYS} relays, this one has {}", path.len()));
    }
    Ok(path)
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

/// A line without its comment.
fn said(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// The words of a line without its comment.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    said(line).split([',', ' ', '\t', '\r']).filter(|word| !word.is_empty())
}

/// The index of a relay in the network.
fn known(id: &str, find: impl Fn(&str) -> Option<usize>) -> Result<usize, String> {
    find(id).ok_or_else(|| format!("the network has no usable relay {id}"))
}

/// A fingerprint, with or without `$`.
pub(crate) fn fingerprint(word: &str) -> Result<String, String> {
    let id = word.strip_prefix('$').unwrap_or(word);
    let is_one = id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_one {
        return Ok(id.to_ascii_uppercase());
    }
    Err(format!("{word:?} is not a fingerprint of 40 hexadecimal digits"))
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
            (nine.join(","), "a path has 1 to 8 relays, this one has 9"),
            (format!("{},{}", id('A'), id('a')), "hop 2: relay aaa"),
            (",,".to_owned(), "this one has 0"),
            ("middle0".to_owned(), "hop 1: \"middle0\" is not a fingerprint"),
        ] {
            let error = parse("f", &format!("# a path\n{line}\n")).expect_err(&line).to_string();
            assert!(error.starts_with("f, line 2: ") && error.contains(reason), "{error}");
        }
        let known = |one: &str| (one == id('A')).then_some(7);
        assert_eq!(find("f", &id('a'), known), Ok(vec![vec![7]]));
        let error = find("f", &format!("{} {}", id('A'), id('B')), known).expect_err("one");
        assert_eq!(error.reason, format!("hop 2: the network has no usable relay {}", id('B')));
        assert!(parse("f", "# nothing\n").expect_err("none").to_string().contains("no path"));
    }

    #[test]
    fn lists_are_read_and_mistakes_named() {
        let id = |digit: char| digit.to_string().repeat(40);
        let known = |one: &str| "ABC".chars().position(|digit| one == id(digit));
        let text = format!("# three\n{} ${},\n\n{} # the last\n", id('c'), id('a'), id('B'));
        assert_eq!(list("f", &text, known), Ok(vec![2, 0, 1]));
        for (text, said) in [
            (format!("{}\n{}", id('A'), id('D')), "f, line 2: the network has no usable relay DD"),
            (format!("{}\n{},{}", id('B'), id('A'), id('a')), "f, line 2: relay aaa"),
            ("exit0".to_owned(), "f, line 1: \"exit0\" is not a fingerprint"),
            (format!("#{}\n ,\n", id('A')), "f, line 1: it has no relays"),
        ] {
            let error = list("f", &text, known).expect_err(&text).to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fA-F,# $\\n\\PC]{0,200}") {
            let _ = parse("f", &text);
        }
    }
}
