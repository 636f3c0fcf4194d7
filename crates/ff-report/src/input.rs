//! Input files: read as a whole within bounds, unpacked if they are .xz, and remembered with their
//! hashes. Byte order marks and DOS line ends are taken off; the hashes are those of the files as
//! they lie on the disk.
//!
//! Of a packed file that is cut or broken, [`Inputs::read_so_far`] gives what came before, and
//! lists it.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write as _};
use std::path::{Path, PathBuf};

use ff_base::text::{Packing, UnixText, into_unix, refuse_packed};
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Check, Stream};
use liblzma::write::XzEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::ahead::read_ahead;
use crate::skipped::Skips;

/// What a single file may hold, unpacked: 1 GiB.
const MOST_BYTES: u64 = 1 << 30;
/// What unpacking may take of memory: xz's own presets need up to 65 MiB.
pub const XZ_MEMORY: u64 = 128 << 20;
/// What an xz file begins with.
pub const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// Unpacks xz, within [`XZ_MEMORY`].
///
/// # Errors
/// When memory is short.
pub fn unpack<R: Read>(packed: R) -> io::Result<XzDecoder<R>> {
    let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
    Ok(XzDecoder::new_stream(packed, stream))
}

/// Packs bytes by xz with this preset, from 0, which is the fastest, to 9.
///
/// # Errors
/// When memory is short.
pub fn pack(bytes: &[u8], preset: u32) -> io::Result<Vec<u8>> {
    let stream = Stream::new_easy_encoder(preset, Check::Crc64)?;
    let mut encoder = XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// A file that was read, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its path, as it was given.
    pub path: String,
    /// Its bytes, as they lie on the disk.
    pub bytes: u64,
    /// Their SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The system says so.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds more than this program takes at once.
    #[error("{} holds more than {} MiB, the most that is read", path.display(), MOST_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// Inputs in the order in which they were read.
#[derive(Debug, Default)]
pub struct Inputs(Vec<Input>);

impl Inputs {
    /// Reads a file, which may be packed by xz under any name.
    ///
    /// # Errors
    /// [`InputError`] names the file; one that is cut is an error too.
    pub fn read(&mut self, path: &Path) -> Result<Vec<u8>, InputError> {
        let (content, input, broken) = read(path)?;
        if let Some(source) = broken {
            return Err(InputError::Read { path: path.to_owned(), source });
        }
        self.0.push(input);
        Ok(content)
    }

    /// The same; of a packed file that is cut or broken, the lines before that, and it is listed.
    /// JSON, which may be one line, is given up to the very place: its readers keep the relays
    /// before it.
    ///
    /// # Errors
    /// [`InputError`] names the file; one that is broken before the end of its first line has
    /// nothing to keep.
    pub fn read_so_far(&mut self, path: &Path, skips: &mut Skips) -> Result<Vec<u8>, InputError> {
        let (mut content, input, broken) = read(path)?;
        if let Some(source) = broken {
            let is_json = content.trim_ascii_start().starts_with(b"{");
            let whole = memchr::memrchr(b'\n', &content).map_or(0, |at| at + 1);
            // Half a line could have half a number, which would be another one.
            content.truncate(if is_json { content.len() } else { whole });
            if content.is_empty() {
                return Err(InputError::Read { path: path.to_owned(), source });
            }
            let line = memchr::memchr_iter(b'\n', &content).count() + 1;
            let reason =
                format!("it cannot be read further; the part before that is kept: {source}");
            skips.add(&input.path, None, Some(line), reason);
        }
        self.0.push(input);
        Ok(content)
    }

    /// The same for a file of lines that is scanned while it is unpacked: a break or too long a
    /// line is an error of the reader, after what came before.
    ///
    /// # Errors
    /// [`InputError`] names the file.
    pub fn open_ahead(&mut self, path: &Path) -> Result<BufReader<impl Read + use<>>, InputError> {
        let (packed, input) = read_packed(path)?;
        if input.bytes > MOST_BYTES {
            return Err(InputError::TooLarge { path: path.to_owned() });
        }
        self.0.push(input);
        let is_packed = packed.starts_with(XZ_MAGIC);
        let whole = Cursor::new(packed);
        let content: Box<dyn Read + Send> = if is_packed {
            Box::new(unpack(whole).map_err(|source| fail(path, source))?)
        } else {
            Box::new(whole)
        };
        let content = UnixText::new(BufReader::new(content));
        let ahead = read_ahead(Bounded { inner: content, left: MOST_BYTES });
        ahead.map(BufReader::new).map_err(|source| fail(path, source))
    }

    /// Remembers a file that something else reads.
    ///
    /// # Errors
    /// [`InputError`] names the file.
    pub fn note(&mut self, path: &Path) -> Result<(), InputError> {
        let mut hash = Sha256::new();
        let bytes = File::open(path).and_then(|mut file| io::copy(&mut file, &mut hash));
        let bytes = bytes.map_err(|source| InputError::Read { path: path.to_owned(), source })?;
        let sha256 = hex::encode(hash.finalize());
        self.0.push(Input { path: path.display().to_string(), bytes, sha256 });
        Ok(())
    }

    /// All that was read.
    #[must_use]
    pub fn all(&self) -> &[Input] {
        &self.0
    }
}

/// A reader of at most this number of bytes: longer input breaks off there.
struct Bounded<R> {
    inner: R,
    /// How many more may come.
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let most = MOST_BYTES >> 20;
            let why = format!("it holds more than {most} MiB, the most that is read");
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        Ok(read)
    }
}

