//! What can go wrong with a private network. Every message says what to look at.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something with a private network did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is not there or cannot be started.
    #[error("cannot run {program:?}; is Debian's package `tor` installed?")]
    Program {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A program that makes keys failed.
    #[error("{program:?} failed: {output}")]
    Keys {
        /// The program.
        program: PathBuf,
        /// What it wrote.
        output: String,
    },
    /// A file, directory or socket of the network failed.
    #[error("failed to {what}")]
    Io {
        /// What was being done, with the file's or the peer's name.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The path of a control socket does not fit into a socket address.
    #[error("{path:?} is too long for a Unix socket (107 bytes); choose a shorter TMPDIR")]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The system allows no network namespaces to who asks.
    #[error("network namespaces and TUN devices need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    NotRoot,
    /// A device of this name is there already.
    #[error("a network device {device} exists already; is another lab running?")]
    DeviceInUse {
        /// Its name.
        device: String,
    },
    /// A description of links cannot be used.
    #[error("{file}: {what}")]
    Profile {
        /// The file, or the name of a built-in profile.
        file: String,
        /// What is wrong, with the line or the key.
        what: String,
    },
    /// The network was described in a way that cannot work.
    #[error("{0}")]
    Misuse(String),
    /// A tor ended by itself.
    #[error("{node} ended by itself ({status}); the end of its log:\n{log}")]
    Exited {
        /// The node's name.
        node: String,
        /// How it ended.
        status: String,
        /// The last lines of its log and output.
        log: String,
    },
    /// A node is stopped, so it cannot do that.
    #[error("{node} is not running")]
    NotRunning {
        /// The node's name.
        node: String,
    },
    /// Something did not happen in time.
    #[error("{what} within {after:?}{detail}")]
    Timeout {
        /// What did not happen, as in "client0 did not bootstrap".
        what: String,
        /// How long it was waited for.
        after: Duration,
        /// More to go by, such as the end of a log; empty or beginning with a separator.
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
    /// Something that is not the control protocol came from a control port, or it closed.
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
        /// Which one, from 0.
        stream: usize,
        /// Why.
        reason: String,
    },
    /// An authority did not provide the document.
    #[error("{node} has no {path}: {reason}")]
    Directory {
        /// The authority.
        node: String,
        /// The path of the document.
        path: String,
        /// Why.
        reason: String,
    },
    /// Somebody wished it.
    #[error("ended by signal {signal}")]
    Ended {
        /// Its number.
        signal: u8,
    },
    /// A CPU quota cannot be set here.
    #[error("a CPU quota needs root and a writable `cpu` cgroup (version 1 or 2): {0}")]
    Quota(String),
}

impl Error {
    /// Names what was being done when the system refused; for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
