//! Small disks in memory, which can be full or read-only for a while.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::finish;

/// How much a disk holds, as mount(8) writes it.
const SIZE: &str = "size=32m";

/// A disk; it is taken away with this.
pub(crate) struct Disk {
    /// Where it is.
    path: PathBuf,
}

impl Disk {
    /// Mounts an empty one here.
    pub(crate) fn mount(path: &Path) -> Self {
        fs::create_dir_all(path).expect("a directory");
        let mut mount = Command::new("mount");
        finish(mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(path));
        Self { path: path.to_owned() }
    }

    /// Fills it to its last byte.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.path.join("fill")).expect("a file");
        for piece in [vec![0; 4096], vec![0; 1]] {
            while file.write_all(&piece).is_ok() {}
        }
    }

    /// Makes room again.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.path.join("fill")).expect("the file that fills it");
    }

    /// Lets nothing be written, or lets it again. Returns whether that was possible: not while a
    /// file is being written.
    pub(crate) fn set_read_only(&self, is_read_only: bool) -> bool {
        let how = if is_read_only { "remount,ro" } else { "remount,rw" };
        let mut mount = Command::new("mount");
        mount.args(["-o", how]).arg(&self.path).output().is_ok_and(|out| out.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It goes with the namespace at the latest.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}