/// A file as it lies on the disk, and what it is remembered by.
fn read_packed(path: &Path) -> Result<(Vec<u8>, Input), InputError> {
    let mut packed = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut packed));
    let known = read.and_then(|_| refuse_packed(&packed, &[Packing::Xz]));
    known.map_err(|source| fail(path, source))?;
    let sha256 = hex::encode(Sha256::digest(&packed));
    let input = Input { path: path.display().to_string(), bytes: packed.len() as u64, sha256 };
    Ok((packed, input))
}

/// This file cannot be read.
fn fail(path: &Path, source: io::Error) -> InputError {
    InputError::Read { path: path.to_owned(), source }
}

/// A file's content, what it is remembered by, and what went wrong in unpacking the rest of it.
fn read(path: &Path) -> Result<(Vec<u8>, Input, Option<io::Error>), InputError> {
    let (packed, input) = read_packed(path)?;
    let (mut content, mut broken) = (packed, None);
    if content.starts_with(XZ_MAGIC) {
        let packed = std::mem::take(&mut content);
        let unpacked = unpack(&*packed).map_err(|source| fail(path, source))?;
        broken = unpacked.take(MOST_BYTES + 1).read_to_end(&mut content).err();
    }
    if content.len() as u64 > MOST_BYTES {
        return Err(InputError::TooLarge { path: path.to_owned() });
    }
    Ok((into_unix(content), input, broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_and_plain_files_are_read_and_remembered() {
        let dir = tempfile::tempdir().expect("a directory");
        let (plain, packed) = (dir.path().join("plain"), dir.path().join("packed"));
        std::fs::write(&plain, "abc").expect("written");
        std::fs::write(&packed, pack(b"abc", 6).expect("packed")).expect("written");
        let mut inputs = Inputs::default();
        for path in [&plain, &packed] {
            assert_eq!(inputs.read(path).expect("read"), b"abc");
        }
        let [one, other] = inputs.all() else { panic!("two: {inputs:?}") };
        // printf abc | sha256sum
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((one.sha256.as_str(), one.bytes), (hash, 3));
        assert!(other.sha256 != one.sha256 && other.bytes > 3);
        inputs.note(&packed).expect("read");
        assert_eq!(inputs.all()[1], inputs.all()[2]);
        let mut text = String::new();
        let mut from = inputs.open_ahead(&packed).expect("opened");
        from.read_to_string(&mut text).expect("whole");
        assert_eq!((text.as_str(), &inputs.all()[3]), ("abc", &inputs.all()[1]));
        let mut bounded = Bounded { inner: &b"abcdef"[..], left: 3 };
        let error = bounded.read(&mut [0; 4]).expect_err("there is more");
        assert!(error.to_string().contains("more than 1024 MiB"), "{error}");
        let cut = std::fs::read(&packed).expect("read");
        std::fs::write(&packed, &cut[..cut.len() - 9]).expect("written");
        let error = inputs.read(&packed).expect_err("it is cut");
        assert!(error.to_string().contains("packed cannot be read"), "{error}");
        let error = inputs.read(&dir.path().join("none")).expect_err("it is not there");
        assert!(error.to_string().contains("none cannot be read"), "{error}");
        assert_eq!(inputs.all().len(), 4, "what failed is no input");
    }

    /// Packs a text, its blocks written out after each part.
    fn packed(parts: &[&[u8]]) -> Vec<u8> {
        let mut encoder = XzEncoder::new(Vec::new(), 6);
        for part in parts {
            encoder.write_all(part).expect("a vector takes all");
            encoder.flush().expect("a vector takes all");
        }
        encoder.finish().expect("a vector takes all")
    }

    #[test]
    fn marks_and_dos_line_ends_are_taken_off_and_other_packings_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let dos = b"\xef\xbb\xbfone\r\ntwo\r\n";
        for bytes in [dos.to_vec(), packed(&[dos])] {
            std::fs::write(&path, &bytes).expect("written");
            let (mut inputs, mut text) = (Inputs::default(), Vec::new());
            assert_eq!(inputs.read(&path).expect("read"), b"one\ntwo\n");
            let read = inputs.read_so_far(&path, &mut Skips::default());
            assert_eq!(read.expect("read"), b"one\ntwo\n");
            inputs.open_ahead(&path).expect("opened").read_to_end(&mut text).expect("read");
            assert_eq!(text, b"one\ntwo\n");
            assert!(inputs.all().iter().all(|input| input.bytes == bytes.len() as u64));
        }
        std::fs::write(&path, b"\x1f\x8b\x08\0").expect("written");
        let mut inputs = Inputs::default();
        for error in [inputs.read(&path).err(), inputs.open_ahead(&path).err()] {
            let Some(InputError::Read { source, .. }) = error else { panic!("{error:?}") };
            assert!(source.to_string().starts_with("it is compressed with gzip"), "{source}");
        }
    }

    #[test]
    fn of_a_file_that_is_cut_the_lines_before_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cut");
        let (mut inputs, mut skips) = (Inputs::default(), Skips::default());
        let mut read = |bytes: &[u8], skips: &mut Skips| {
            std::fs::write(&path, bytes).expect("written");
            inputs.read_so_far(&path, skips)
        };
        for (text, kept) in [("one\ntwo\n12", "one\ntwo\n"), ("\n{\"a\": 12", "\n{\"a\": 12")] {
            let whole = packed(&[text.as_bytes(), b"345\n"]);
            assert_eq!(read(&whole, &mut skips).expect("read").len(), text.len() + 4);
            assert!(skips.all.is_empty(), "{skips:?}");
            // The index and the footer are after 9 bytes of the second part.
            let found = read(&whole[..whole.len() - 45], &mut skips).expect("a part");
            assert_eq!(String::from_utf8_lossy(&found), kept);
            let [one] = skips.all.as_slice() else { panic!("one: {skips:?}") };
            assert!(one.reason.starts_with("it cannot be read further"), "{one:?}");
            assert_eq!(one.line, Some(kept.matches('\n').count() + 1));
            skips = Skips::default();
        }
        let error =
            read(&packed(&[b"half a line"])[..20], &mut skips).expect_err("nothing is left");
        assert!(
            error.to_string().contains("cut cannot be read") && skips.all.is_empty(),
            "{error}"
        );
    }

    #[test]
    fn unpacking_takes_no_more_memory_than_it_may() {
        let mut bytes = packed(&[b"abc\n"]);
        // A block's header: its length, flags, the filter LZMA2, one byte of properties, the size
        // of the dictionary, three of padding, and the checksum of those. 37 stands for a
        // dictionary of 1.5 GiB.
        assert_eq!(bytes[12..16], [2, 0, 0x21, 1]);
        bytes[16] = 37;
        let mut crc = u32::MAX;
        for byte in &bytes[12..20] {
            crc ^= u32::from(*byte);
            (0..8).for_each(|_| crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()));
        }
        bytes[20..24].copy_from_slice(&(!crc).to_le_bytes());
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("greedy");
        std::fs::write(&path, bytes).expect("written");
        let mut inputs = Inputs::default();
        let error = inputs.read(&path).expect_err("too much memory");
        let InputError::Read { source, .. } = error else { panic!("{error}") };
        assert!(source.to_string().contains("memory limit"), "{source}");
    }
}
