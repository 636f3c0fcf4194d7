//! Splits files with several documents.

use memchr::memmem::Finder;

/// The number of bytes that are first searched at once for the start of a document.
const FIRST_BLOCK: usize = 1 << 10;
/// The greatest number of bytes searched at once: they stay in the processor's first cache.
const MOST_BLOCK: usize = 1 << 15;

/// A document in a file of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDocument<'a> {
    /// The first line of the document in the file, from 1.
    pub first_line: usize,
    /// The content, including preceding annotations.
    pub bytes: &'a [u8],
}

/// Splits a file into its documents. A document begins with annotations (`@type` and the like), or,
/// if there are none, with the keyword that begins the first document. A file without such a
/// keyword in its first line is one document.
#[must_use]
pub fn documents(bytes: &[u8]) -> DocumentSplitter<'_> {
    DocumentSplitter { bytes, at: 0, next_line: 1, begin: Begin::default() }
}

/// The documents of a file, see [`documents`].
#[derive(Clone, Debug)]
pub struct DocumentSplitter<'a> {
    /// The content of the file.
    bytes: &'a [u8],
    /// The start of the next document.
    at: usize,
    /// The number of its first line.
    next_line: usize,
    /// How documents begin.
    begin: Begin,
}

impl DocumentSplitter<'_> {
    /// The start of the next line that could begin a document, searched from the start `from` of a
    /// line. Lines before it are not examined.
    fn candidate(&self, from: usize) -> usize {
        let keyword = [b"\n", &*self.begin.keyword].concat();
        let (keyword, annotation) = (Finder::new(&keyword), Finder::new(b"\n@"));
        let (mut start, mut len) = (from.saturating_sub(1), FIRST_BLOCK);
        while start < self.bytes.len() {
            let end = self.bytes.len().min(start + len);
            // A match that begins before `end` may end after it.
            let find = |what: &Finder<'_>, end: usize| {
                let end = self.bytes.len().min(end + what.needle().len() - 1);
                Some(start + what.find(self.bytes.get(start..end)?)?)
            };
            let next = find(&keyword, end).filter(|_| !self.begin.keyword.is_empty());
            if let Some(at) = find(&annotation, next.unwrap_or(end)).or(next) {
                return at + 1;
            }
            (start, len) = (end, MOST_BLOCK.min(len * 2));
        }
        self.bytes.len()
    }
}

impl<'a> Iterator for DocumentSplitter<'a> {
    type Item = FileDocument<'a>;

    fn next(&mut self) -> Option<FileDocument<'a>> {
        let (first_line, start, mut end) = (self.next_line, self.at, self.at);
        while let Some(left) = self.bytes.get(end..).filter(|left| !left.is_empty()) {
            let line = first_line_of(left);
            // The first line ended the previous document, and was examined then.
            if (end > start || first_line == 1) && self.begin.is_next(line) {
                break;
            }
            end += line.len();
            self.next_line += 1;
            if self.begin.is_within && line.ends_with(b"\n") {
                let next = self.candidate(end);
                // After the last document no line number is needed.
                if next < self.bytes.len() {
                    let passed = self.bytes.get(end..next).unwrap_or_default();
                    self.next_line += memchr::memchr_iter(b'\n', passed).count();
                }
                end = next;
            }
        }
        self.at = end;
        let bytes = self.bytes.get(start..end).filter(|bytes| !bytes.is_empty())?;
        Some(FileDocument { first_line, bytes })
    }
}

/// Recognises the first line of the next document.
#[derive(Clone, Debug, Default)]
pub(super) struct Begin {
    /// The keyword of the first document; empty if that has not begun or begins without a keyword.
    keyword: Vec<u8>,
    /// Whether a document has begun before.
    has_begun: bool,
    /// Whether this document has had a line other than annotations and blank lines.
    is_within: bool,
}

