//! Input files: read as a whole within bounds, unpacked if they are .xz, and remembered with their hashes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use liblzma::read::XzDecoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// What a single file may hold, unpacked: 1 GiB.
const MOST_BYTES: u64 = 1 << 30;

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
        /// What it says.
        source: io::Error,
    },
    /// It holds more than this program takes at once.
    #[error("{} holds more than {} MiB, which is taken for a mistake", path.display(), MOST_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// Inputs in the order in which they were read.
#[derive(Debug, Default)]
pub struct Inputs(Vec<Input>);

impl Inputs {
    /// Reads a file, which may be packed by xz whatever its name is.
    ///
    /// # Errors
    /// [`InputError`] names the file.
    pub fn read(&mut self, path: &Path) -> Result<Vec<u8>, InputError> {
        let fail = |source| InputError::Read { path: path.to_owned(), source };
        let mut packed = Vec::new();
        File::open(path)
            .map_err(fail)?
            .take(MOST_BYTES + 1)
            .read_to_end(&mut packed)
            .map_err(fail)?;
        let hash = Sha256::digest(&packed);
        let bytes = packed.len() as u64;
        let content = match packed.starts_with(b"\xfd7zXZ\0") {
            true => {
                let mut content = Vec::new();
                let unpacked = XzDecoder::new_multi_decoder(&*packed).take(MOST_BYTES + 1);
                { unpacked }.read_to_end(&mut content).map_err(fail)?;
                content
            }
            false => packed,
        };
        if content.len() as u64 > MOST_BYTES {
            return Err(InputError::TooLarge { path: path.to_owned() });
        }
        self.0.push(Input { path: path.display().to_string(), bytes, sha256: hex::encode(hash) });
        Ok(content)
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use liblzma::write::XzEncoder;

    use super::*;

    #[test]
    fn packed_and_plain_files_are_read_and_remembered() {
        let dir = tempfile::tempdir().expect("a directory");
        let (plain, packed) = (dir.path().join("plain"), dir.path().join("packed"));
        std::fs::write(&plain, "abc").expect("written");
        let mut encoder = XzEncoder::new(File::create(&packed).expect("a file"), 6);
        encoder.write_all(b"abc").expect("written");
        encoder.finish().expect("written");
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
        let cut = std::fs::read(&packed).expect("read");
        std::fs::write(&packed, &cut[..cut.len() - 9]).expect("written");
        let error = inputs.read(&packed).expect_err("it is cut");
        assert!(error.to_string().contains("packed cannot be read"), "{error}");
        let error = inputs.read(&dir.path().join("none")).expect_err("it is not there");
        assert!(error.to_string().contains("none cannot be read"), "{error}");
        assert_eq!(inputs.all().len(), 3, "what failed is no input");
    }
}
