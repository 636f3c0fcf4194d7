//! Help on exit statuses.

/// Help on exit statuses.
pub(super) const EXIT_STATUS: &str = "Exit status:
  0  success
  1  failure, with its cause on standard error
  2  invalid command line
  3  check: a relay starves clients
  75 lab: the emulator was too late, or the machine too busy, so the run is invalid; repeat it
  128 plus a signal's number, such as 143 for SIGTERM: lab was stopped by it and has removed its network";

/// Help on exit statuses of commands without special ones.
pub(super) const STATUS: &str = "Exit status:
  0  success
  1  failure, with its cause on standard error
  2  invalid command line";