impl Begin {
    /// Whether this line begins another document.
    pub(super) fn is_next(&mut self, line: &[u8]) -> bool {
        let is_annotation = line.starts_with(b"@");
        let is_next = self.is_within && (is_annotation || self.begins(line));
        if is_next {
            self.is_within = !is_annotation;
        } else if !self.is_within && !is_annotation && !is_blank(line) {
            self.is_within = true;
            if !std::mem::replace(&mut self.has_begun, true) {
                self.keyword.extend_from_slice(keyword(line).unwrap_or_default());
            }
        }
        is_next
    }

    /// Whether a line begins with the keyword of the first document.
    fn begins(&self, line: &[u8]) -> bool {
        !self.keyword.is_empty()
            && line.starts_with(&self.keyword)
            && keyword(line) == Some(&self.keyword)
    }
}

/// The first line, with its line end.
fn first_line_of(bytes: &[u8]) -> &[u8] {
    let len = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    bytes.get(..len).unwrap_or(bytes)
}

const fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

/// The keyword of a line of a directory document: letters, digits and hyphens, beginning with a
/// letter. Tables and JSON have none in their first lines, and the first line of a bandwidth file
/// is a number.
fn keyword(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let word = line.get(..end).filter(|word| word.first().is_some_and(u8::is_ascii_alphabetic))?;
    word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-').then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first lines and the texts of a file's documents.
    fn parts(file: &str) -> Vec<(usize, &str)> {
        documents(file.as_bytes())
            .map(|part| (part.first_line, str::from_utf8(part.bytes).expect("UTF-8")))
            .collect()
    }

    #[test]
    fn documents_begin_at_annotations_or_at_the_first_keyword() {
        let annotated = "@type x 1.0\nrouter a\nb\n@type x 1.0\n@source y\nrouter c\n";
        assert_eq!(
            parts(annotated),
            [(1, "@type x 1.0\nrouter a\nb\n"), (4, "@type x 1.0\n@source y\nrouter c\n")]
        );
        let plain = "\nrouter a\nrouter-signature\nb\nrouter\nrouter c\r\n\nd";
        assert_eq!(
            parts(plain),
            [(1, "\nrouter a\nrouter-signature\nb\n"), (5, "router\n"), (6, "router c\r\n\nd")]
        );
        // Annotations before one of two.
        let mixed = "router a\n@type x\nrouter b\nrouter c";
        assert_eq!(parts(mixed), [(1, "router a\n"), (2, "@type x\nrouter b\n"), (4, "router c")]);
    }

    /// The documents of a file, found line by line.
    fn by_lines(file: &[u8]) -> Vec<FileDocument<'_>> {
        let (mut begin, mut all, mut number) = (Begin::default(), Vec::new(), 1);
        let (mut at, mut start, mut first_line) = (0, 0, 1);
        while at < file.len() {
            let line = first_line_of(&file[at..]);
            if begin.is_next(line) {
                all.push(FileDocument { first_line, bytes: &file[start..at] });
                (start, first_line) = (at, number);
            }
            (at, number) = (at + line.len(), number + 1);
        }
        all.extend((start < at).then(|| FileDocument { first_line, bytes: &file[start..] }));
        all
    }

    proptest::proptest! {
        #[test]
        fn lines_that_are_passed_over_begin_no_document(
            lines in proptest::collection::vec(proptest::sample::select(vec![
                "@a", "@", "router x", "router", "router-signature", "routerx", "", " ", "x", "1", "\r", "r",
            ]), 0..24),
            ends in proptest::bool::ANY,
        ) {
            let file = lines.join("\n") + if ends { "\n" } else { "" };
            let found: Vec<_> = documents(file.as_bytes()).collect();
            proptest::prop_assert_eq!(found, by_lines(file.as_bytes()), "{:?}", file);
        }
    }

    #[test]
    fn what_has_no_keyword_is_one_document() {
        for file in [
            "{\n{\n}",
            "1557834219\nversion=1\n1557834219\n",
            "a,b\na,b\n",
            "\n\n",
            "@a\n@b",
            "\u{e9}\n\u{e9}",
        ] {
            assert_eq!(parts(file), [(1, file)]);
        }
        assert_eq!(parts(""), []);
    }
}
