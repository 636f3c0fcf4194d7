//! Errors of private networks and emulated links. Messages say where to look.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of a private network or an emulated link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is missing or cannot be started.
    #[error("cannot run {program:?}; is Debian's package `tor` installed?")]
    Program {
        /// Path of the program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program that generates keys failed.
    #[error("{program:?} failed: {output}")]
    Keys {
        /// Path of the program.
        program: PathBuf,
        /// Its output.
        output: String,
    },
    /// An operation on a file, directory or socket failed.
    #[error("failed to {what}")]
    Io {
        /// The operation, with the name of the file or peer.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The path of a control socket is too long for a socket address.
    #[error("{path:?} is too long for a Unix socket (107 bytes); choose a shorter TMPDIR")]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The caller may not create network namespaces.
    #[error("network namespaces and TUN devices need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    NotRoot,
    /// A device of this name exists already.
    #[error("a network device {device} exists already; is another lab running?")]
    DeviceInUse {
        /// Its name.
        device: String,
    },
    /// A profile of links is invalid.
    #[error("{file}: {what}")]
    Profile {
        /// The file, or the name of a built-in profile.
        file: String,
        /// The problem, with its line or key.
        what: String,
    },
    /// The configuration of the network cannot work.
    #[error("{0}")]
    Misuse(String),
    /// A tor ended unexpectedly.
    #[error("{node} ended by itself ({status}); the end of its log:\n{log}")]
    Exited {
        /// The node's name.
        node: String,
        /// Its exit status.
        status: String,
        /// Last lines of its log and output.
        log: String,
    },
    /// The node is stopped.
    #[error("{node} is not running")]
    NotRunning {
        /// The node's name.
        node: String,
    },
    /// A wait timed out.
    #[error("{what} within {after:?}{detail}")]
    Timeout {
        /// The event that did not happen, as in "client0 did not bootstrap".
        what: String,
        /// Length of the wait.
        after: Duration,
        /// Details such as the end of a log; empty, or beginning with a separator.
        detail: String,
    },
    /// A tor refused a command on its control port.
    #[error("control command {command:?} was refused: {reply}")]
    Refused {
        /// The command, without arguments that may be secret.
        command: String,
        /// The reply.
        reply: String,
    },
    /// A control port closed, or sent something that is not the control protocol.
    #[error("the control connection failed: {0}")]
    Control(String),
    /// A circuit could not be built.
    #[error("no circuit through {path}: {reason}")]
    Circuit {
        /// The path.
        path: String,
        /// Tor's reason.
        reason: String,
    },
    /// A stream could not be opened, or ended before it had everything.
    #[error("stream {stream} of a download failed: {reason}")]
    Stream {
        /// Number of the stream, from 0.
        stream: usize,
        /// Reason.
        reason: String,
    },
    /// An authority did not provide a document.
    #[error("{node} has no {path}: {reason}")]
    Directory {
        /// Name of the authority.
        node: String,
        /// Path of the document.
        path: String,
        /// Reason.
        reason: String,
    },
    /// A signal asked for the end.
    #[error("ended by signal {signal}")]
    Ended {
        /// Number of the signal.
        signal: u8,
    },
    /// A CPU quota cannot be set on this host.
    #[error("a CPU quota needs root and a writable `cpu` cgroup (version 1 or 2): {0}")]
    Quota(String),
}

impl Error {
    /// Adds the operation to a system error; for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
