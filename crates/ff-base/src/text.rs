//! Text files as other systems leave them: packed, with a byte order mark in front, or with DOS
//! line ends.
//!
//! Readers of files from other systems start here, so that all of them accept and refuse the same.
//! The mark and the `\r` of DOS line ends are removed: digests are then those of the document
//! before it was converted. A file has DOS line ends if its first line has one; a `\r` elsewhere is
//! part of the text. A packed file is refused with the name of its packing, unless the reader
//! unpacks it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Packing {
    /// xz, as CollecTor's archives are.
    Xz,
    /// gzip.
    Gzip,
    /// bzip2.
    Bzip2,
    /// Zstandard.
    Zstd,
    /// A zip archive.
    Zip,
}

impl Packing {
    /// How a file with these first bytes is packed, regardless of its name; `None` if it is not
    /// packed.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            // The magic of a block, or of an archive without one.
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, ..] => Some(Self::Bzip2),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [b'P', b'K', 3, 4, ..] => Some(Self::Zip),
            _ => None,
        }
    }

    /// Its usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xz => "xz",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Zstd => "zstd",
            Self::Zip => "zip",
        }
    }

    /// The command that unpacks it, regardless of the file's name.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self {
            Self::Xz => "xz -d < FILE > UNPACKED",
            Self::Gzip => "gzip -d < FILE > UNPACKED",
            Self::Bzip2 => "bzip2 -d < FILE > UNPACKED",
            Self::Zstd => "zstd -d < FILE > UNPACKED",
            Self::Zip => "unzip -p FILE > UNPACKED",
        }
    }
}

/// A file is packed in a way that its reader does not unpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is compressed with {}: decompress it first, with {}", .0.name(), .0.command())]
pub struct Packed(pub Packing);

/// Refuses a file that is packed in another way than `unpacked`, by its first bytes.
///
/// # Errors
/// [`Packed`], as an error of the kind `Unsupported`.
pub fn refuse_packed(head: &[u8], unpacked: &[Packing]) -> io::Result<()> {
    match Packing::of(head) {
        Some(packing) if !unpacked.contains(&packing) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, Packed(packing)))
        }
        _ => Ok(()),
    }
}

/// Text without a byte order mark and with Unix line ends.
#[must_use]
pub fn unix(bytes: &[u8]) -> Cow<'_, [u8]> {
    let text = bytes.strip_prefix(MARK).unwrap_or(bytes);
    if !is_dos(text) {
        return Cow::Borrowed(text);
    }
    let mut all = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => {
                all.extend_from_slice(line);
                all.push(b'\n');
            }
            None => all.extend_from_slice(line),
        }
    }
    Cow::Owned(all)
}

/// The same, without a copy if nothing is removed.
#[must_use]
pub fn into_unix(bytes: Vec<u8>) -> Vec<u8> {
    let changed = match unix(&bytes) {
        Cow::Borrowed(same) if same.len() == bytes.len() => None,
        changed => Some(changed.into_owned()),
    };
    changed.unwrap_or(bytes)
}

