//! Exit statuses in `--help`.

/// The exit statuses of a command without others of its own.
pub(super) const STATUS: &str = "Exit status:\n  0  success\n  1  failure, with its cause on standard error\n  2  invalid command line";