/// Reads a text file of at most `most_bytes`, in any encoding, without a byte order mark and with
/// Unix line ends.
///
/// # Errors
/// When the file cannot be read, is longer, or is packed; the error does not name the file.
pub fn read_bytes(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let reason = format!("it is longer than {most_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    refuse_packed(&bytes, &[])?;
    Ok(into_unix(bytes))
}

/// The same as text: invalid UTF-8 is replaced.
///
/// # Errors
/// As of [`read_bytes`].
pub fn read_file(path: &Path, most_bytes: u64) -> io::Result<String> {
    let text = String::from_utf8(read_bytes(path, most_bytes)?);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Whether the first line of a text has a DOS line end.
fn is_dos(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| *byte == b'\n');
    end.is_some_and(|end| text.get(..end).is_some_and(|line| line.ends_with(b"\r")))
}

/// A reader of text without a byte order mark and with Unix line ends.
#[derive(Debug)]
pub struct UnixText<R> {
    /// The text as it is.
    inner: R,
    /// Whether the first bytes have been looked at.
    has_begun: bool,
    /// Whether it has DOS line ends, once its first line has ended.
    is_dos: Option<bool>,
    /// Whether the last byte was a `\r` that has not been returned: the next byte decides whether
    /// it will be.
    is_return_held: bool,
}

impl<R: BufRead> UnixText<R> {
    /// Reads from `inner`. A mark is found only if its bytes are all in the first buffer.
    pub const fn new(inner: R) -> Self {
        Self { inner, has_begun: false, is_dos: None, is_return_held: false }
    }

    /// Passes over a byte order mark.
    fn begin(&mut self) -> io::Result<()> {
        let has_mark = self.inner.fill_buf()?.starts_with(MARK);
        self.inner.consume(if has_mark { MARK.len() } else { 0 });
        self.has_begun = true;
        Ok(())
    }

    /// Reads up to the next `\r` that may belong to a line end, which is held back; 0 if it is the
    /// next byte, or at the end.
    fn read_to_return(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let buffer = self.inner.fill_buf()?;
        let part = buffer.get(..to.len().min(buffer.len())).unwrap_or_default();
        let found = part.iter().position(|byte| *byte == b'\r');
        let part = part.get(..found.unwrap_or(part.len())).unwrap_or_default();
        let len = part.len();
        if let Some(to) = to.get_mut(..len) {
            to.copy_from_slice(part);
        }
        if self.is_dos.is_none() && part.contains(&b'\n') {
            self.is_dos = Some(false);
        }
        self.is_return_held = found.is_some() && self.is_dos != Some(false);
        self.inner.consume(len + usize::from(self.is_return_held));
        Ok(len)
    }
}

impl<R: BufRead> Read for UnixText<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if !self.has_begun {
            self.begin()?;
        }
        if self.is_dos == Some(false) {
            return self.inner.read(to);
        }
        loop {
            let Some(first) = to.first_mut() else { return Ok(0) };
            if self.is_return_held {
                let is_line_end = self.inner.fill_buf()?.starts_with(b"\n");
                self.is_return_held = false;
                if !is_line_end {
                    *first = b'\r';
                    return Ok(1);
                }
                self.is_dos = Some(true);
            }
            let len = self.read_to_return(to)?;
            if len > 0 || !self.is_return_held {
                return Ok(len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// The text from a reader with a buffer of `capacity` bytes.
    fn streamed(bytes: &[u8], capacity: usize) -> Vec<u8> {
        let mut text = Vec::new();
        let mut reader = UnixText::new(BufReader::with_capacity(capacity, bytes));
        reader.read_to_end(&mut text).expect("read");
        text
    }

    #[test]
    fn marks_and_dos_line_ends_are_taken_off_and_nothing_else() {
        for (bytes, text) in [
            (&b""[..], &b""[..]),
            (b"a\nb\r\n", b"a\nb\r\n"),
            (b"\xef\xbb\xbfa\nb", b"a\nb"),
            (b"a\r\nb\r\n", b"a\nb\n"),
            (b"\xef\xbb\xbf\r\n\r\nb\rc\r\r\nd\r", b"\n\nb\rc\r\nd\r"),
            (b"a\r\nb\nc\r\n", b"a\nb\nc\n"),
            (b"a\xef\xbb\xbf\r", b"a\xef\xbb\xbf\r"),
        ] {
            assert_eq!(unix(bytes), text, "{bytes:?}");
            assert_eq!(into_unix(bytes.to_vec()), text, "{bytes:?}");
            for capacity in [3, 4, 64] {
                assert_eq!(streamed(bytes, capacity), text, "{bytes:?}, {capacity}");
            }
        }
        let long = b"0123456789\r\n".repeat(1000);
        assert_eq!(streamed(&long, 7), b"0123456789\n".repeat(1000));
    }

    #[test]
    fn packings_are_known_by_the_first_bytes_and_named() {
        for (head, name) in [
            (&b"\xfd7zXZ\0\0"[..], Some("xz")),
            (b"\x1f\x8b\x08\0", Some("gzip")),
            (b"BZh91AY&SY", Some("bzip2")),
            (b"BZh9\x17\x72\x45\x38\x50\x90", Some("bzip2")),
            (b"\x28\xb5\x2f\xfd\x04", Some("zstd")),
            (b"PK\x03\x04", Some("zip")),
            (b"BZh9 is a nickname", None),
            (b"\x1f\x8b", None),
            (b"network-status-version 3\n", None),
            (b"", None),
        ] {
            assert_eq!(Packing::of(head).map(Packing::name), name, "{head:?}");
        }
        refuse_packed(b"\xfd7zXZ\0", &[Packing::Xz]).expect("it is unpacked");
        let error = refuse_packed(b"\x1f\x8b\x08", &[Packing::Xz]).expect_err("it is not");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            "it is compressed with gzip: decompress it first, with gzip -d < FILE > UNPACKED"
        );
    }

    #[test]
    fn files_are_read_within_their_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, b"\xef\xbb\xbfa\xff\r\n").expect("written");
        assert_eq!(read_bytes(&path, 7).expect("read"), b"a\xff\n");
        let error = read_bytes(&path, 6).expect_err("it is longer");
        assert_eq!(error.to_string(), "it is longer than 6 bytes");
        std::fs::write(&path, b"\x28\xb5\x2f\xfd\0").expect("written");
        let error = read_bytes(&path, 6).expect_err("it is packed");
        assert!(error.to_string().contains("compressed with zstd"), "{error}");
    }
}
